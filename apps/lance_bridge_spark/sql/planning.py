"""Tables that statements have loaded, so that planning a read needs no second catalog call."""

from __future__ import annotations

import json
import pickle
import threading
import uuid
from collections import OrderedDict
from collections.abc import Mapping, Sequence
from typing import Any, cast

import pyarrow as pa
from pyspark.sql.datasource import CaseInsensitiveDict, DataSourceArrowWriter
from pyspark.sql.types import StructType

from ..addresses import CatalogAddress
from ..source import LanceSource
from ..source.reading import SizeLimit
from ..source.worker_calls import pickled_reader, pickled_writer
from ..source.writer import LanceWriter
from ..spark_tables import SparkTable

# -- tables ----------------------------------------------------------------------------------------


_MOST = 256
"""More tables than concurrent statements load before they are planned."""

_tables: OrderedDict[str, SparkTable] = OrderedDict()
_lock = threading.Lock()


def keep(table: SparkTable) -> str:
    """Keep a table for some time, and return the name to get it by."""
    name = uuid.uuid4().hex
    with _lock:
        _tables[name] = table
        while len(_tables) > _MOST:
            _tables.popitem(last=False)
    return name


def get(name: str | None) -> SparkTable | None:
    """Return a table by its name, or None if another process kept it or it was evicted."""
    with _lock:
        return None if name is None else _tables.get(name)


# -- plans -----------------------------------------------------------------------------------------


Args = Mapping[str, Any]
Answer = tuple[dict[str, Any], list[bytes]]


def read(catalog: CatalogAddress, args: Args, parts: Sequence[bytes]) -> Answer:  # noqa: ARG001 - one signature
    """``{options, schema, loaded?, local_rows?, local_bytes?}`` to tasks, or to the rows.

    ``options`` are those of the data source. ``loaded`` is the value that `load_table` returned, so
    that the table is not loaded again. If the rows and bytes to read do not exceed ``local_…``, the
    result is ``{local: true, rows}`` and the rows as an Arrow stream. Otherwise it is ``{local:
    false, rows}``, the tasks' function and their partitions. ``rows`` is the maximum number of rows
    to read, or null.

    Raises: TableNotFound, TableVersionNotFound, TableColumnNotFound, InvalidInput,
        ServiceUnavailable, InvalidTableState.
    """
    schema = _schema_of(args)
    source = LanceSource(_options_of(args))
    source.loaded = get(args.get("loaded"))
    reader = source.reader(schema)
    rows = reader.rows_to_read()
    if rows is not None and rows <= args.get("local_rows", -1):
        found = reader.read_all(SizeLimit(rows, args["local_bytes"]))
        if found is not None:
            return {"local": True, "rows": found.num_rows}, [_stream_of(found)]
    tasks = [pickled_reader(reader, schema), *map(pickle.dumps, reader.partitions())]
    return {"local": False, "rows": rows}, tasks


def write(catalog: CatalogAddress, args: Args, parts: Sequence[bytes]) -> Answer:  # noqa: ARG001 - one signature
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


def commit(catalog: CatalogAddress, args: Args, parts: Sequence[bytes]) -> Answer:  # noqa: ARG001 - one signature
    """Commit a writer, given the writer and the messages of its tasks. Safe to repeat.

    The caller also passes ``{transaction}``, to name it in an error if there is no response.

    Raises: ConcurrentModification, InvalidInput, InvalidTableState, ServiceUnavailable.
    """
    writer, *messages = map(pickle.loads, parts)
    writer.commit(messages)
    return {}, []


def abort(catalog: CatalogAddress, args: Args, parts: Sequence[bytes]) -> Answer:  # noqa: ARG001 - one signature
    """Abort a writer, given the writer and the messages of the tasks that have finished."""
    writer, *messages = map(pickle.loads, parts)
    writer.abort(messages)
    return {}, []


def _stream_of(rows: pa.Table) -> bytes:
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, rows.schema) as writer:
        writer.write_table(rows)
    return bytes(sink.getvalue())


def _options_of(args: Args) -> Any:
    return CaseInsensitiveDict(args["options"])


def _schema_of(args: Args) -> StructType:
    return StructType.fromJson(json.loads(args["schema"]))
