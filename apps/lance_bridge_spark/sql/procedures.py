"""The procedures that SQL calls: ``CALL prod.system.compact('sales.orders')``.

They run in the Python process of the driver. Each returns one row.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

import lance_namespace as api
import pyarrow as pa

from lance_bridge import dataset
from lance_bridge.errors import invalid
from lance_bridge.names import parts_of
from lance_bridge.table import Table

from ..addresses import CatalogAddress

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

    @property
    def id(self) -> list[str]:
        """The names of the table; the first may be the catalog's."""
        names = parts_of(self.args["table"])
        levels = len(self.catalog.connect().connection.capabilities.namespace_words)
        if len(names) == levels + 2 and names[0] == self.catalog.name:
            return names[1:]
        return names

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
}  # fmt: skip


def describe(_: CatalogAddress, __: Args) -> Answer:
    """``{}`` to ``{procedures: {name: {comment, parameters, columns}}}``."""
    return {
        "procedures": {
            name: {
                "comment": each.comment,
                "parameters": [vars(parameter) for parameter in each.parameters],
                "columns": ", ".join(f"{column} {type_}" for column, type_ in each.columns.items()),
            }
            for name, each in PROCEDURES.items()
        }
    }


def call(catalog: CatalogAddress, args: Args) -> pa.Table:
    """``{name, arguments}`` to the row of a procedure.

    Raises: TableNotFound, InvalidInput, and what the operation of the namespace raises.
    """
    procedure = PROCEDURES[args["name"]]
    given: dict[str, Any] = dict(args["arguments"])
    for each in procedure.parameters:
        if each.default is None and given.get(each.name) is None:
            raise invalid(f"Procedure {args['name']} needs '{each.name}': {each.comment}")
    row = procedure.run(Call(catalog, given))
    columns = {
        name: pa.array([row[name]], _TYPES[type_]) for name, type_ in procedure.columns.items()
    }
    return pa.table(columns)
