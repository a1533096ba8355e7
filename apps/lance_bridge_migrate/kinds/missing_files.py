"""Sources whose files are missing when they are read, or when what was made of them is verified."""

from __future__ import annotations

from collections.abc import Iterator

from lance_namespace.errors import ConcurrentModificationError, InvalidTableStateError

from lance_bridge.errors import display

from ..journal import Check
from ..plan import Severity
from ..spark import completeness, listing
from ..spark.files import Size
from ..spark.session import become_active
from ..spark.sources import SourceTable
from ..targets import AnyWork


def require_whole(work: AnyWork) -> None:
    """Check that no file is missing that the plan or the catalog counts.

    Raises:
        InvalidInputError: (13) the session leaves out files that it cannot read.
        InvalidTableStateError: (19) files are missing.
        ConcurrentModificationError: (14) there is less than when the plan was made.
    """
    item, planned = work.item, work.item.facts.get("files")
    completeness.require_all_read(work.ends.source)
    missing, now = _missing_files(work)
    if missing:
        raise InvalidTableStateError(f"'{display(item.source)}' is not complete. {missing}")
    if planned and now is not None and now.bytes < planned["bytes"]:
        raise ConcurrentModificationError(
            f"'{display(item.source)}' has {now.bytes:,} bytes in {now.files:,} files, and had "
            f"{planned['bytes']:,} in {planned['files']:,} when the plan was made: files were "
            "deleted or rewritten. Check that they are complete, and plan again"
        )


def _missing_files(work: AnyWork) -> tuple[str, Size | None]:
    """Return what is missing of the source's files, or "", and the size of those that exist."""
    spark, source = work.ends.source, SourceTable.model_validate(work.item.facts["source"])
    if source.has_snapshots:  # the snapshot names its files, and reading fails without them
        return "", None
    become_active(spark)
    found = listing.described(spark, source.catalog, source.names) if source.catalog else source
    inventory = completeness.take_inventory(spark, found or source)
    problems = completeness.problems_of(
        spark,
        source.read(spark),
        inventory,
        None,
        ignore_statistics=work.options.ignore_statistics,
    )
    blockers = [each.text for each in problems if each.severity is Severity.BLOCKER]
    return "; ".join(blockers), inventory.size


def completeness_checks(work: AnyWork, count: int) -> Iterator[Check]:
    """Compare with what was counted besides the rows that Spark reads now, which may be none."""
    missing, _ = _missing_files(work)
    yield Check(name="missing files", ok=not missing, expected="none", found=missing or "none")
    planned = work.item.rows
    if planned is not None:
        is_enough = count >= planned
        yield Check(name="rows of the plan", ok=is_enough, expected=planned, found=count)
