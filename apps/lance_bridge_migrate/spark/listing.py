"""List and describe the tables of a Spark catalog, and check that all of their files exist.

A directory is described as a table is. Spark reads a table or partition whose directory is missing
as empty, without an error: the catalog is compared with the storage.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from itertools import takewhile
from typing import Any

from lance_namespace.errors import (
    ConcurrentModificationError,
    InvalidTableStateError,
    TableNotFoundError,
    TableVersionNotFoundError,
)
from py4j.protocol import Py4JError
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from lance_bridge.dotted_names import first_names, parts_of, quoted
from lance_bridge.errors import display, invalid, unsupported
from lance_bridge.redaction import is_secret

from ..endpoints import Selection, may_match
from ..plan import Problem, blocker, blockers_in, warning
from ..record import Check
from . import files
from .delta_iceberg import pin_snapshot
from .files import SKIPPING_OPTIONS
from .session import become_active, spark_errors
from .sources import (
    DELTA,
    FORMATS,
    ICEBERG,
    OWN_CATALOG,
    SourceTable,
    Statistics,
    check_read_options,
    require_plain_files,
    requiring_package,
    session_catalog,
    table_identifier,
)

_OWN_IMPLEMENTATION = f"spark.sql.catalog.{OWN_CATALOG}"
_TABLES_OF_A_CALL = 100
_SEPARATOR = "\x1e"
_DETAILS = "# Detailed Table Information"
_PARTITIONS = "# Partition Information"
_PARTITIONING = "# Partitioning"
_FILES = (("parquet", "parquet"), ("orc", "orc"), ("avro", "avro"), ("json", "json"),
          ("text", "csv"))  # fmt: skip
"""Substrings of the input format of Hive tables, with the format's name in Spark."""
_STORAGE_HANDLER = "storage_handler="
_HUDI = ("hoodie", "hudi")
"""Substrings of the names of Hudi's input formats."""
_TRANSACTIONAL = re.compile(r"\btransactional=true\b")
_SKIPPED_FILES = re.compile(rf"\b(?:{'|'.join(SKIPPING_OPTIONS).lower()})=true\b")
_SKIPPED_LINES = re.compile(r"\bskip\.(?:header|footer)\.line\.count=(?!0+\b)[^,\]]*")


def tables_in(spark: Any, catalog: str, selection: Selection) -> Iterator[tuple[str, ...]]:
    """Yield the names of the selected tables of a catalog, without views.

    Raises:
        InvalidInputError: (13) Spark has no such catalog.
        ServiceUnavailableError: (17)
    """
    for namespace in _namespaces(spark, catalog):
        if not may_match(namespace, selection):
            continue
        where = quoted((catalog, *namespace))
        with spark_errors(f"The tables of {where} cannot be listed"):
            rows = spark.sql(f"SHOW TABLES IN {where}").collect()
        # Spark lists temporary views in every namespace.
        names = [row["tableName"] for row in rows if not row["isTemporary"]]
        for name in sorted(names):
            if selection.selects((*namespace, name)):
                yield (*namespace, name)


def _namespaces(spark: Any, catalog: str, outer: tuple[str, ...] = ()) -> list[tuple[str, ...]]:
    where = quoted((catalog, *outer))
    with spark_errors(f"The namespaces of {where} cannot be listed"):
        rows = spark.sql(f"SHOW NAMESPACES IN {where}").collect()
    found = [(*outer, parts_of(row[0])[-1]) for row in rows]
    if catalog == OWN_CATALOG:
        return found
    return [each for one in found for each in (one, *_namespaces(spark, catalog, one))]


Description = tuple[Mapping[str, str], tuple[str, ...]]
"""The detailed table information of DESCRIBE TABLE EXTENDED, and the partition columns."""


def describe_all(
    spark: Any, catalog: str, tables: Sequence[tuple[str, ...]]
) -> dict[tuple[str, ...], Description]:
    """Return the descriptions of many tables, with one metastore call per hundred tables.

    Tables missing in the result have to be described one by one: those of catalogs other than
    Spark's own, of Spark Connect, and of a call in which a table has columns unknown to Spark.
    """
    is_own = catalog == OWN_CATALOG and not spark.conf.get(_OWN_IMPLEMENTATION, "")
    if not is_own or getattr(spark, "_jvm", None) is None:
        return {}
    found: dict[tuple[str, ...], Description] = {}
    for database in sorted({names[:-1] for names in tables}):
        own = [names for names in tables if names[:-1] == database]
        for start in range(0, len(own), _TABLES_OF_A_CALL):
            with suppress(PySparkException, Py4JError):
                found |= _describe_many(spark, own[start : start + _TABLES_OF_A_CALL])
    return found


def _describe_many(
    spark: Any, tables: Sequence[tuple[str, ...]]
) -> dict[tuple[str, ...], Description]:
    names = [table_identifier(spark, each) for each in tables]
    wanted = spark._jvm.PythonUtils.toSeq(names)
    described = session_catalog(spark).getTablesByName(wanted)
    # Read Scala collections as strings, with one call each.
    found: dict[tuple[str, ...], Description] = {}
    for number in range(described.size()):
        table = described.apply(number)
        text = str(table.toLinkedHashMap().mkString(_SEPARATOR))
        parts = [each.partition(" -> ") for each in text.split(_SEPARATOR)]
        columns = str(table.partitionColumnNames().mkString(_SEPARATOR))
        key = (*tables[0][:-1], str(table.identifier().table()))
        partitions = tuple(columns.split(_SEPARATOR)) if columns else ()
        found[key] = ({name: value for name, _, value in parts}, partitions)
    return found


def describe(
    spark: Any, catalog: str, names: tuple[str, ...], description: Description | None = None
) -> SourceTable | None:
    """Return a table without its schema, or None for a view or a Lance table.

    Args:
        description: A result of `describe_all`; by default Spark describes the table.

    Raises:
        TableNotFoundError: (4)
        InvalidInputError: (13) Spark cannot describe it.
        UnsupportedOperationError: (0) the session lacks the package for its format; or Spark would
            read other rows than Hive or Hudi do.
    """
    shown = display(names)
    if description is None:
        with spark_errors(f"'{shown}' cannot be described"), requiring_package("", shown):
            rows = spark.sql(f"DESCRIBE TABLE EXTENDED {quoted((catalog, *names))}").collect()
        description = (_details(rows), _partitions(rows))
    details, partitions = description
    given = details.get("Table Properties", "")
    properties = given.lower()
    if details.get("Type", "").upper() == "VIEW" or "table_type=lance" in properties:
        return None
    _require_read_whole(shown, details, properties)
    _require_no_skipped_files(shown, details)
    table = SourceTable(
        catalog=catalog,
        names=names,
        format=_format(details, properties),
        # Tables of a storage handler have no files, but may have a location.
        location="" if _STORAGE_HANDLER in properties else details.get("Location", ""),
        partitions=partitions,
        statistics=Statistics.of(details.get("Statistics", ""), given),
    )
    return pin_snapshot(spark, table)


def _details(rows: list[Any]) -> dict[str, str]:
    names = [row["col_name"] for row in rows]
    if _DETAILS not in names:
        return {}
    return {row["col_name"]: row["data_type"] for row in rows[names.index(_DETAILS) + 1 :]}


def _require_read_whole(name: str, details: Mapping[str, str], properties: str) -> None:
    """Raise UnsupportedOperation (0) for tables that Spark reads wrongly without an error.

    Spark ignores the delta directories of Hive transactions and Hudi, and reads lines that Hive
    skips.
    """
    if _format(details, properties) in (DELTA, ICEBERG):
        return
    if _TRANSACTIONAL.search(properties):
        raise unsupported(
            f"'{name}' is a transactional table of Hive's, whose changes Spark does not read: copy "
            "it to an external table with Hive (CREATE EXTERNAL TABLE … STORED AS PARQUET AS "
            "SELECT …), and convert that"
        )
    if details.get("Provider", "").lower() != "hive":
        return
    if any(word in details.get("InputFormat", "").lower() for word in _HUDI):
        raise unsupported(
            f"'{name}' is a Hudi table, of which Spark would also read outdated rows: write "
            "its latest state to a table of Parquet with Hudi, and convert that"
        )
    skipped = _SKIPPED_LINES.search(f"{properties} {details.get('Storage Properties', '')}".lower())
    if skipped:
        raise unsupported(
            f"Hive skips lines of '{name}' ({skipped[0]}), and Spark reads them as rows: convert "
            "its directory with the option paths (of CSV, with header), or copy it with Hive"
        )


def _require_no_skipped_files(name: str, details: Mapping[str, str]) -> None:
    """Raise UnsupportedOperation (0) for tables of which Spark skips files that it cannot read."""
    skipped = _SKIPPED_FILES.search(details.get("Storage Properties", "").lower())
    if skipped:
        raise unsupported(
            f"Spark leaves out rows of '{name}' without an error ({skipped[0]}): remove this "
            "option from the table, or convert its directory with the option paths"
        )


def _format(details: Mapping[str, str], properties: str) -> str:
    provider = details.get("Provider", "").lower()
    if "table_type=iceberg" in properties:
        return "iceberg"
    if provider != "hive":
        return provider
    files = f"{details.get('InputFormat', '')} {details.get('Serde Library', '')}".lower()
    return next((format for word, format in _FILES if word in files), "hive")


def _partitions(rows: list[Any]) -> tuple[str, ...]:
    """Return the partition columns, in the format of Spark's own or of other catalogs."""
    names = [row["col_name"] for row in rows]
    if _PARTITIONS in names:
        return tuple(takewhile(bool, names[names.index(_PARTITIONS) + 2 :]))  # after the header
    if _PARTITIONING in names:
        parts = rows[names.index(_PARTITIONING) + 1 :]
        return tuple(each["data_type"] for each in parts if each["col_name"].startswith("Part "))
    return ()


def at_path(spark: Any, path: str, format: str, read_options: Mapping[str, str]) -> SourceTable:
    """Return a directory or file as a source.

    Raises:
        TableNotFoundError: (4)
        InvalidInputError: (13) the format or an option is not supported, or Spark cannot read it.
        UnsupportedOperationError: (0) the session lacks the package for the format; or the files
            are those of a table in another format.
    """
    if format not in FORMATS:
        raise invalid(f"'{format}' is not one of these formats: {', '.join(FORMATS)}")
    secret = [key for key in read_options if is_secret(key)]
    if secret:
        raise invalid(
            f"A plan keeps no secrets, such as the option {secret[0]}: set it in the session "
            "(spark.hadoop.…)"
        )
    table = SourceTable(names=(path,), format=format, location=path,
                        read_options=dict(read_options))  # fmt: skip
    check_read_options(read_options, has_snapshots=table.has_snapshots)
    if not table.has_snapshots:
        require_plain_files(spark, path, format)
    return with_schema(spark, pin_snapshot(spark, table))


def with_schema(spark: Any, table: SourceTable) -> SourceTable:
    """Return a source with its current schema."""
    table.refresh_files(spark)
    frame = table.read(spark, refresh=False)
    # With some settings, Spark has types that PySpark does not have, such as nanoseconds.
    with spark_errors(f"The columns of '{table.name}' cannot be read"):
        columns = frame.schema.json()
    return table.model_copy(update={"columns": columns})


def describe_source(spark: Any, table: SourceTable) -> SourceTable:
    """Return the current description of a catalog's table. Raises TableNotFound (4)."""
    found = describe(spark, table.catalog, table.names)
    if found is None:
        raise TableNotFoundError(f"'{table.name}' is no longer a table that can be converted")
    return found


def describe_again(spark: Any, table: SourceTable) -> SourceTable:
    """Return the current description of a source at its pinned snapshot.

    Raises:
        TableNotFoundError: (4) the source or the snapshot no longer exists.
    """
    if table.catalog:
        now = describe_source(spark, table)
    else:
        now = pin_snapshot(spark, table.model_copy(update={"columns": ""}))
    try:
        return with_schema(spark, now.model_copy(update={"snapshot": table.snapshot}))
    except TableVersionNotFoundError as error:
        raise TableNotFoundError(str(error)) from error


def describe_latest(spark: Any, source: SourceTable) -> SourceTable:
    """Return the current description of a source. Raises TableNotFound (4)."""
    if not source.catalog:
        return at_path(spark, source.location, source.format, source.read_options)
    return with_schema(spark, describe_source(spark, source))


# -- missing files ---------------------------------------------------------------------------------


_HIVE = "hive"
"""The format that `listing` returns for Hive tables in formats not listed in `FORMATS`."""
_LOCATION = re.compile(r"^\tLocation: (.*)$", re.MULTILINE)
_STATISTICS = re.compile(r"^\tPartition Statistics: (.*)$", re.MULTILINE)
_PARTITION = re.compile(r"^CatalogPartition\(", re.MULTILINE)
_THREADS = 16
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
    partitions = _partition_statistics(spark, table)
    named = partitions or [(table.location, table.statistics)]
    with ThreadPoolExecutor(_THREADS) as pool:
        sizes = pool.map(lambda each: files.size_of(spark, each[0]), named)
        pairs = zip(named, sizes, strict=True)
        return Inventory(tuple(SourceDirectory(path, of, size) for (path, of), size in pairs))


def _partition_statistics(spark: Any, table: SourceTable) -> list[tuple[str, Statistics]]:
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
        location, statistics = _LOCATION.search(each), _STATISTICS.search(each)
        if location is not None:
            found.append((location[1], Statistics.of(statistics[1] if statistics else "", each)))
    return found


def file_problems(
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
    missing = _missing_data(spark, inventory, rows, ignore=ignore_statistics)
    if missing is not None or size is None:
        return [] if missing is None else [missing]
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
        f"{first_names(missing, 3)}. Spark would read them as empty. Check that the storage "
        "is mounted; restore the files, or drop the entries of what was deleted on purpose"
    )


def _missing_data(
    spark: Any, inventory: Inventory, rows: int | None, *, ignore: bool
) -> Problem | None:
    """Return the problem if there is less than the catalog's statistics count."""
    short = [each for each in inventory.directories if each.is_short]
    expected = inventory.expected_rows
    if short:
        wanted = sum(each.expected.bytes or 0 for each in short)
        actual = sum(each.found.bytes for each in short if each.found is not None)
        paths = first_names([each.path for each in short], 3)
        text = f"{wanted:,} bytes in {paths}, and there are {actual:,}"
    elif rows is not None and expected is not None and rows < expected:
        short, actual = [*inventory.directories], rows
        text = f"{expected:,} rows, and Spark reads {rows:,}"
    else:
        return None
    text = f"The catalog's statistics count {text}"
    return _disagreement(spark, text, short, is_empty=not actual, ignore=ignore)


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
    found = describe(spark, source.catalog, source.names) if source.catalog else source
    inventory = take_inventory(spark, found or source)
    frame = source.read(spark)
    problems = file_problems(spark, frame, inventory, None, ignore_statistics=ignore_statistics)
    blockers = [each.text for each in blockers_in(problems)]
    return "; ".join(blockers), inventory.size
