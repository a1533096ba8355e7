"""Columns of a table: adding, altering and dropping them, their metadata, and computed columns.

All checks precede the first write. A computed column has a SQL expression in its metadata, and a
backfill fills it. The keys are those that LanceDB writes, so that each implementation finds the
other's columns.
"""

from __future__ import annotations

import json
import uuid
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import lance
import pyarrow as pa
from lance_namespace import AlterTableBackfillColumnsRequest
from lance_namespace_urllib3_client.models import (
    AddColumnsEntry,
    AlterColumnsEntry,
    UpdateFieldMetadataEntry,
)

from .. import locations
from ..arrow_types import schema_from_base64, type_from_json
from ..engine import Backfill
from ..errors import invalid, require_text, unsupported
from ..requests import Ref
from ..table import Table, transaction_id
from . import expressions, paths
from .arrow_compat import require_storable
from .batch_sizes import columns_read, scan_limits
from .paths import Column

# -- columns ---------------------------------------------------------------------------------------


RESERVED_COLUMNS = frozenset(
    {
        "_rowid",
        "_rowaddr",
        "_rowoffset",
        "_row_created_at_version",
        "_row_last_updated_at_version",
        "_distance",
        "_score",
    }
)
"""Columns that Lance adds to results. A table's column with such a name could not be read."""

_TYPE_KEYS = "ARROW:extension:"
"""Prefix of keys that define how a column's values are read, and so are part of its type."""


def add_columns(table: Table, ref: Ref, entries: Sequence[AddColumnsEntry]) -> int:
    """Add columns in one commit and return its version. Source: AlterTableAddColumns.

    An ``expression`` is evaluated once, for the existing rows; ``CAST(NULL AS …)`` adds a column of
    nulls. ``computed`` adds a column of nulls and keeps its expression, for a backfill.

    Raises:
        InvalidInputError: (13) a name is not valid or exists, an expression is malformed or fails
            on a row, or an entry has not exactly one of expression and computed.
        TableColumnNotFoundError: (12) an expression names a column that does not exist.
        UnsupportedOperationError: (0) ``virtual_column``; ``expression`` and ``computed`` columns
            in one request, which Lance cannot commit at once.
        ConcurrentModificationError: (14)
    """
    _check_entries(entries)
    dataset = table.open(ref, write=True)
    _check_new_names(dataset, [entry.name for entry in entries])
    sql = {entry.name: entry.expression or entry.computed or "" for entry in entries}
    types = expressions.types_of(dataset, table.name, sql)
    new: dict[str, str] | pa.Schema = sql
    limits = scan_limits(dataset, columns_read(dataset.schema.names, sql))
    if entries[0].computed is not None:
        old = paths.siblings(dataset, ())
        fields = [declare_computed(name, types[name], sql[name], old) for name in sql]
        new = pa.schema(fields)
    with table.committing(dataset, "no column was added"):
        dataset.add_columns(new, batch_size=limits.get("batch_size"))
    return int(dataset.version)


def _check_entries(entries: Sequence[AddColumnsEntry]) -> None:
    if not entries:
        raise invalid("The request adds no column: new_columns is empty")
    for entry in entries:
        if entry.virtual_column is not None:
            raise unsupported(
                f"Column '{entry.name}': virtual_column is not supported: a function in a Docker "
                "image needs a compute engine. Use expression or computed"
            )
        if (entry.expression is None) == (entry.computed is None):
            raise invalid(
                f"Column '{entry.name}' needs either expression or computed; for a column of nulls "
                "write CAST(NULL AS type)"
            )
    if len({entry.computed is None for entry in entries}) > 1:
        raise unsupported(
            "Columns with expression and columns with computed in one request are not supported: "
            "Lance cannot add both in one commit. Send two requests"
        )


def _check_new_names(dataset: lance.LanceDataset, names: Sequence[str]) -> None:
    taken = set(paths.siblings(dataset, ()))
    for name in names:
        check_name(name, is_nested=False)
        if name in taken:
            raise invalid(f"Column '{name}' exists already, or is named twice")
        taken.add(name)


def check_name(name: str, *, is_nested: bool) -> None:
    """Check the name of a new column, or of a field in one.

    Raises:
        InvalidInputError: (13) Lance, or a catalog, could not use it.
    """
    require_text("The column name", name)
    if not name or "\0" in name:
        raise invalid(f"{name!r} cannot be a column's name: it is empty or has a NUL")
    if locations.is_path(name):
        raise invalid(f"{name[:60]!r} cannot be a column's name: it is a path")
    if is_nested:
        return
    if "." in name:
        raise invalid(f"{name!r} cannot be a column's name: dots are for the fields of structs")
    if name in RESERVED_COLUMNS:
        raise invalid(f"{name!r} cannot be a column's name: Lance itself has a column of that name")


# -- alter -----------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Alteration:
    """One checked entry of AlterTableAlterColumns."""

    column: Column
    rename: str | None
    nullable: bool | None
    data_type: pa.DataType | None

    def as_lance(self) -> Any:
        """Return the entry in pylance's form, with the changes only."""
        changes = {"name": self.rename, "nullable": self.nullable, "data_type": self.data_type}
        given = {key: value for key, value in changes.items() if value is not None}
        return {"path": self.column.path, **given}


def alter_columns(table: Table, ref: Ref, entries: Sequence[AlterColumnsEntry]) -> int:
    """Rename and retype columns, and change whether they may be null; return the new version.

    All entries are applied in one commit, and use the names before it. Lance drops the metadata of
    a column whose type changes; a second commit restores it.
    Source: AlterTableAlterColumns.

    Raises:
        TableColumnNotFoundError: (12)
        InvalidInputError: (13) an entry changes nothing, a name is not valid or exists, values do
            not fit the type or are null, or a column with an index gets another type.
        UnsupportedOperationError: (0) ``virtual_column``; a type together with nullable=false,
            of any columns, which Lance cannot commit at once.
        ConcurrentModificationError: (14)
    """
    types = [_parse_entry_type(entry) for entry in entries]
    if any(types) and any(entry.nullable is False for entry in entries):
        raise unsupported(
            "data_type and nullable=false in one request are not supported: Lance cannot do both "
            "in one commit. Send the types first, then nullable=false"
        )
    dataset = table.open(ref, write=True)
    columns = paths.find_columns(dataset, table, [entry.path for entry in entries])
    alterations = [
        Alteration(column, entry.rename, entry.nullable, dtype)
        for column, entry, dtype in zip(columns, entries, types, strict=True)
    ]
    _check_renames(dataset, alterations)
    _check_computed(dataset, alterations)
    _check_retypes(dataset, [each.column for each in alterations if each.data_type is not None])
    changed = [a.column for a in alterations if a.rename is not None or a.data_type is not None]
    require_unread(dataset, changed)
    before = {column.segments: paths.metadata_of(column) for column in paths.walk(dataset)}
    with table.committing(dataset, "no column was altered"):
        dataset.alter_columns(*(each.as_lance() for each in alterations))
    if any(each.data_type is not None for each in alterations):
        _restore_metadata(dataset, table, before, alterations)
    return int(dataset.version)


def _parse_entry_type(entry: AlterColumnsEntry) -> pa.DataType | None:
    if entry.virtual_column is not None:
        raise unsupported(
            f"Column '{entry.path}': virtual_column is not supported: a function in a Docker image "
            "needs a compute engine"
        )
    if entry.rename is None and entry.nullable is None and entry.data_type is None:
        raise invalid(f"Nothing to alter in '{entry.path}': give rename, nullable or data_type")
    return None if entry.data_type is None else type_from_json(entry.data_type)


def _check_renames(dataset: lance.LanceDataset, alterations: Sequence[Alteration]) -> None:
    """Refuse two fields of one name in a struct: Lance commits them, then cannot read the table."""
    for parent in {each.column.parent for each in alterations if each.rename is not None}:
        renames = {
            each.column.name: each.rename
            for each in alterations
            if each.column.parent == parent and each.rename is not None
        }
        for name in renames.values():
            check_name(name, is_nested=bool(parent))
        after = Counter(renames.get(name, name) for name in paths.siblings(dataset, parent))
        twice = [name for name, count in after.items() if count > 1]
        if twice:
            raise invalid(f"Column '{paths.canonical([*parent, twice[0]])}' exists already")


def _check_computed(dataset: lance.LanceDataset, alterations: Sequence[Alteration]) -> None:
    """Refuse a new type of a computed column, and a new type or name of a field in one."""
    changed = {
        each.column.segments[0]
        for each in alterations
        if each.data_type is not None or (each.rename is not None and each.column.parent)
    }
    for column in paths.walk(dataset):
        if not column.parent and column.name in changed:
            require_plain(column)


def _check_retypes(dataset: lance.LanceDataset, columns: Sequence[Column]) -> None:
    for column in columns:
        on_it = [index.name for index in dataset.describe_indices() if _is_index_on(index, column)]
        if on_it:
            raise invalid(
                f"Column '{column.path}' cannot get another type while index '{on_it[0]}' is on "
                "it: drop the index first"
            )


def _is_index_on(index: Any, column: Column) -> bool:
    """Return whether an index is on a column, or on a field in it."""
    indexed = [paths.parse(path) for path in index.field_names]
    return any(each[: len(column.segments)] == column.segments for each in indexed)


def _restore_metadata(
    dataset: lance.LanceDataset,
    table: Table,
    before: Mapping[tuple[str, ...], dict[str, str]],
    alterations: Sequence[Alteration],
) -> None:
    renames = {a.column.segments: a.rename for a in alterations if a.rename is not None}
    now = {column.segments: column for column in paths.walk(dataset)}
    lost: dict[str, dict[str, str | None]] = {}
    for old, metadata in before.items():
        new = tuple(renames.get(old[: i + 1], name) for i, name in enumerate(old))
        kept = {k: v for k, v in metadata.items() if not k.startswith(_TYPE_KEYS)}
        if kept and new in now and not paths.metadata_of(now[new]):
            lost[now[new].path] = dict(kept)
    if lost:
        with table.committing(dataset, "columns have their new types, but lost their metadata"):
            dataset.update_field_metadata(lost)


# -- drop ------------------------------------------------------------------------------------------


def drop_columns(table: Table, ref: Ref, columns: Sequence[str]) -> tuple[int, str | None]:
    """Drop columns and their indices; return the version and the transaction's identifier.

    A struct is dropped with its last field. Source: AlterTableDropColumns.

    Raises:
        TableColumnNotFoundError: (12)
        InvalidInputError: (13) no column would be left, one is named twice, or a computed column
            reads it.
        ConcurrentModificationError: (14)
    """
    dataset = table.open(ref, write=True)
    found = paths.find_columns(dataset, table, columns)
    dropped = {column.segments for column in found}
    leaves = [each.segments for each in paths.walk(dataset) if not each.field.children()]
    if all(any(leaf[: i + 1] in dropped for i in range(len(leaf))) for leaf in leaves):
        raise invalid(f"Table '{table.name}' must keep at least one column")
    require_unread(dataset, found, dropped=found)
    with table.committing(dataset, "no column was dropped"):
        dataset.drop_columns([column.path for column in found])
    return int(dataset.version), transaction_id(dataset, table)


def replace_schema_metadata(
    table: Table, ref: Ref, metadata: Mapping[str, str] | None
) -> tuple[dict[str, str], str | None]:
    """Replace the metadata of the schema.

    Returns the metadata and the identifier of the transaction. Source: UpdateTableSchemaMetadata.

    Raises:
        InvalidInputError: (13) the request has none, or it is not text.
        ConcurrentModificationError: (14)
    """
    if metadata is None:
        raise invalid("The request has no metadata: send an empty map to remove all of it")
    _check_text(metadata, metadata.values())
    dataset = table.open(ref, write=True)
    with table.committing(dataset, "the metadata was not changed"):
        now = dataset.update_schema_metadata(dict(metadata), replace=True)
    return dict(now), transaction_id(dataset, table)


def update_field_metadata(
    table: Table, ref: Ref, entries: Sequence[UpdateFieldMetadataEntry]
) -> tuple[int, dict[str, dict[str, str]]]:
    """Change the metadata of fields in one commit; return its version and the fields' metadata.

    An entry is merged with existing keys; a null removes a key, ``replace`` removes all others.
    Source: UpdateFieldMetadata.

    Raises:
        TableColumnNotFoundError: (12)
        InvalidInputError: (13) no field is named or one twice, something is not text, a key is
            part of the column's type or of its computation, or Lance refuses a value.
        ConcurrentModificationError: (14)
    """
    for entry in entries:
        _check_text(entry.metadata, (v for v in entry.metadata.values() if v is not None))
    dataset = table.open(ref, write=True)
    columns = paths.find_columns(dataset, table, [entry.path for entry in entries])
    updates = {
        column.path: _changed_keys(column, entry)
        for column, entry in zip(columns, entries, strict=True)
    }
    with table.committing(dataset, "no metadata was changed"):
        dataset.update_field_metadata(updates)
    now = [paths.find_column(dataset, table, column.path) for column in columns]
    return int(dataset.version), {column.path: paths.metadata_of(column) for column in now}


def _changed_keys(column: Column, entry: UpdateFieldMetadataEntry) -> dict[str, str | None]:
    """Return the changed keys only; None removes a key."""
    before = paths.metadata_of(column)
    kept = (
        {k: v for k, v in before.items() if k.startswith(_TYPE_KEYS)} if entry.replace else before
    )
    after = {k: v for k, v in {**kept, **entry.metadata}.items() if v is not None}
    changes = {
        key: after.get(key) for key in {**before, **after} if before.get(key) != after.get(key)
    }
    for key in changes:
        if key.startswith(_TYPE_KEYS):
            raise invalid(
                f"{key!r} is part of the type of column '{column.path}' and cannot change"
            )
        if is_declaration(key):
            raise invalid(
                f"{key!r} of column '{column.path}' defines a computed column: add one with "
                "AlterTableAddColumns, and drop it to change it"
            )
    return changes


def _check_text(keys: Iterable[str], values: Iterable[str]) -> None:
    for text in [*keys, *values]:
        require_text("The metadata", text)
        if "\0" in text:
            raise invalid(f"The metadata has a NUL in {text[:60]!r}")


# -- columns of nulls ------------------------------------------------------------------------------


def add_null_columns(table: Table, ref: Ref, schema_text: str) -> int:
    """Add columns of nulls in one commit and return its version.

    Source: ``AllNulls`` of Lance's ``NewColumnTransform``.

    Args:
        schema_text: The columns, see `ExtendedColumnsRequest.arrow_schema`.

    Raises:
        InvalidInputError: (13) it is not a schema, Lance cannot store a type, a name is not valid
            or exists, a new column or field may not be null, or a struct is a computed column.
        ConcurrentModificationError: (14)
    """
    schema = _parse(schema_text)
    dataset = table.open(ref, write=True)
    _check(dataset, schema)
    require_storable(schema)
    with table.committing(dataset, "no column was added"):
        dataset.add_columns(schema)
    return int(dataset.version)


def _parse(text: str) -> pa.Schema:
    problem = "arrow_schema is not an Arrow schema: an IPC message in base64"
    schema = schema_from_base64(text, problem)
    if not len(schema):
        raise invalid("The request adds no column: arrow_schema is empty")
    return schema


def _check(dataset: lance.LanceDataset, schema: pa.Schema) -> None:
    existing = {field.name: field for field in dataset.schema}
    computed = {each.name: each for each in paths.walk(dataset) if not each.parent}
    taken: set[str] = set()
    for field in schema:
        check_name(field.name, is_nested=False)
        if not field.nullable:
            raise invalid(
                f"Column '{field.name}' may not be null, so it needs values: give an expression"
            )
        if field.name in taken:
            raise invalid(f"Column '{field.name}' is named twice")
        taken.add(field.name)
        if field.name in existing:
            require_plain(computed[field.name])
            _check_merge(existing[field.name], field, (field.name,))


def _check_merge(existing: pa.Field, new: pa.Field, path: tuple[str, ...]) -> None:
    """Check that all of a field is new: fields of a struct that exists, or of a list of such."""
    old_type, new_type = existing.type, new.type
    if _is_list(old_type) and _is_list(new_type):
        _check_merge(old_type.value_field, new_type.value_field, path)
        return
    if not (pa.types.is_struct(old_type) and pa.types.is_struct(new_type)):
        raise invalid(f"Column '{paths.canonical(path)}' exists already, or is named twice")
    known = {field.name: field for field in old_type}
    _require_single(new_type, path)
    for field in new_type:
        inner = (*path, field.name)
        check_name(field.name, is_nested=True)
        if field.name in known:
            _check_merge(known[field.name], field, inner)
        elif not field.nullable:
            # Lance would commit it, and could read no row afterwards.
            raise invalid(f"Field '{paths.canonical(inner)}' must be nullable, like all new fields")


def _require_single(fields: Iterable[pa.Field], path: tuple[str, ...]) -> None:
    names = [field.name for field in fields]
    twice = next((name for name in names if names.count(name) > 1), None)
    if twice is not None:
        raise invalid(f"Field '{paths.canonical([*path, twice])}' is named twice")


def _is_list(type_: pa.DataType) -> bool:
    return bool(pa.types.is_list(type_) or pa.types.is_large_list(type_))


# -- computed columns ------------------------------------------------------------------------------

COMPUTED = "computed_column"
KIND, EXPRESSION, INPUTS = f"{COMPUTED}.kind", f"{COMPUTED}.expression", f"{COMPUTED}.inputs"
SQL_KIND = "sql"

_ENGINE_OPTIONS = (
    "concurrency",
    "intra_applier_concurrency",
    "min_checkpoint_size",
    "max_checkpoint_size",
    "batch_checkpoint_flush_interval_seconds",
    "read_version",
    "task_size",
    "num_frags",
    "checkpoint_size",
    "commit_granularity",
    "cluster",
    "manifest",
)
_COMMON_OPTIONS = ("concurrency", "checkpoint_size")
"""The number of concurrent tasks, and of rows that each computes at once."""


def declare_computed(name: str, dtype: pa.DataType, expression: str, names: list[str]) -> pa.Field:
    """Return the field of a computed column.

    Args:
        names: The names of the table's columns.
    """
    inputs = json.dumps(expressions.columns_in(expression, names))
    metadata = {COMPUTED: "true", KIND: SQL_KIND, EXPRESSION: expression, INPUTS: inputs}
    return pa.field(name, dtype, nullable=True, metadata=metadata)


def is_declaration(key: str) -> bool:
    """Return whether a key of a field's metadata defines how the column is computed."""
    return key == COMPUTED or key.startswith(f"{COMPUTED}.")


def require_plain(column: Column) -> None:
    """Refuse a change of a computed column that would break its expression.

    Raises InvalidInput (13).
    """
    if paths.metadata_of(column).get(COMPUTED) == "true":
        raise invalid(
            f"Column '{column.path}' is computed: to change its type or how it is computed, drop "
            "it and add it again"
        )


def require_unread(
    dataset: lance.LanceDataset, changed: Sequence[Column], dropped: Sequence[Column] = ()
) -> None:
    """Refuse to drop, rename or retype a column that a remaining computed column reads.

    Args:
        changed: The columns to drop, rename or retype.
        dropped: Those of them that do not remain.

    Raises:
        InvalidInputError: (13)
    """
    whole = {column.name for column in dropped if not column.parent}
    roots = {column.segments[0]: column for column in changed}
    for column in paths.walk(dataset):
        if column.parent or column.name in whole:
            continue
        metadata = paths.metadata_of(column)
        if metadata.get(COMPUTED) != "true":
            continue
        names = paths.siblings(dataset, ())
        for name in expressions.columns_in(metadata.get(EXPRESSION, ""), names):
            if name in roots:
                raise invalid(
                    f"Column '{roots[name].path}' is read by computed column '{column.path}': "
                    "drop that column first"
                )


def backfill(table: Table, ref: Ref, request: AlterTableBackfillColumnsRequest) -> str:
    """Compute a computed column for all rows, or for those where ``where`` holds, in one commit.

    It is complete on return. The job's identifier is that of its transaction. Other columns and
    their indices do not change. Source: AlterTableBackfillColumns.

    Raises:
        TableColumnNotFoundError: (12)
        InvalidInputError: (13) the column is not computed, or the expression no longer fits the
            table or fails on a row.
        UnsupportedOperationError: (0) the column is not computed by SQL.
        ConcurrentModificationError: (14)
    """
    dataset = table.open(ref, write=True)
    column, expression = _check_backfill(dataset, table, request)
    with table.committing(dataset, f"column '{column.path}' was not filled"):
        job, version = _commit_backfill(dataset, column, expression, request.where)
    table.note_commit(int(dataset.version), version, job, ref.branch)
    return job


def plan_backfill(table: Table, ref: Ref, request: AlterTableBackfillColumnsRequest) -> Backfill:
    """Return the checked backfill for a compute engine. Raises what `backfill` does."""
    dataset = table.open(ref, write=True)
    column, expression = _check_backfill(dataset, table, request)
    return Backfill(
        column.name, expression, request.where, request.concurrency, request.checkpoint_size
    )


def refuse_backfill_options(request: AlterTableBackfillColumnsRequest, *, has_engine: bool) -> None:
    """Refuse options that need a compute engine, or that this engine does not support.

    Raises:
        UnsupportedOperationError: (0)
        InvalidInputError: (13) a number is not positive.
    """
    for name in _ENGINE_OPTIONS:
        value = getattr(request, name)
        if value is None:
            continue
        if not has_engine:
            raise unsupported(
                f"{name} is not supported: it is for a compute engine. Without one, columns "
                "are computed from the latest version in one commit; "
                "lance_bridge_spark.register(spark) makes a Spark session that engine"
            )
        if name not in _COMMON_OPTIONS:
            raise unsupported(
                f"{name} is not supported: the engine computes each fragment of the latest "
                f"version in a task, and commits once; it takes {' and '.join(_COMMON_OPTIONS)}"
            )
        if value < 1:
            raise invalid(f"{name} must be 1 or more, not {value}")


def _check_backfill(
    dataset: lance.LanceDataset, table: Table, request: AlterTableBackfillColumnsRequest
) -> tuple[Column, str]:
    """Return the column and its expression, checked to fit the table."""
    column = paths.find_column(dataset, table, request.column)
    expression = _expression(column)
    found = expressions.types_of(dataset, table.name, {column.name: expression})[column.name]
    if found != column.field.to_arrow().type:
        raise invalid(
            f"The expression of column '{column.path}' has type {found}, which is not the column's"
        )
    if request.where is not None:
        expressions.check_predicate(dataset, table.name, request.where, "where")
    return column, expression


def _expression(column: Column) -> str:
    metadata = paths.metadata_of(column)
    if metadata.get(COMPUTED) != "true":
        raise invalid(
            f"Column '{column.path}' is not computed: only a column that AlterTableAddColumns "
            "added with computed has an expression to fill it with"
        )
    if metadata.get(KIND, SQL_KIND) != SQL_KIND or EXPRESSION not in metadata:
        raise unsupported(
            f"Column '{column.path}' is computed by {metadata.get(KIND)!r}, not by a SQL "
            "expression: that needs a compute engine"
        )
    return metadata[EXPRESSION]


def _commit_backfill(
    dataset: lance.LanceDataset, column: Column, expression: str, where: str | None
) -> tuple[str, int]:
    """Write the column's new values next to each fragment, and commit them together."""
    updated = []
    wanted = {column.name: expression, "_rowid": "_rowid"}
    read = columns_read(dataset.schema.names, wanted, where)
    for fragment in dataset.get_fragments():
        scan = partial(
            fragment.scanner, filter=where, **scan_limits(dataset, read, fragments=[fragment])
        )
        if where is not None and not scan(columns=[], with_row_id=True).count_rows():
            continue
        rows = scan(columns=wanted).to_reader()
        # Lance fills omitted rows with null, even if the expression is never null.
        rows = rows.cast(pa.schema([field.with_nullable(True) for field in rows.schema]))
        updated.append(fragment.update_columns(rows, left_on="_rowid", right_on="_rowid")[0])
    changed = paths.field_ids(dataset, [column.name]) if updated else []
    operation = lance.LanceOperation.Update(updated_fragments=updated, fields_modified=changed)
    transaction = lance.Transaction(
        read_version=dataset.version, operation=operation, uuid=str(uuid.uuid4())
    )
    committed = lance.LanceDataset.commit(dataset, transaction)
    return str(transaction.uuid), int(committed.version)
