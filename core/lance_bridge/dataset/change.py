"""Changing rows in place: update and delete."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import lance
import pyarrow as pa
from lance_namespace.errors import LanceNamespaceError

from ..errors import unsupported
from ..records import check_properties
from ..requests import Ref
from ..table import Table, transaction_id
from . import expressions, paths
from .arrow_compat import empty_reader


@dataclass(frozen=True)
class Update:
    """What to set, and in which rows. Source: UpdateTable."""

    updates: Sequence[Sequence[str]]
    """Pairs of a field path and an expression (SQL) over the old values."""
    predicate: str | None = None
    properties: Mapping[str, str] | None = None
    """Added to the properties of the entry, after the rows are updated."""


@dataclass(frozen=True)
class Updated:
    """What an update did. Properties are None if the request had none."""

    rows: int
    version: int
    transaction_id: str | None
    properties: Mapping[str, str] | None


@dataclass(frozen=True)
class Deleted:
    """What a delete did."""

    rows: int
    version: int
    transaction_id: str | None


def delete_rows(table: Table, predicate: str, ref: Ref) -> Deleted:
    """Delete the rows for which ``predicate`` (SQL) holds.

    Source: DeleteFromTable. A version is created even if no row matches.

    Raises:
        TableColumnNotFoundError: (12) the predicate names a column that does not exist.
        InvalidInputError: (13) the predicate is not one expression of SQL, or fails on a row;
            nothing is changed.
        ConcurrentModificationError: (14) other writers kept changing the same rows.
        InvalidTableStateError: (19) the table holds no data yet.
        TableBranchNotFoundError: (22)
    """
    dataset = table.open(ref, write=True)
    expressions.check_predicate(dataset, table.name, predicate)
    with table.committing(dataset):
        counts = dataset.delete(predicate)
    rows = int(counts["num_deleted_rows"])
    return Deleted(rows, int(dataset.version), transaction_id(dataset, table))


def update(table: Table, wanted: Update, ref: Ref) -> Updated:
    """Set columns to expressions, in all rows or in those that match. Source: UpdateTable.

    As everywhere in Lance, integers overflow silently, and a value is cast to the type of its
    column if possible.

    Raises:
        UnsupportedOperationError: (0) a nested field, which Lance cannot update alone, an
            expression that reads another updated column, or properties that cannot change.
        TableColumnNotFoundError: (12) a column to update, or one that is read, does not exist.
        InvalidInputError: (13) no updates, a column twice, or a predicate or expression that is
            malformed or fails on a row; nothing is changed.
        ConcurrentModificationError: (14) other writers kept changing the same rows.
        InvalidTableStateError: (19) the table holds no data yet.
        TableBranchNotFoundError: (22)
    """
    properties = _check_properties(table, wanted.properties)
    dataset = table.open(ref, write=True)
    values = _check_expressions(dataset, table, wanted.updates)
    if wanted.predicate is not None:
        expressions.check_predicate(dataset, table.name, wanted.predicate)
    with table.committing(dataset):
        counts = dataset.update(values, where=wanted.predicate)
    version = int(dataset.version)
    if properties is not None:
        properties = _add_properties(table, properties, version)
    transaction = transaction_id(dataset, table)
    return Updated(int(counts["num_rows_updated"]), version, transaction, properties)


# -- properties ------------------------------------------------------------------------------------


def _check_properties(table: Table, properties: Mapping[str, str] | None) -> dict[str, str] | None:
    """Return the properties to add, checked to be storable."""
    if properties is None:
        return None
    wanted = check_properties(properties)
    table.require_settable({**table.properties, **wanted})
    return wanted


def _add_properties(table: Table, wanted: Mapping[str, str], version: int) -> dict[str, str]:
    """Add properties to those that the entry has after the update. Return all of them."""
    try:
        return table.add_properties(wanted).properties
    except LanceNamespaceError as error:
        raise type(error)(
            f"The rows of '{table.name}' are updated, as version {version}, but its "
            f"properties could not be stored: {error}"
        ) from error


# -- columns and expressions -----------------------------------------------------------------------


def _check_expressions(
    dataset: lance.LanceDataset, table: Table, updates: Sequence[Sequence[str]]
) -> dict[str, str]:
    """Return the expression of each column, checked by planning it."""
    columns = paths.find_columns(dataset, table, [path for path, _ in updates])
    for column in columns:
        if column.parent:
            raise unsupported(
                f"Lance cannot update '{column.path}' alone: it is inside '{column.segments[0]}'. "
                "Update that column with named_struct(…)"
            )
    found = {each.name: sql for each, (_, sql) in zip(columns, updates, strict=True)}
    expressions.types_of(dataset, table.name, found)
    _require_independent(dataset, found)
    return found


def _require_independent(dataset: lance.LanceDataset, found: Mapping[str, str]) -> None:
    """Check that no expression reads a column that another one sets.

    Lance sets them one by one in any order, so an expression could read old or new values.
    """
    for name, expression in found.items():
        others = found.keys() - {name}
        # A name may be a SQL keyword: the expression then has a plan without these columns.
        if not expressions.columns_in(expression, sorted(others)):
            continue
        left = pa.schema([field for field in dataset.schema if field.name not in others])
        without_others = lance.write_dataset(empty_reader(left), "memory://")
        try:
            expressions.types_of(without_others, "", {name: expression})
        except LanceNamespaceError as error:
            raise unsupported(
                f"Lance cannot update '{name}' to {expressions.quote(expression)} while it updates "
                f"columns that this reads: {', '.join(sorted(others))}. Update them one by one"
            ) from error
