"""The switch-over: a table gets its final name once it has all rows of its source."""

from __future__ import annotations

from typing import Any

from lance_namespace.errors import ConcurrentModificationError, InvalidTableStateError

from lance_bridge.bridge import Bridge
from lance_bridge.catalog import Path
from lance_bridge.entries.rename import rename
from lance_bridge.entries.tables import drop_entry, load_lance
from lance_bridge.errors import display, table_not_found

from .. import targets
from ..plan import Facts, Problem, blocker
from ..spark import changes, schema
from ..spark.session import become_active, told_by_spark
from ..spark.sources import SourceTable
from ..spark.writing import address_at, read_back
from .catalogs import target_bridge
from .rounds import CatchUpWork, final_path, is_table_of, latest_of

_NEXT_ROUND = "Stop the writers of the source, and make another round with the switch-over"


def problems(bridge: Bridge, path: Path, final: Path) -> list[Problem]:
    """Return what keeps a table from getting its final name."""
    if path == final:
        return [blocker(f"It is called '{final[-1]}' already: choose another name to switch to")]
    if targets.found(bridge, targets.path_in(bridge, final)) is not None:
        return [blocker(f"The name to switch to, '{display(final)}', is taken")]
    return []


def _is_at(work: CatchUpWork, bridge: Bridge, path: Path) -> bool:
    """Return whether a name is that of the table of the plan."""
    return is_table_of(work.item, targets.found(bridge, path))


def switch(work: CatchUpWork) -> Facts:
    """Rename the table, or find that an earlier run did.

    Raises:
        ConcurrentModificationError: (14) the source has other rows than the table.
        LanceNamespaceError: What renaming raises.
    """
    bridge, path, final = target_bridge(work), work.item.target, final_path(work.item)
    if _is_at(work, bridge, path):
        is_begun = work.is_repeated and _is_at(work, bridge, final)
        if not is_begun:
            _require_nothing_new(work)
        _rename(bridge, path, final, is_begun=is_begun)
    elif not _is_at(work, bridge, final):
        raise table_not_found(path)
    return {"switched": True}


def _rename(bridge: Bridge, path: Path, new_path: Path, *, is_begun: bool) -> None:
    """Rename a table; or end it where an earlier run died between copying and dropping its entry.

    Args:
        is_begun: Whether the table has both names.
    """
    if is_begun:
        drop_entry(bridge, load_lance(bridge, path))
    else:
        rename(bridge, path, new_path)


def _require_nothing_new(work: CatchUpWork) -> None:
    """Raise ConcurrentModification (14) where the source has other rows than the round has read."""
    spark, item = work.ends.source, work.item
    become_active(spark)
    planned = SourceTable.model_validate(item.facts["source"])
    now = latest_of(spark, planned)
    address = address_at(work.ends.target, item.target)
    target = read_back(spark, address, int(work.facts["version"]))
    difference, advice = _difference(work, planned, now, target)
    if difference:
        raise ConcurrentModificationError(
            f"'{display(item.source)}' is not what the table '{item.name}' has: {difference}. It "
            f"keeps its name. {advice}"
        )


def _difference(
    work: CatchUpWork, planned: SourceTable, now: SourceTable, target: Any
) -> tuple[str, str]:
    """Return what the source or the table has and the other has not, and what to do; or ""."""
    seen = _seen_difference(work, planned, now, target)
    if seen:
        return seen, _NEXT_ROUND
    source = schema.as_target(now.read(work.ends.source), work.item.facts)
    with told_by_spark(f"The rows of '{display(work.item.source)}' cannot be counted"):
        here, there = source.count(), target.count()
    if here == there:
        return "", ""
    return f"it has {here} rows, and the table {there}", _advice(work, now, here - there)


def _seen_difference(work: CatchUpWork, planned: SourceTable, now: SourceTable, target: Any) -> str:
    """Return what the next round would take, or ""."""
    options = work.options
    if now.snapshot != planned.snapshot:
        return f"it has snapshot {now.snapshot}, and the round has read {planned.snapshot}"
    if not changes.same_columns(planned, now):
        return "its columns changed"
    source = schema.as_target(now.read(work.ends.source), work.item.facts)
    if options.by == "column":
        found = changes.column_since(source, target, str(options.column))
        if found.rows:
            return f"{found.rows} rows have a greater value of '{options.column}'"
        if found.nulls != found.target_nulls:
            return f"{found.nulls} rows have no '{options.column}', and {found.target_nulls} there"
    elif options.by == "partition":
        found = changes.partitions_since(source, target, now.partitions)
        if found.since.new or found.since.changed:
            count = len(found.since.new) + len(found.since.changed)
            return f"{count} partitions have other numbers of rows"
    return ""


def _advice(work: CatchUpWork, now: SourceTable, more: int) -> str:
    """Return what to do about rows that no round of this way of catching up would see."""
    options = work.options
    if options.by != "column":
        return _NEXT_ROUND
    if more > 0:
        return (
            f"{_NEXT_ROUND}. If that ends like this one, rows came with values that were passed "
            "already, which a column does not show: convert the table again, to another name"
        )
    ways = []
    if now.has_snapshots:
        ways.append("by snapshot with --key")
    if now.partitions:
        ways.append("by partition with --key")
    another = f"make a round {' or '.join(ways)}, or " if ways else ""
    return (
        "Rows were deleted in the source, which a column does not show, and another round by "
        f"column would end like this one: {another}convert the table again, to another name"
    )


def require_switchable_back(work: CatchUpWork) -> None:
    """Raise InvalidTableState (19) where another table has the name that it would get back."""
    bridge, path = target_bridge(work), work.item.target
    is_switched = _is_at(work, bridge, final_path(work.item)) and not _is_at(work, bridge, path)
    if is_switched and targets.found(bridge, path) is not None:
        raise InvalidTableStateError(f"The name '{work.item.name}' is taken by another table")


def switch_back(work: CatchUpWork) -> None:
    """Give the table its name back."""
    bridge, path, final = target_bridge(work), work.item.target, final_path(work.item)
    require_switchable_back(work)
    if _is_at(work, bridge, final):
        _rename(bridge, final, path, is_begun=_is_at(work, bridge, path))
