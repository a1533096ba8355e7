"""Changing rows of a table: update, delete, and merge insert.

MergeInsertIntoTable matches rows with those of the table by key: matched rows are updated or
deleted, and the others inserted.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import timedelta

import lance
import pyarrow as pa
from lance.dataset import MergeInsertBuilder
from lance_namespace.errors import (
    ConcurrentModificationError,
    LanceNamespaceError,
    TableSchemaValidationError,
)
from tenacity import (
    Retrying,
    retry_if_exception_type,
    stop_after_attempt,
    stop_after_delay,
    stop_any,
    wait_random_exponential,
)

from ..errors import LANCE_ERRORS, concurrent_modification, invalid, panics_as_errors, unsupported
from ..records import check_properties
from ..requests import Ref
from ..table import Table, transaction_id
from . import expressions, paths
from .arrow_compat import empty_reader
from .insert import open_or_none, require_fit, write_first_or_retry
from .rows import Rows


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


# -- properties of updates -------------------------------------------------------------------------


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


# -- columns and expressions of updates ------------------------------------------------------------


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


# -- merge insert ----------------------------------------------------------------------------------

_ATTEMPTS = 11
_RETRY_TIME = timedelta(seconds=30)
"""How often, and for how long, a merge is retried: Lance's own limits."""

_PART = 2**20
"""About how many bytes of rows are passed to Lance at once."""

_DURATION = re.compile(r"(\d+(?:\.\d+)?)(us|ms|s|m|h|d)")
_UNITS = {
    "us": "microseconds",
    "ms": "milliseconds",
    "s": "seconds",
    "m": "minutes",
    "h": "hours",
    "d": "days",
}


@dataclass(frozen=True)
class Merge:
    """What to do with rows whose key is or is not in the table. Source: MergeInsertIntoTable.

    A key matches if all its fields are equal; null equals nothing, NaN equals itself. A condition
    (SQL) implies its action, as in pylance's directory namespace.
    """

    on: Sequence[str] | None
    update_matched: bool = False
    update_condition: str | None = None
    """Names columns as ``source.x`` (of the new rows) and ``target.x`` (of the table)."""
    insert_unmatched: bool = False
    delete_by_source: bool = False
    delete_condition: str | None = None
    """Names columns of the table."""
    use_index: bool = False
    timeout: timedelta | None = None

    @property
    def updates(self) -> bool:
        return self.update_matched or self.update_condition is not None

    @property
    def deletes(self) -> bool:
        return self.delete_by_source or self.delete_condition is not None

    def builder(self, dataset: lance.LanceDataset) -> MergeInsertBuilder:
        """Return pylance's builder for this merge."""
        builder = dataset.merge_insert(list(self.on or []))
        if self.updates:
            builder = builder.when_matched_update_all(_in_brackets(self.update_condition))
        if self.insert_unmatched:
            builder = builder.when_not_matched_insert_all()
        if self.deletes:
            builder = builder.when_not_matched_by_source_delete(_in_brackets(self.delete_condition))
        if self.timeout is not None:
            builder = builder.retry_timeout(self.timeout)
        return builder.use_index(self.use_index)


def _in_brackets(condition: str | None) -> str | None:
    return None if condition is None else expressions.in_brackets(condition)


@dataclass(frozen=True)
class Merged:
    """What a merge did."""

    version: int
    transaction_id: str | None = None
    updated: int = 0
    inserted: int = 0
    deleted: int = 0


def parse_timeout(text: str | None) -> timedelta | None:
    """Return a duration such as ``30s``, ``1.5m`` or ``1h30m``, or None without a text.

    Raises:
        InvalidInputError: (13) it is not a duration above zero.
    """
    if text is None:
        return None
    parts = _DURATION.findall(text)
    try:
        found = sum((timedelta(**{_UNITS[u]: float(n)}) for n, u in parts), timedelta())
    except OverflowError:
        found = timedelta()
    if "".join(n + u for n, u in parts) != text or not found:
        raise invalid(f"timeout {text[:60]!r} is not a duration such as '30s' or '5m'")
    return found


def merge(table: Table, rows: Rows, wanted: Merge, ref: Ref) -> Merged:
    """Merge rows into a table, in one commit. Source: MergeInsertIntoTable.

    Rows with the same new key are all inserted; two rows cannot both update one row of the table.
    Columns may be omitted: updated rows keep their values, new rows get null. A declared table
    gets its first version, with all rows.

    Raises:
        UnsupportedOperationError: (0) a field of the key is nested, or a condition calls a function
            of ``source.x`` or ``target.x``.
        TableColumnNotFoundError: (12) a field of the key, or of a condition, does not exist.
        InvalidInputError: (13) bad rows, nothing to do, a condition that is malformed or fails on a
            row, two rows for one of the table, or, with an index, a new row whose key is null;
            nothing is changed.
        ConcurrentModificationError: (14) other writers kept changing the same rows.
        ServiceUnavailableError: (17) also if the rows did not arrive within the timeout.
        TableSchemaValidationError: (20) the rows do not fit the table's schema.
        TableBranchNotFoundError: (22)
    """
    _check_actions(wanted)
    if wanted.timeout is not None:
        rows.deadline = time.monotonic() + wanted.timeout.total_seconds()
    if not rows.is_repeatable:
        return _merge_once(table, rows, wanted, ref)
    # Lance would keep a copy of the rows to retry by itself.
    seconds = (wanted.timeout or _RETRY_TIME).total_seconds()
    attempts = Retrying(
        retry=retry_if_exception_type(ConcurrentModificationError),
        stop=stop_any(stop_after_attempt(_ATTEMPTS), stop_after_delay(seconds)),
        wait=wait_random_exponential(0.05, max=1),
        reraise=True,
    )
    for attempt in attempts:
        with attempt:
            if attempt.retry_state.attempt_number > 1:
                table = table.refreshed()
            return _merge_once(table, rows, wanted, ref)
    raise concurrent_modification(table.path)  # not reached: the last attempt raises


def _merge_once(table: Table, rows: Rows, wanted: Merge, ref: Ref) -> Merged:
    dataset = open_or_none(table, ref)
    if dataset is None:
        rows.require_storable()
        like_rows = lance.write_dataset(empty_reader(rows.schema), "memory://")
        _require_key(table, like_rows, rows.schema, wanted.on or ())
        _require_plan(table, like_rows, rows.schema, wanted)
        return write_first_or_retry(
            table,
            rows,
            lambda now: _merge_once(now, rows, wanted, ref),
            lambda count, version: Merged(version, inserted=count),
        )
    _require_key(table, dataset, rows.schema, wanted.on or ())
    _require_conditions(table, dataset, wanted)
    if _nested_key(wanted) is not None:
        _require_plan(table, dataset, rows.schema, wanted)
    return _execute(table, dataset, rows, wanted)


def _execute(table: Table, dataset: lance.LanceDataset, rows: Rows, wanted: Merge) -> Merged:
    def check_input() -> None:
        # Only after a failure, because it repeats the planning of the merge.
        _require_plan(table, dataset, rows.schema, wanted)
        require_fit(table, rows.schema, _merged_schema(rows.schema, dataset.schema, wanted))

    with table.committing(dataset, rows=rows, check_input=check_input):
        reader = rows.reader(into=dataset.schema, check=_null_key_check(dataset, rows, wanted))
        if not wanted.insert_unmatched and not dataset.count_rows():
            # Lance would not read all rows, and would miss bad ones.
            for _ in reader:
                pass
            reader = empty_reader(reader.schema)
        reader = split_batches(reader)
        builder = wanted.builder(dataset)
        if rows.is_repeatable:
            builder = builder.conflict_retries(0)
        counts = builder.execute(reader)
    return Merged(
        int(dataset.version),
        transaction_id(dataset, table),
        updated=counts["num_updated_rows"],
        inserted=counts["num_inserted_rows"],
        deleted=counts["num_deleted_rows"],
    )


def _null_key_check(
    dataset: lance.LanceDataset, rows: Rows, wanted: Merge
) -> Callable[[pa.RecordBatch], None] | None:
    """Return a check for each batch if Lance would lose new rows whose key is null, else None.

    An index has no nulls, so a merge by index does not recognize these rows as new.
    """
    if not (wanted.use_index and wanted.insert_unmatched and dataset.describe_indices()):
        return None
    try:
        with panics_as_errors():
            wanted.builder(dataset).explain_plan(rows.schema)
    except LANCE_ERRORS:  # Lance has no plan to show if it reads an index
        columns = [paths.parse(path)[0] for path in wanted.on or ()]
    else:
        return None

    def check(batch: pa.RecordBatch) -> None:
        if any(batch.column(name).null_count for name in columns):
            raise invalid(
                "Rows whose key is null cannot be merged with an index: Lance would lose them. "
                "Set `use_index` to false"
            )

    return check


def split_batches(reader: pa.RecordBatchReader) -> pa.RecordBatchReader:
    """Split large batches: Lance holds several at once, for each of its threads."""

    def parts() -> Iterator[pa.RecordBatch]:
        for batch in reader:
            count = max(1, batch.num_rows * _PART // max(batch.nbytes, 1))
            for start in range(0, max(batch.num_rows, 1), count):
                yield batch.slice(start, count)

    return pa.RecordBatchReader.from_batches(reader.schema, parts())


def _merged_schema(rows: pa.Schema, table: pa.Schema, wanted: Merge) -> pa.Schema:
    """Return the schema that the rows must fit: without inserts, only the columns they have."""
    if wanted.insert_unmatched:
        return table
    return pa.schema([field for field in table if field.name in rows.names])


# -- checks of merge insert ------------------------------------------------------------------------


def _check_actions(wanted: Merge) -> None:
    if not wanted.on:
        raise invalid("The request names no columns to match rows by: set `on`")
    if not (wanted.updates or wanted.insert_unmatched or wanted.deletes):
        raise invalid(
            "The request asks for no action: set `when_matched_update_all`, "
            "`when_not_matched_insert_all` or `when_not_matched_by_source_delete`"
        )


def _require_conditions(table: Table, dataset: lance.LanceDataset, wanted: Merge) -> None:
    """Check in the conditions what Lance does not check reliably in a merge.

    Raises:
        TableColumnNotFoundError: (12)
        InvalidInputError: (13)
    """
    if wanted.update_condition is not None:
        bad = _describe_bad_condition(table, wanted)
        expressions.require_sound(wanted.update_condition, bad)
        tables = ("source", "target")
        names = dataset.schema.names
        expressions.require_unambiguous(names, wanted.update_condition, bad, tables)
    condition = wanted.delete_condition
    if condition is None:
        return

    def plan(sql: str) -> None:
        # A merge knows fewer columns than a scan, and accepts null as a condition.
        dataset.merge_insert(list(wanted.on or ())).when_not_matched_by_source_delete(sql)
        dataset.scanner(filter=sql).explain_plan()

    what = "when_not_matched_by_source_delete_filt"
    bad = expressions.does_not_fit(what, condition, table.name)
    expressions.require_unambiguous(dataset.schema.names, condition, bad)
    expressions.check(plan, condition, bad)


def _require_plan(
    table: Table, dataset: lance.LanceDataset, rows: pa.Schema, wanted: Merge
) -> None:
    """Check the merge by planning it; no rows are read.

    Raises:
        UnsupportedOperationError: (0)
        TableColumnNotFoundError: (12)
        InvalidInputError: (13)
        TableSchemaValidationError: (20)
    """
    _require_conditions(table, dataset, wanted)
    # Lance shows no plan for a merge with an index.
    bare = _without_conditions(replace(wanted, use_index=False))
    if wanted.update_condition is None:
        _require_plain_plan(table, dataset, rows, bare)
        return
    bad = _describe_bad_condition(table, wanted)

    def plan(condition: str) -> None:
        replace(bare, update_condition=condition).builder(dataset).explain_plan(rows)

    try:
        with panics_as_errors():
            plan(wanted.update_condition)
    except expressions.NOT_PLANNED as error:
        _require_plain_plan(table, dataset, rows, bare)
        missing = (expressions.find_missing_column(error) or "").replace('"', "`")
        if missing and expressions.find_problem(lambda: plan(f"{missing} is null"), bad) is None:
            raise unsupported(
                f"{bad}: Lance cannot evaluate a function of {missing} in a merge"
            ) from error
        raise expressions.to_plan_error(error, bad) from error


def _describe_bad_condition(table: Table, wanted: Merge) -> str:
    condition = wanted.update_condition or ""
    return expressions.does_not_fit("when_matched_update_all_filt", condition, table.name)


def _require_key(
    table: Table, dataset: lance.LanceDataset, rows: pa.Schema, on: Sequence[str]
) -> None:
    """Check that table and rows have the fields of the key."""
    for path in on:
        column = paths.find_column(dataset, table, path)
        if column.segments[0] not in rows.names:
            raise TableSchemaValidationError(
                f"The rows for table '{table.name}' lack a column of the key: '{path}'"
            )


def _nested_key(wanted: Merge) -> str | None:
    """Return a nested field of the key, or None."""
    return next((path for path in wanted.on or () if len(paths.parse(path)) > 1), None)


def _require_plain_plan(
    table: Table, dataset: lance.LanceDataset, rows: pa.Schema, bare: Merge
) -> None:
    """Check that a merge without conditions can be planned."""
    try:
        with panics_as_errors():
            bare.builder(dataset).explain_plan(rows)
    except expressions.NOT_PLANNED as error:
        require_fit(table, rows, _merged_schema(rows, dataset.schema, bare))
        nested = _nested_key(bare)
        if nested is not None:
            raise unsupported(f"Lance cannot match rows by a nested field: '{nested}'") from error
        raise expressions.to_plan_error(error, "The merge cannot be planned") from error


def _without_conditions(wanted: Merge) -> Merge:
    return replace(
        wanted,
        update_matched=wanted.updates,
        update_condition=None,
        delete_by_source=wanted.deletes,
        delete_condition=None,
    )
