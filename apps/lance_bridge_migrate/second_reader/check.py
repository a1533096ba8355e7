"""Compare a source with what Spark reads of it, as problems of a plan."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from py4j.protocol import Py4JError
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame

from lance_bridge.names import first_names

from ..plan import Problem, Severity, blocker, warning
from ..spark.sources import FORMATS, SourceTable
from . import columns, file_schemas, skipped
from .columns import Difference
from .file_schemas import FileSchemas
from .storage import Storage, StoredFile, UnreachableError, path_in

_NAMES = 3
"""The maximum number of files or directories in a message."""
_FIELDS = 20
"""The maximum number of columns and fields that are reported one by one."""
_ACCEPT = "accept_differences (--accept-differences)"
_MERGE = "mergeSchema"
_OF_OPTIONS = ("pathglobfilter", "modifiedbefore", "modifiedafter")
"""Options of Spark's reader with which a user chooses the files."""


@dataclass(frozen=True)
class SecondReading:
    """What the second reader found about one source.

    Attributes:
        schemas: The content of the footers; None for other formats, and if they cannot be read.
        unreachable: Why something could not be read, or "".
    """

    schemas: FileSchemas | None = None
    unreachable: str = ""


def can_check(session: Any, source: SourceTable) -> bool:
    """Return whether the second reader checks a source: one of files, in this process."""
    is_of_files = source.format in FORMATS and not source.has_snapshots
    return is_of_files and bool(source.location) and getattr(session, "_jvm", None) is not None


def read_footers(session: Any, source: SourceTable, frame: DataFrame) -> SecondReading:
    """Read the footers of all files of a source."""
    if source.format not in file_schemas.FORMATS or not can_check(session, source):
        return SecondReading()
    try:
        files = sorted(frame.inputFiles())
        if not files or any(not _is_file(each, source) for each in files):
            return SecondReading()
        return SecondReading(file_schemas.read_all(Storage(session), source.format, files))
    except (PySparkException, Py4JError):  # Spark's own check gives the error
        return SecondReading()
    except UnreachableError as error:
        return SecondReading(unreachable=str(error))


def _is_file(uri: str, source: SourceTable) -> bool:
    """Return whether a URI is that of a file, and not the table's directory, as Hive's readers."""
    return not source.catalog or path_in(uri).rstrip("/") != path_in(source.location).rstrip("/")


def problems_of(
    session: Any,
    source: SourceTable,
    frame: DataFrame,
    reading: SecondReading,
    directories: Sequence[str],
    *,
    accept: bool,
) -> list[Problem]:
    """Return the differences between a source and what Spark reads of it, and what was not read.

    Args:
        frame: The rows as Spark reads them, without casts and renames.
        directories: The directories of the table, or of its partitions in the catalog.
        accept: Whether differences are warnings, not blockers.
    """
    if not can_check(session, source):
        return []
    found: list[Problem] = []
    if reading.schemas is not None:
        found += _column_problems(session, source, frame, reading.schemas)
    unreachable = reading.unreachable
    try:
        found += _file_problems(Storage(session), source, directories)
    except UnreachableError as error:
        unreachable = unreachable or str(error)
    if unreachable:
        found.append(warning(f"The second reader did not compare all of its files: {unreachable}"))
    return [_accepted(each) for each in found] if accept else found


def _accepted(problem: Problem) -> Problem:
    return problem.model_copy(update={"severity": Severity.WARNING})


# -- columns ---------------------------------------------------------------------------------------


def _column_problems(
    session: Any, source: SourceTable, frame: DataFrame, schemas: FileSchemas
) -> Iterator[Problem]:
    partitions = _partitions_of(source, frame)
    found = columns.differences(schemas.schemas, frame.schema, partitions)
    if not found:
        return
    advice = _advice(session, source, schemas, partitions)
    for each in found[:_FIELDS]:
        yield _problem(each, advice(each))
    if len(found) > _FIELDS:
        yield blocker(f"{len(found) - _FIELDS} further columns or fields differ in the same way")


def _partitions_of(source: SourceTable, frame: DataFrame) -> tuple[str, ...]:
    """Return the partition columns of a table, or of the directories of a path."""
    if source.catalog:
        return source.partitions
    start = path_in(source.location) if ":/" in source.location else source.location
    names = {
        name.partition("=")[0].lower()
        for uri in frame.inputFiles()
        for name in path_in(uri)[len(start) :].split("/")[:-1]
        if "=" in name
    }
    return tuple(each for each in frame.columns if each.lower() in names)


def _problem(each: Difference, advice: str) -> Problem:
    file = path_in(each.file)
    if not each.read_as:
        text = f"Spark does not read it, and {file} has it, of type {each.stored}: {advice}"
    else:
        text = f"{file} has {each.stored}, which Spark reads as {each.read_as}: {advice}"
    return blocker(text, each.path)


def _advice(
    session: Any, source: SourceTable, schemas: FileSchemas, partitions: Sequence[str]
) -> Callable[[Difference], str]:
    """Return what gives the advice for a difference; an advice to merge was tried before."""
    mended = _mended_by_merging(session, source, schemas, partitions)

    def advice(each: Difference) -> str:
        if mended is not None and (each.path.lower(), each.stored) not in mended:
            return (
                f"give the read option {_MERGE}=true (--read-option {_MERGE}=true), with which "
                f"Spark reads it; or accept that it is left out with the option {_ACCEPT}"
            )
        if source.catalog and not each.read_as:
            return (
                "add it to the table (ALTER TABLE … ADD COLUMNS), or accept that it is left out "
                f"with the option {_ACCEPT}"
            )
        if each.read_as:
            return (
                "convert the files of each type as a table of their own, or accept what Spark "
                f"reads with the option {_ACCEPT}"
            )
        return (
            "convert its files as a table of their own, or accept that it is left out with the "
            f"option {_ACCEPT}"
        )

    return advice


def _mended_by_merging(
    session: Any, source: SourceTable, schemas: FileSchemas, partitions: Sequence[str]
) -> set[tuple[str, str]] | None:
    """Return the differences that are left if Spark merges the schemas; None if it cannot."""
    options = {key.lower(): value for key, value in source.read_options.items()}
    if source.catalog or options.get(_MERGE.lower(), "").lower() == "true":
        return None
    reader = session.read.format(source.format).options(**source.read_options)
    try:
        merged = reader.option(_MERGE, "true").load(source.location).schema
    except (PySparkException, Py4JError):
        return None
    left = columns.differences(schemas.schemas, merged, partitions)
    return {(each.path.lower(), each.stored) for each in left}


# -- files -----------------------------------------------------------------------------------------


def _file_problems(
    storage: Storage, source: SourceTable, directories: Sequence[str]
) -> Iterator[Problem]:
    options = {key.lower() for key in source.read_options}
    if options.intersection(_OF_OPTIONS):
        return
    stored = storage.files_below(source.location)
    hidden = skipped.hidden_files(storage, source.format, stored)
    if hidden:
        names = first_names(hidden, _NAMES)
        yield blocker(
            f"Spark skips {len(hidden)} files because of their names: {names}. Rename them if "
            f"their rows belong to the table, or accept that they are left out with the option "
            f"{_ACCEPT}"
        )
    yield from _partition_problems(source, stored, directories)


def _partition_problems(
    source: SourceTable, stored: Sequence[StoredFile], directories: Sequence[str]
) -> Iterator[Problem]:
    if not source.catalog or not source.partitions or list(directories) == [source.location]:
        return
    levels = len(source.partitions)
    found = sorted(skipped.unregistered_partitions(stored, directories, levels))
    if found:
        yield warning(
            f"{len(found)} directories of partitions are not in the catalog, so that Spark does "
            f"not read them: {first_names(found, _NAMES)}. Register them (MSCK REPAIR TABLE) if "
            "their rows belong to the table"
        )
