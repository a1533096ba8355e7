"""The cutover: rename a table to its final name once it has all rows of its source."""

from __future__ import annotations

from typing import Any

from lance_namespace.errors import ConcurrentModificationError, InvalidTableStateError

from lance_bridge.catalog import Path
from lance_bridge.errors import display, table_not_found
from lance_bridge.tables import Tables
from lance_bridge_spark.jobs.engine import address_in

from ..migration import Work
from ..plan import Facts, Problem, blocker
from ..spark import changes, completeness, schema
from ..spark.session import become_active, spark_errors
from ..spark.sources import SourceTable
from ..spark.writing import read_back
from .incremental import CatchUpFacts, CatchUpOptions, describe_latest, final_path, is_table_of

_NEXT = "Stop the writers of the source, and run another increment with --switch-to"


def name_problems(tables: Tables, path: Path, final: Path) -> list[Problem]:
    """Return the problems that prevent renaming a table to its final name."""
    if path == final:
        return [blocker(f"It already has the name '{final[-1]}': choose another to switch to")]
    if tables.find(tables.path_of(final)) is not None:
        return [blocker(f"The name to switch to, '{display(final)}', already exists")]
    return []


def _is_at(work: Work, path: Path) -> bool:
    """Return whether the entry at a path is that of the plan's table."""
    return is_table_of(work.item, work.target_tables.find(path))


def switch(work: Work) -> Facts:
    """Rename the table, unless an earlier run did.

    Raises:
        InvalidInputError: (13) the session skips files that it cannot read.
        ConcurrentModificationError: (14) source and table have different rows.
        LanceNamespaceError: What renaming raises.
    """
    path, final = work.item.target, final_path(work.item)
    if _is_at(work, path):
        has_both = work.is_repeated and _is_at(work, final)
        if not has_both:
            _require_nothing_new(work)
        _rename(work.target_tables, path, final, has_both=has_both)
    elif not _is_at(work, final):
        raise table_not_found(path)
    return {"switched": True}


def _rename(tables: Tables, path: Path, new_path: Path, *, has_both: bool) -> None:
    """Rename a table, or drop its old entry if an earlier run died before that.

    Args:
        has_both: Whether both names have entries of the table.
    """
    if has_both:
        tables.load(path).remove()
    else:
        tables.rename(path, new_path)


def _require_nothing_new(work: Work) -> None:
    """Raise ConcurrentModification (14) if source and table have different rows.

    Raises InvalidInput (13) if the session skips files, whose rows would count as deleted.
    """
    spark, item, facts = work.endpoints.source, work.item, CatchUpFacts.of(work.item)
    become_active(spark)
    completeness.require_no_skipped_files(spark)
    now = describe_latest(spark, facts.source)
    address = address_in(work.endpoints.target, item.target)
    target = read_back(spark, address, int(work.facts["version"]))
    difference, advice = _difference(spark, facts, work.options, now, target)
    if difference:
        raise ConcurrentModificationError(
            f"'{display(item.source)}' does not match the table '{item.name}': {difference}. The "
            f"table keeps its name. {advice}"
        )


def _difference(
    spark: Any, facts: CatchUpFacts, options: CatchUpOptions, now: SourceTable, target: Any
) -> tuple[str, str]:
    """Return how source and table differ, or "", and advice for the user."""
    if now.snapshot != facts.source.snapshot:
        return (
            f"snapshot {now.snapshot} is newer than {facts.source.snapshot}, which was read",
            _NEXT,
        )
    if not changes.same_columns(facts.source, now):
        return "its columns changed", _NEXT
    source = facts.as_target(now.read(spark))
    # The table has the columns' new names.
    partitions = tuple(schema.renamed(now.partitions, facts.renames))
    by_name = now.model_copy(update={"partitions": partitions})
    found = _pending_changes(options, source, target, by_name)
    if found:
        return found, _NEXT
    with spark_errors(f"The rows of '{now.name}' cannot be counted"):
        here, there = source.count(), target.count()
    if here == there:
        return "", ""
    text = f"it has {here} rows, and the table {there}"
    return text, _advice(options, now, here - there)


def _pending_changes(options: CatchUpOptions, source: Any, target: Any, now: SourceTable) -> str:
    """Return a description of what the next increment would add, or ""."""
    if options.by == "column":
        found = changes.column_range(source, target, str(options.column))
        if found.rows:
            return f"{found.rows} rows have a greater value of '{options.column}'"
        if found.nulls != found.target_nulls:
            nulls = f"in {found.nulls} rows, and in {found.target_nulls} of the table"
            return f"'{options.column}' is null {nulls}"
    elif options.by == "partition":
        range = changes.partition_range(source, target, now.partitions).range
        count = len(range.new) + len(range.changed)
        if count:
            return f"{count} partitions have other numbers of rows"
    return ""


def _advice(options: CatchUpOptions, now: SourceTable, more: int) -> str:
    """Return advice about a difference that an increment of this kind may not detect."""
    if options.by != "column":
        return _NEXT
    if more > 0:
        return (
            f"{_NEXT}. If that fails in the same way, rows arrived late, with values that were "
            "passed already, which a column does not show: convert the table again, to another name"
        )
    ways = []
    if now.has_snapshots:
        ways.append("by snapshot with --key")
    if now.partitions:
        ways.append("by partition with --key")
    another = f"run an increment {' or '.join(ways)}, or " if ways else ""
    return (
        "Rows were deleted in the source, which a column does not show, so that another increment "
        f"by column would fail in the same way: {another}convert the table again, to another name"
    )


def check_switch_back(work: Work) -> None:
    """Raise InvalidTableState (19) if another table has taken the original name."""
    path = work.item.target
    is_switched = _is_at(work, final_path(work.item)) and not _is_at(work, path)
    if is_switched and work.target_tables.find(path) is not None:
        raise InvalidTableStateError(
            f"The name '{work.item.name}' is already used by another table"
        )


def switch_back(work: Work) -> None:
    """Rename the table back to its original name."""
    path, final = work.item.target, final_path(work.item)
    check_switch_back(work)
    if _is_at(work, final):
        _rename(work.target_tables, final, path, has_both=_is_at(work, path))
