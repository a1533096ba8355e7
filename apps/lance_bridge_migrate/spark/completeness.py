"""Check that all files of a source exist, by comparing its catalog with the storage.

Spark reads a table or partition whose directory is missing as empty, without an error.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

from lance_namespace.errors import ConcurrentModificationError, InvalidTableStateError
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from lance_bridge.errors import invalid
from lance_bridge.names import first_names

from ..plan import Problem, blocker, blockers_in, warning
from ..record import Check
from . import files, listing
from .session import become_active, spark_errors
from .sources import (
    FORMATS,
    OWN_CATALOG,
    SourceTable,
    Statistics,
    session_catalog,
    table_identifier,
)

_HIVE = "hive"
"""The format that `listing` returns for Hive tables in formats not listed in `FORMATS`."""
_LOCATION = re.compile(r"^\tLocation: (.*)$", re.MULTILINE)
_STATISTICS = re.compile(r"^\tPartition Statistics: (.*)$", re.MULTILINE)
_LAST_CHANGE = re.compile(r"\btransient_lastDdlTime=(\d+)")
_PARTITION = re.compile(r"^CatalogPartition\(", re.MULTILINE)
_THREADS = 16
_NAMES = 3
"""The maximum number of directories in a message."""
_MAX_LISTED = 20
"""The maximum number of directories whose files are compared with the statistics by time."""
_SKIPPING_SETTINGS = [
    f"{prefix}.{name}"
    for prefix in ("spark.sql.files", "spark.files")
    for name in files.SKIPPING_OPTIONS
]
"""Settings with which Spark omits rows without an error; the last two are for Hive's readers."""


@dataclass(frozen=True)
class SourceDirectory:
    """The directory of a table or partition in a catalog.

    Attributes:
        expected: The catalog's statistics.
        found: Files and bytes below it; None if it does not exist.
    """

    path: str
    expected: Statistics
    found: files.Size | None

    @property
    def is_short(self) -> bool:
        """True if it has fewer bytes than the statistics count."""
        return self.found is not None and self.found.bytes < (self.expected.bytes or 0)


@dataclass(frozen=True)
class Inventory:
    """The directories of one source.

    Attributes:
        directories: Empty for sources that list their own files, or have none.
        is_hidden: Whether directories cannot be read, because the session is Spark Connect.
    """

    directories: tuple[SourceDirectory, ...] = ()
    is_hidden: bool = False

    @property
    def missing(self) -> list[str]:
        return [each.path for each in self.directories if each.found is None]

    @property
    def size(self) -> files.Size | None:
        """The number of files and bytes; None if unknown."""
        found = [each.found for each in self.directories if each.found is not None]
        if not self.directories:
            return None
        return files.Size(sum(each.files for each in found), sum(each.bytes for each in found))

    @property
    def expected_rows(self) -> int | None:
        """The sum of rows in the statistics of all directories; None if one has none."""
        rows = [each.expected.rows for each in self.directories]
        return None if not rows or None in rows else sum(each or 0 for each in rows)


def require_no_skipped_files(spark: Any) -> None:
    """Raise InvalidInput (13) if the session skips files that it cannot read."""
    for key in _SKIPPING_SETTINGS:
        if str(spark.conf.get(key, "false")).lower() == "true":
            raise invalid(
                f"The session has {key}=true, with which Spark leaves rows out without an error: "
                "set it to false"
            )


def take_inventory(spark: Any, table: SourceTable) -> Inventory:
    """Return the sizes of all directories that a catalog lists for a source. Reads no rows.

    Raises:
        TableNotFoundError: (4)
        ServiceUnavailableError: (17) they cannot be read.
    """
    is_of_files = table.format in (*FORMATS, _HIVE) and not table.has_snapshots
    if not (is_of_files and table.location):
        return Inventory()
    if getattr(spark, "_jvm", None) is None:
        return Inventory(is_hidden=True)
    partitions = _partitions(spark, table)
    named = partitions or [(table.location, table.statistics)]
    paths = [path for path, _ in named]
    if len(paths) == 1:
        sizes = [files.size_of(spark, paths[0])]
    else:
        with ThreadPoolExecutor(min(_THREADS, len(paths))) as pool:
            sizes = list(pool.map(lambda path: files.size_of(spark, path), paths))
    return Inventory(
        tuple(
            SourceDirectory(path, expected, size)
            for (path, expected), size in zip(named, sizes, strict=True)
        )
    )


def _partitions(spark: Any, table: SourceTable) -> list[tuple[str, Statistics]]:
    """Return the location and the statistics of each partition in the catalog."""
    if table.catalog != OWN_CATALOG or not table.partitions:
        return []
    with spark_errors(f"The partitions of '{table.name}' cannot be listed"):
        name = table_identifier(spark, table.names)
        found_all = session_catalog(spark).listPartitions(name, spark._jvm.scala.Option.empty())
        # Read all partitions as one string: a call per property would take minutes.
        text = str(found_all.mkString("\n"))
    found = []
    for block in _PARTITION.split(text)[1:]:
        each = block.rstrip().removesuffix(")")
        location = _LOCATION.search(each)
        if location is not None:
            statistics = _STATISTICS.search(each)
            at = _LAST_CHANGE.search(each)
            found.append(
                (
                    location[1],
                    Statistics.of(statistics[1] if statistics else "", int(at[1]) if at else None),
                )
            )
    return found


def problems_of(
    spark: Any,
    frame: Any,
    inventory: Inventory,
    rows: int | None,
    *,
    ignore_statistics: bool = False,
) -> list[Problem]:
    """Return problems that indicate missing or unread files of a source.

    Args:
        rows: The number of rows that Spark reads; None if they were not counted.
        ignore_statistics: Treat statistics that count more than exists as outdated.
    """
    if inventory.is_hidden and rows == 0 and not ignore_statistics:
        return [
            blocker(
                "It has no rows, and through Spark Connect it cannot be seen whether its files are "
                "missing. Plan it in a session of this process; or, if it is empty, give the "
                "option ignore_statistics (--ignore-statistics)"
            )
        ]
    if inventory.missing:
        return [missing_problem(inventory)]
    size = inventory.size
    found = [*_missing_bytes(spark, inventory, ignore=ignore_statistics)]
    if not found:
        found += _missing_rows(spark, inventory, rows, ignore=ignore_statistics)
    if found or size is None:
        return found
    if size.bytes and not rows and not _has_files(frame):
        return [
            blocker(
                f"There are {size.bytes:,} bytes in {size.files:,} files, and Spark reads none of "
                "them. Register their partitions (MSCK REPAIR TABLE), move the files up where they "
                "are in sub-directories, or leave the table out"
            )
        ]
    if not size.bytes:
        return [
            warning(
                "It has no files: if it should have rows, check that its storage is mounted and is "
                "the right one"
            )
        ]
    return []


def missing_problem(inventory: Inventory) -> Problem:
    """Return the blocker for a source with missing directories."""
    missing = inventory.missing
    return blocker(
        f"{len(missing)} of its {len(inventory.directories)} directories do not exist: "
        f"{first_names(missing, _NAMES)}. Spark would read them as empty. Check that the storage "
        "is mounted; restore the files, or drop the entries of what was deleted on purpose"
    )


def _missing_bytes(spark: Any, inventory: Inventory, *, ignore: bool) -> Iterator[Problem]:
    short = [each for each in inventory.directories if each.is_short]
    if not short:
        return
    wanted = sum(each.expected.bytes or 0 for each in short)
    actual = sum(each.found.bytes for each in short if each.found is not None)
    paths = first_names([each.path for each in short], _NAMES)
    text = f"The catalog's statistics count {wanted:,} bytes in {paths}, and there are {actual:,}"
    yield _disagreement(spark, text, short, is_empty=not actual, ignore=ignore)


def _missing_rows(
    spark: Any, inventory: Inventory, rows: int | None, *, ignore: bool
) -> Iterator[Problem]:
    expected = inventory.expected_rows
    if rows is None or expected is None or rows >= expected:
        return
    text = f"The catalog's statistics count {expected:,} rows, and Spark reads {rows:,}"
    yield _disagreement(spark, text, inventory.directories, is_empty=not rows, ignore=ignore)


def _disagreement(
    spark: Any, text: str, directories: Sequence[SourceDirectory], *, is_empty: bool, ignore: bool
) -> Problem:
    """Return a blocker, or a warning if the statistics are outdated or ignored."""
    if is_empty:
        return blocker(
            f"{text}: its files are gone. Check that the storage is mounted; restore the files, or "
            "leave the table out"
        )
    if ignore or any(_is_outdated(spark, each) for each in directories[:_MAX_LISTED]):
        return warning(f"{text}: files were written since the statistics, or some are missing")
    return blocker(
        f"{text}, though no file is newer than the statistics: files are missing. Restore them; if "
        "they were deleted on purpose, give the option ignore_statistics (--ignore-statistics)"
    )


def _is_outdated(spark: Any, directory: SourceDirectory) -> bool:
    """Return whether a file is newer than the statistics of its directory."""
    if directory.expected.at is None:
        return False
    with spark_errors(f"The files in {directory.path} cannot be listed"):
        reader = spark.read.format("binaryFile").option("recursiveFileLookup", "true")
        newest = (
            reader.load(directory.path).agg(F.max(F.unix_timestamp("modificationTime"))).first()[0]
        )
    return newest is not None and int(newest) > directory.expected.at


def _has_files(frame: DataFrame) -> bool:
    with spark_errors("The files of a table cannot be listed"):
        return bool(len(frame._jdf.inputFiles()))


# -- when the source is read -----------------------------------------------------------------------


def require_complete(
    spark: Any, source: SourceTable, planned: files.Size | None, *, ignore_statistics: bool
) -> None:
    """Check that no file that the plan or the catalog counts is missing.

    Raises:
        InvalidInputError: (13) the session skips files that it cannot read.
        InvalidTableStateError: (19) files are missing.
        ConcurrentModificationError: (14) there are fewer bytes than when the plan was made.
    """
    require_no_skipped_files(spark)
    missing, now = _missing_files(spark, source, ignore_statistics=ignore_statistics)
    if missing:
        raise InvalidTableStateError(f"'{source.name}' is not complete. {missing}")
    if planned is not None and now is not None and now.bytes < planned.bytes:
        raise ConcurrentModificationError(
            f"'{source.name}' has {now.bytes:,} bytes in {now.files:,} files, and had "
            f"{planned.bytes:,} in {planned.files:,} when the plan was made: files were deleted or "
            "rewritten. Check that they are complete, and plan again"
        )


def files_check(spark: Any, source: SourceTable, *, ignore_statistics: bool) -> Check:
    """Verify that no file is missing, because Spark reads missing files as no rows."""
    missing, _ = _missing_files(spark, source, ignore_statistics=ignore_statistics)
    return Check(name="missing files", ok=not missing, expected="none", found=missing or "none")


def _missing_files(
    spark: Any, source: SourceTable, *, ignore_statistics: bool
) -> tuple[str, files.Size | None]:
    """Return a message about missing files of a source, or "", and the size of existing files."""
    if source.has_snapshots:  # reading fails if a file of the snapshot is missing
        return "", None
    become_active(spark)
    found = listing.describe(spark, source.catalog, source.names) if source.catalog else source
    inventory = take_inventory(spark, found or source)
    frame = source.read(spark)
    problems = problems_of(spark, frame, inventory, None, ignore_statistics=ignore_statistics)
    blockers = [each.text for each in blockers_in(problems)]
    return "; ".join(blockers), inventory.size
