"""The switch-over: a table gets its final name once it has all rows of its source."""

from __future__ import annotations

from lance_namespace.errors import ConcurrentModificationError, InvalidTableStateError

from ...bridge import Bridge
from ...catalog import Path
from ...entries.rename import rename
from ...entries.tables import load_lance
from ...errors import display
from .. import targets
from ..plan import Facts
from ..spark import changes, schema
from ..spark.session import become_active, told_by_spark
from ..spark.sources import SourceTable
from ..spark.writing import address_at, read_back
from ..targets import MARK
from .catalogs import target_bridge
from .rounds import CatchUpWork, latest_of


def final_path(work: CatchUpWork) -> Path:
    """Return the names that the table has after the switch-over."""
    return (*work.item.target[:-1], work.item.facts["switch_to"])


def _is_at(work: CatchUpWork, bridge: Bridge, path: Path) -> bool:
    """Return whether a name is that of the table of the plan."""
    record = targets.found(bridge, path)
    mark = work.facts.get("mark_of_table")
    return record is not None and mark is not None and record.properties.get(MARK) == mark


def switch(work: CatchUpWork) -> Facts:
    """Rename the table, or find that an earlier run did.

    Raises:
        ConcurrentModificationError: (14) the source has more rows than the round has read.
        LanceNamespaceError: What renaming raises.
    """
    bridge = target_bridge(work)
    if "mark_of_table" not in work.facts:
        work.note(mark_of_table=load_lance(bridge, work.item.target).properties.get(MARK))
    if not _is_at(work, bridge, final_path(work)):
        _require_nothing_new(work)
        rename(bridge, work.item.target, final_path(work))
    return {"switched": True}


def _require_nothing_new(work: CatchUpWork) -> None:
    """Raise ConcurrentModification (14) where the source has more than the round has read."""
    spark, item, options = work.ends.source, work.item, work.options
    become_active(spark)
    planned = SourceTable.model_validate(item.facts["source"])
    now = latest_of(spark, planned)
    frame = schema.cast(now.read(spark), item.facts["casts"])
    address = address_at(work.ends.target, item.target)
    target = read_back(spark, address, int(work.facts["version"]))
    if planned.has_snapshots:
        is_same = now.snapshot == planned.snapshot
    else:
        with told_by_spark(f"The rows of '{display(item.source)}' cannot be counted"):
            is_same = frame.count() == target.count()
        if options.by == "column":
            column = str(options.column)
            is_same &= changes.greatest(frame, column) == changes.greatest(target, column)
    if not is_same:
        raise ConcurrentModificationError(
            f"'{display(item.source)}' has other rows than the round has read: stop its writers, "
            "undo this round, and make another one"
        )


def require_switchable_back(work: CatchUpWork) -> None:
    """Raise InvalidTableState (19) where another table has the name that it would get back."""
    bridge = target_bridge(work)
    if (
        _is_at(work, bridge, final_path(work))
        and targets.found(bridge, work.item.target) is not None
    ):
        raise InvalidTableStateError(f"The name '{work.item.name}' is taken by another table")


def switch_back(work: CatchUpWork) -> None:
    """Give the table its name back."""
    bridge = target_bridge(work)
    require_switchable_back(work)
    if _is_at(work, bridge, final_path(work)):
        rename(bridge, final_path(work), work.item.target)
