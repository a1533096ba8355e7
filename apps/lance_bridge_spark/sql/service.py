"""The calls of the SQL catalog: by name, with JSON arguments, and byte strings for some.

Reads and writes are planned here; the other modules of this package carry out the other calls.
"""

from __future__ import annotations

import json
import logging
import pickle
from collections.abc import Callable, Mapping, Sequence
from typing import Any, cast

import pyarrow as pa
from lance_namespace.errors import LanceNamespaceError
from pyspark.errors import PySparkException
from pyspark.sql.datasource import CaseInsensitiveDict, DataSourceArrowWriter
from pyspark.sql.types import StructType

from lance_bridge.errors import invalid, panics_as_errors

from ..addresses import CatalogAddress
from ..redaction import redact_logs
from ..source import LanceSource
from ..source.memory import scan_memory
from ..source.worker_calls import error_fields, pickled_reader, pickled_writer
from ..source.writer import LanceWriter
from . import alter_table, entries, metadata_tables, new_tables, procedures

Args = Mapping[str, Any]
Answer = dict[str, Any]
Parts = list[bytes]

logger = logging.getLogger(__name__)

# -- plans of reads and writes ---------------------------------------------------------------------


def plan_read(args: Args) -> tuple[Answer, Parts]:
    """``{options, schema, settings?, loaded?, local_rows?, local_bytes?}`` to tasks or rows.

    ``options`` are those of the data source, and ``settings`` those of `memory.SETTINGS`.
    ``loaded`` is the value that `load_table` returned, so that the table is not loaded again. If
    the rows and bytes to read do not exceed ``local_…``, the result is ``{local: true, rows}`` and
    the rows as an Arrow stream. Otherwise it is ``{local: false, rows}``, the tasks' function and
    their partitions. ``rows`` is the maximum number of rows to read, or null.

    Raises: TableNotFound, TableVersionNotFound, TableColumnNotFound, InvalidInput,
        ServiceUnavailable, InvalidTableState.
    """
    schema = _schema_of(args)
    source = LanceSource(_options_of(args))
    source.memory = scan_memory(args.get("settings") or {})
    source.loaded = entries.loaded(args.get("loaded"))
    reader = source.reader(schema)
    rows = reader.rows_to_read()
    if rows is not None and rows <= args.get("local_rows", -1):
        found = reader.read_all(rows, args["local_bytes"])
        if found is not None:
            return {"local": True, "rows": found.num_rows}, [_stream_of(found)]
    tasks = [pickled_reader(reader, schema), *map(pickle.dumps, reader.partitions())]
    return {"local": False, "rows": rows}, tasks


def plan_write(args: Args) -> tuple[Answer, Parts]:
    """``{options, schema, overwrite}`` to a plan: the tasks' function and the pickled writer.

    The result is ``{transaction?}``, the identifier of the transaction that commits the rows. The
    rows of a stage have none: the stage is committed later.

    Raises: TableNotFound, TableSchemaValidation, InvalidInput, ServiceUnavailable,
        InvalidTableState.
    """
    writer = LanceSource(_options_of(args)).writer(_schema_of(args), bool(args["overwrite"]))
    arrow = cast("DataSourceArrowWriter", writer)
    answer: dict[str, Any] = {}
    if isinstance(writer, LanceWriter):
        answer["transaction"] = writer.transaction
    return answer, [pickled_writer(arrow), pickle.dumps(writer)]


def commit_write(parts: Sequence[bytes]) -> None:
    """Commit a writer, given the writer and the messages of its tasks. Safe to repeat.

    The caller also passes ``{transaction}``, to name it in an error if there is no response.

    Raises: ConcurrentModification, InvalidInput, InvalidTableState, ServiceUnavailable.
    """
    writer, *messages = map(pickle.loads, parts)
    writer.commit(messages)


def abort_write(parts: Sequence[bytes]) -> None:
    """Abort a writer, given the writer and the messages of the tasks that have finished."""
    writer, *messages = map(pickle.loads, parts)
    writer.abort(messages)


def _stream_of(rows: pa.Table) -> bytes:
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, rows.schema) as writer:
        writer.write_table(rows)
    return bytes(sink.getvalue())


def _options_of(args: Args) -> Any:
    return CaseInsensitiveDict(args["options"])


def _schema_of(args: Args) -> StructType:
    return StructType.fromJson(json.loads(args["schema"]))


# -- calls -----------------------------------------------------------------------------------------

_OPERATIONS: Mapping[str, Callable[[CatalogAddress, Args], Answer]] = {
    "list_namespaces": entries.list_namespaces,
    "load_namespace": entries.load_namespace,
    "create_namespace": entries.create_namespace,
    "alter_namespace": entries.alter_namespace,
    "drop_namespace": entries.drop_namespace,
    "list_tables": entries.list_tables,
    "table_exists": entries.table_exists,
    "load_table": entries.load_table,
    "create_table": entries.create_table,
    "drop_table": entries.drop_table,
    "rename_table": entries.rename_table,
    "truncate": entries.truncate,
    "delete_where": entries.delete_where,
    "fragments": entries.fragments,
    "alter_table": alter_table.alter,
    "stage_create": new_tables.create,
    "stage_replace": new_tables.replace,
    "commit_staged": new_tables.commit,
    "abort_staged": new_tables.abort,
    "describe_procedures": procedures.describe,
}


_PLANS = {"plan_read": plan_read, "plan_write": plan_write}
_ENDS = {"commit_write": commit_write, "abort_write": abort_write}
_ROWS = {"call_procedure": procedures.call, "metadata_rows": entries.metadata_rows}
_OF_METADATA = {"load_table", "table_exists"}
"""Operations that take metadata tables as well as tables."""


def respond(call: Mapping[str, Any], parts: Sequence[bytes]) -> tuple[Answer, Parts]:
    """Carry out a call of the SQL catalog, and return its response.

    Args:
        call: ``{op, args, catalog: {name, properties}}``
        parts: The byte strings of the call.

    Returns:
        ``{answer}`` or ``{error: {code, message}}``, and the byte strings of the response.
    """
    redact_logs()
    op, args, fields = call["op"], call["args"], call["catalog"]
    try:
        with panics_as_errors():
            catalog = CatalogAddress(fields["name"], fields["properties"])
            if op in _PLANS:
                answered, plan = _PLANS[op](args)
                return {"answer": answered}, plan
            if op in _ENDS:
                _ENDS[op](parts)
                return {"answer": {}}, []
            if op in _ROWS:
                return {"answer": {}}, [_stream_of(_ROWS[op](catalog, args))]
            if op not in _OF_METADATA and "table" in args:
                metadata_tables.refuse_change(catalog, args["table"])
            return {"answer": _operation(op)(catalog, args)}, []
    except (LanceNamespaceError, PySparkException) as error:
        return error_fields(error), []
    except Exception as error:
        logger.exception("Call %s failed", op)
        return error_fields(error), []


def _operation(op: str) -> Callable[[CatalogAddress, Args], Answer]:
    if op not in _OPERATIONS:
        raise invalid(f"The SQL catalog has no operation '{op}': the jar is of another version")
    return _OPERATIONS[op]
