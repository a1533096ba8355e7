"""The procedures that SQL calls: ``CALL prod.system.compact('sales.orders')``.

They run in the Python process of the driver, and some of them Spark jobs in the session of the
statement. Each returns one row.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from datetime import timedelta
from typing import Any

import lance_namespace as api
import pyarrow as pa

from lance_bridge import dataset
from lance_bridge.dotted_names import parts_of
from lance_bridge.errors import invalid
from lance_bridge.requests import LATEST
from lance_bridge.table import Table

from ..addresses import CatalogAddress, TableAddress
from ..jobs import views
from ..jobs.backfill import Backfill, fill
from ..jobs.tasks import Phases
from ..lookup import find_table

Args = Mapping[str, Any]
Answer = dict[str, Any]
Row = dict[str, Any]

_TYPES = {"STRING": pa.string(), "BIGINT": pa.int64(), "BOOLEAN": pa.bool_()}


@dataclass(frozen=True)
class Parameter:
    """A parameter of a procedure."""

    name: str
    type: str
    """``STRING``, ``BIGINT`` or ``BOOLEAN``."""
    comment: str
    default: str | None = None
    """A literal of SQL; None if the parameter is required."""


@dataclass(frozen=True)
class Call:
    """A call of a procedure. ``args`` are its arguments by name; an omitted one has its default."""

    catalog: CatalogAddress
    args: Args
    spark: Any = None
    """The session of the statement, if the procedure runs Spark jobs."""

    @property
    def id(self) -> list[str]:
        """The names of the table; the first may be the catalog's."""
        names = parts_of(self.args["table"])
        levels = len(self.catalog.connect().connection.capabilities.namespace_words)
        if len(names) == levels + 2 and names[0] == self.catalog.name:
            return names[1:]
        return names

    @property
    def address(self) -> TableAddress:
        return TableAddress(self.catalog, tuple(self.id))

    @property
    def table(self) -> Table:
        return self.catalog.connect().tables.load_by_id(self.id)

    def given(self, *names: str) -> dict[str, Any]:
        """Return those of the arguments that are not null."""
        return {name: self.args[name] for name in names if self.args[name] is not None}


@dataclass(frozen=True)
class Procedure:
    """A procedure: what it does, its parameters, its columns, and its function."""

    comment: str
    parameters: tuple[Parameter, ...]
    columns: Mapping[str, str]
    run: Callable[[Call], Row]
    runs_jobs: bool = False
    """Whether it needs the session of the statement."""


# -- maintenance -----------------------------------------------------------------------------------


def _compact(call: Call) -> Row:
    done = dataset.compact(call.table, **call.given("target_rows", "dry_run"))
    return {
        "version": done.version,
        "fragments_removed": done.fragments_removed,
        "fragments_added": done.fragments_added,
    }


def _clean_up(call: Call) -> Row:
    hours = timedelta(hours=call.args["older_than_hours"])
    options = call.given("keep_versions", "dry_run")
    done = dataset.clean_up(call.table, older_than=hours, **options)
    return {"versions": done.versions, "bytes": done.bytes, "kept": "; ".join(done.kept)}


def _restore(call: Call) -> Row:
    request = api.RestoreTableRequest(id=call.id, version=call.args["version"])
    call.catalog.connect().restore_table(request)
    return {"version": int(call.table.open().version)}


# -- indices ---------------------------------------------------------------------------------------


def _create_index(call: Call) -> Row:
    column, name = call.args["column"], call.args["name"]
    request = api.CreateTableIndexRequest(
        id=call.id,
        column=column,
        index_type=call.args["type"],
        name=name,
        distance_type=call.args["metric"],
    )
    call.catalog.connect().create_table_index(request)
    return {"index": dataset.default_index_name(column) if name is None else name}


def _drop_index(call: Call) -> Row:
    name = call.args["name"]
    call.catalog.connect().drop_table_index(api.DropTableIndexRequest(id=call.id, index_name=name))
    return {"index": name}


def _optimize_indices(call: Call) -> Row:
    return {"version": dataset.optimize_indices(call.table)}


# -- tags and branches -----------------------------------------------------------------------------


def _version(call: Call) -> int:
    """Return the version that a call names, or the latest one."""
    given: int | None = call.args["version"]
    return int(call.table.open().version) if given is None else given


def _create_tag(call: Call) -> Row:
    version = _version(call)
    request = api.CreateTableTagRequest(id=call.id, tag=call.args["tag"], version=version)
    call.catalog.connect().create_table_tag(request)
    return {"tag": call.args["tag"], "version": version}


def _update_tag(call: Call) -> Row:
    version = _version(call)
    request = api.UpdateTableTagRequest(id=call.id, tag=call.args["tag"], version=version)
    call.catalog.connect().update_table_tag(request)
    return {"tag": call.args["tag"], "version": version}


def _delete_tag(call: Call) -> Row:
    request = api.DeleteTableTagRequest(id=call.id, tag=call.args["tag"])
    call.catalog.connect().delete_table_tag(request)
    return {"tag": call.args["tag"]}


def _create_branch(call: Call) -> Row:
    request = api.CreateTableBranchRequest(
        id=call.id,
        name=call.args["branch"],
        from_branch=call.args["from_branch"],
        from_version=call.args["version"],
    )
    call.catalog.connect().create_table_branch(request)
    return {"branch": call.args["branch"]}


def _delete_branch(call: Call) -> Row:
    request = api.DeleteTableBranchRequest(id=call.id, name=call.args["branch"])
    call.catalog.connect().delete_table_branch(request)
    return {"branch": call.args["branch"]}


# -- jobs ------------------------------------------------------------------------------------------


def _backfill(call: Call) -> Row:
    table = find_table(call.address)
    column, expression = call.args["column"], call.args["expression"]
    job = Backfill(call.spark, table, LATEST, column, expression, call.args["where"])
    done = fill(job, Phases())
    return {
        "version": done.version,
        "fragments": done.fragments,
        "transaction": done.transaction_id,
    }


def _refresh_view(call: Call) -> Row:
    done = views.refresh(call.spark, call.address, full=bool(call.args["full"]), progress=Phases())
    return {"version": done.version, "full": done.is_full, "transaction": done.transaction_id}


# -- the procedures --------------------------------------------------------------------------------

_TABLE = Parameter("table", "STRING", "Its name, such as sales.orders")
_VERSION = Parameter("version", "BIGINT", "A version; the latest one by default", "NULL")
_DRY_RUN = Parameter("dry_run", "BOOLEAN", "Whether to change nothing", "false")
_TAG = Parameter("tag", "STRING", "The tag's name")
_BRANCH = Parameter("branch", "STRING", "The branch's name")

PROCEDURES: Mapping[str, Procedure] = {
    "compact": Procedure(
        "Merge small fragments and remove deleted rows from files",
        (
            _TABLE,
            Parameter(
                "target_rows", "BIGINT", "Rows of a fragment", str(dataset.SMALL_FRAGMENT)
            ),
            _DRY_RUN,
        ),
        {"version": "BIGINT", "fragments_removed": "BIGINT", "fragments_added": "BIGINT"},
        _compact,
    ),
    "clean_up": Procedure(
        "Delete old versions and files that no version uses",
        (
            _TABLE,
            Parameter(
                "older_than_hours",
                "BIGINT",
                "Hours since a version was replaced, at least 1",
                str(dataset.DEFAULT_AGE // timedelta(hours=1)),
            ),
            Parameter("keep_versions", "BIGINT", "How many of the latest versions to keep", "NULL"),
            _DRY_RUN,
        ),
        {"versions": "BIGINT", "bytes": "BIGINT", "kept": "STRING"},
        _clean_up,
    ),
    "restore": Procedure(
        "Make an old version the latest one",
        (_TABLE, Parameter("version", "BIGINT", "The version to restore")),
        {"version": "BIGINT"},
        _restore,
    ),
    "create_index": Procedure(
        "Build an index on a column",
        (
            _TABLE,
            Parameter("column", "STRING", "The column's path"),
            Parameter("type", "STRING", "BTREE, BITMAP, FTS, IVF_PQ and so on", "'BTREE'"),
            Parameter("name", "STRING", "Its name; <column>_idx by default", "NULL"),
            Parameter("metric", "STRING", "For vectors: l2, cosine, dot or hamming", "NULL"),
        ),
        {"index": "STRING"},
        _create_index,
    ),
    "drop_index": Procedure(
        "Drop an index",
        (_TABLE, Parameter("name", "STRING", "The index's name")),
        {"index": "STRING"},
        _drop_index,
    ),
    "optimize_indices": Procedure(
        "Add the rows that were written since to all indices", (_TABLE,), {"version": "BIGINT"},
        _optimize_indices,
    ),
    "create_tag": Procedure(
        "Give a version a tag", (_TABLE, _TAG, _VERSION), {"tag": "STRING", "version": "BIGINT"},
        _create_tag,
    ),
    "update_tag": Procedure(
        "Move a tag to another version", (_TABLE, _TAG, _VERSION),
        {"tag": "STRING", "version": "BIGINT"}, _update_tag,
    ),
    "delete_tag": Procedure("Delete a tag", (_TABLE, _TAG), {"tag": "STRING"}, _delete_tag),
    "create_branch": Procedure(
        "Create a branch",
        (
            _TABLE,
            _BRANCH,
            _VERSION,
            Parameter("from_branch", "STRING", "The branch of the version; else main", "NULL"),
        ),
        {"branch": "STRING"},
        _create_branch,
    ),
    "delete_branch": Procedure(
        "Delete a branch", (_TABLE, _BRANCH), {"branch": "STRING"}, _delete_branch
    ),
    "backfill": Procedure(
        "Compute the values of a column, or of a new one",
        (
            _TABLE,
            Parameter("column", "STRING", "A column, or the name of a new one"),
            Parameter("expression", "STRING", "An expression of Spark SQL over the row"),
            Parameter("where", "STRING", "The rows, as a condition in Lance's SQL", "NULL"),
        ),
        {"version": "BIGINT", "fragments": "BIGINT", "transaction": "STRING"},
        _backfill,
        runs_jobs=True,
    ),
    "refresh_view": Procedure(
        "Bring a materialized view up to date",
        (
            _TABLE,
            Parameter("full", "BOOLEAN", "Whether to compute all rows in any case", "false"),
        ),
        {"version": "BIGINT", "full": "BOOLEAN", "transaction": "STRING"},
        _refresh_view,
        runs_jobs=True,
    ),
}  # fmt: skip


def describe(_: CatalogAddress, __: Args) -> Answer:
    """``{}`` to ``{procedures: {name: {comment, parameters, runs_jobs, columns}}}``."""
    return {
        "procedures": {
            name: {
                "comment": each.comment,
                "parameters": [vars(parameter) for parameter in each.parameters],
                "runs_jobs": each.runs_jobs,
                "columns": ", ".join(f"{column} {type_}" for column, type_ in each.columns.items()),
            }
            for name, each in PROCEDURES.items()
        }
    }


def call(catalog: CatalogAddress, args: Args) -> pa.Table:
    """``{name, arguments, spark?}`` to the row of a procedure.

    ``spark`` is how to get the session of the statement, if the procedure runs jobs.

    Raises: TableNotFound, InvalidInput, and what the operation of the namespace raises.
    """
    procedure = PROCEDURES[args["name"]]
    given: dict[str, Any] = dict(args["arguments"])
    for each in procedure.parameters:
        if each.default is None and given.get(each.name) is None:
            raise invalid(f"Procedure {args['name']} needs '{each.name}': {each.comment}")
    row = _run(procedure, Call(catalog, given), args.get("spark"))
    columns = {
        name: pa.array([row[name]], _TYPES[type_]) for name, type_ in procedure.columns.items()
    }
    return pa.table(columns)


def _run(procedure: Procedure, call: Call, access: Mapping[str, Any] | None) -> Row:
    if not procedure.runs_jobs:
        return procedure.run(call)
    if access is None:
        raise invalid("The procedure runs Spark jobs, and the call has no session")
    from .session import session  # noqa: PLC0415 - few drivers use it

    with session(access) as spark:
        return procedure.run(replace(call, spark=spark))
