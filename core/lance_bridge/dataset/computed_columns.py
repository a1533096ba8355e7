"""Computed columns: a SQL expression kept in a column's metadata, and the backfill that fills it.

The keys are those that LanceDB writes, so that each implementation finds the other's columns.
"""

from __future__ import annotations

import json
import uuid
from collections.abc import Sequence

import lance
import pyarrow as pa
from lance_namespace import AlterTableBackfillColumnsRequest

from ..engine import Backfill
from ..errors import invalid, unsupported
from ..requests import Ref
from ..table import Table
from . import expressions, paths
from .paths import Column

FLAG = "computed_column"
KIND, EXPRESSION, INPUTS = f"{FLAG}.kind", f"{FLAG}.expression", f"{FLAG}.inputs"
SQL = "sql"

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


def declare(name: str, dtype: pa.DataType, expression: str, names: list[str]) -> pa.Field:
    """Return the field of a computed column.

    Args:
        names: The names of the table's columns.
    """
    inputs = json.dumps(expressions.columns_in(expression, names))
    metadata = {FLAG: "true", KIND: SQL, EXPRESSION: expression, INPUTS: inputs}
    return pa.field(name, dtype, nullable=True, metadata=metadata)


def is_declaration(key: str) -> bool:
    """Return whether a key of a field's metadata defines how the column is computed."""
    return key == FLAG or key.startswith(f"{FLAG}.")


def require_plain(column: Column) -> None:
    """Refuse a change of a computed column that would break its expression.

    Raises InvalidInput (13).
    """
    if paths.metadata_of(column).get(FLAG) == "true":
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
        if metadata.get(FLAG) != "true":
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
    column, expression = _check_request(dataset, table, request)
    with table.committing(dataset, f"column '{column.path}' was not filled"):
        job, version = _commit(dataset, column, expression, request.where)
    table.note_commit(int(dataset.version), version, job, ref.branch)
    return job


def plan(table: Table, ref: Ref, request: AlterTableBackfillColumnsRequest) -> Backfill:
    """Return the checked backfill for a compute engine. Raises what `backfill` does."""
    dataset = table.open(ref, write=True)
    column, expression = _check_request(dataset, table, request)
    return Backfill(
        column.name, expression, request.where, request.concurrency, request.checkpoint_size
    )


def refuse_options(request: AlterTableBackfillColumnsRequest, *, has_engine: bool) -> None:
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


def _check_request(
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
    if metadata.get(FLAG) != "true":
        raise invalid(
            f"Column '{column.path}' is not computed: only a column that AlterTableAddColumns "
            "added with computed has an expression to fill it with"
        )
    if metadata.get(KIND, SQL) != SQL or EXPRESSION not in metadata:
        raise unsupported(
            f"Column '{column.path}' is computed by {metadata.get(KIND)!r}, not by a SQL "
            "expression: that needs a compute engine"
        )
    return metadata[EXPRESSION]


def _commit(
    dataset: lance.LanceDataset, column: Column, expression: str, where: str | None
) -> tuple[str, int]:
    """Write the column's new values next to each fragment, and commit them together."""
    updated = []
    for fragment in dataset.get_fragments():
        if where is not None and not fragment.count_rows(filter=where):
            continue
        rows = fragment.scanner(
            columns={column.name: expression, "_rowid": "_rowid"}, filter=where
        ).to_reader()
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
