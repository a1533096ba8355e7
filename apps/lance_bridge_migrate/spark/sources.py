"""A table or directory that Spark reads, its rows, and files of which Spark would read other rows.

Those are files that Spark leaves out, and partitions whose values it changes.
"""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import PurePosixPath
from typing import Any
from urllib.parse import unquote, urlsplit

from lance_namespace.errors import TableVersionNotFoundError
from py4j.protocol import Py4JError
from pydantic import Field
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame
from pyspark.sql import functions as F
from pyspark.sql.types import DataType, StringType, StructField, StructType

from lance_bridge.dotted_names import quoted
from lance_bridge.errors import display, invalid, unsupported

from ..plan import Model, Problem, blocker, digest, warning
from . import files
from .session import java_class, spark_errors

DELTA, ICEBERG = "delta", "iceberg"
OWN_CATALOG = "spark_catalog"
"""The name of every session's own catalog."""
FORMATS = (
    "parquet", "orc", "avro", "csv", "json", "text", "binaryFile", DELTA, ICEBERG
)  # fmt: skip
_PACKAGES = {
    "avro": "org.apache.spark:spark-avro_2.13 of the session's release",
    DELTA: "io.delta:delta-spark_2.13 (for Spark 4.1: io.delta:delta-spark_4.1_2.13)",
    ICEBERG: "org.apache.iceberg:iceberg-spark-runtime of the session's release, such as "
    "iceberg-spark-runtime-4.1_2.13, and read it through a catalog of Iceberg's",
}
_MISSING = (
    "DATA_SOURCE_NOT_FOUND", "_LEGACY_ERROR_TEMP_1139", "Failed to find data source",
    "DELTA_CONFIGURE", "ClassNotFoundException", "PARSE_SYNTAX_ERROR",
    "REQUIRES_SINGLE_PART_NAMESPACE",
)  # fmt: skip
"""Parts of Spark's errors if a format's package is missing: the last but one is for Delta's own
statements, the last for Iceberg's metadata tables."""
_NOT_FOUND = re.compile(r"Failed to find the data source: (\w+)")
_NO_SNAPSHOT = ("[DELTA_VERSION_NOT_FOUND]", "Cannot find snapshot with ID")
_THREADS = 16
_UNKNOWN_SIZE = 2**60
"""Spark's default size without statistics is larger."""


_STATISTICS = re.compile(r"(\d+) bytes(?:, (\d+) rows)?")
_LAST_CHANGE = re.compile(r"\btransient_lastDdlTime=(\d+)")


class Statistics(Model):
    """A catalog's statistics of a table or partition; unknown values are None.

    Attributes:
        at: The time of the last change of its entry, in seconds since 1970.
    """

    bytes: int | None = None
    rows: int | None = None
    at: int | None = None

    @classmethod
    def of(cls, text: str, properties: str) -> Statistics:
        """Return statistics parsed from Spark's description: ``2973 bytes, 30 rows``."""
        found, at = _STATISTICS.match(text), _LAST_CHANGE.search(properties)
        if found is None:
            return cls()
        rows = int(found[2]) if found[2] else None
        return cls(bytes=int(found[1]), rows=rows, at=int(at[1]) if at else None)


class SourceTable(Model):
    """One source, with everything needed to read the same rows again.

    Attributes:
        catalog: Spark's name of the catalog; "" for a path.
        names: The names of its namespace and its own, or the location alone.
        format: Spark's name of the format; for a Hive table, that of its files.
        location: Its location, if Spark describes one.
        read_options: Options of Spark's reader, for a path.
        snapshot: The Delta version or Iceberg snapshot to read; None for formats without
            snapshots, and for tables that have none yet.
        identity: The identifier of a Delta table, which a recreated table does not share; "" for
            other formats.
        columns: The schema that Spark reads, in JSON.
        statistics: The statistics of the table's entry, which change with its rows.
    """

    catalog: str = ""
    names: tuple[str, ...]
    format: str
    location: str = ""
    partitions: tuple[str, ...] = ()
    read_options: dict[str, str] = Field(default_factory=dict)
    snapshot: int | None = None
    identity: str = ""
    columns: str = ""
    statistics: Statistics = Field(default_factory=Statistics)

    @property
    def name(self) -> str:
        return display(self.names)

    @property
    def sql_name(self) -> str:
        return quoted((self.catalog, *self.names))

    @property
    def options(self) -> dict[str, str]:
        """The read options, by their names in lower case."""
        return {key.lower(): value for key, value in self.read_options.items()}

    @property
    def schema_read(self) -> StructType:
        return StructType.fromJson(json.loads(self.columns))

    @property
    def has_snapshots(self) -> bool:
        return self.format in (DELTA, ICEBERG)

    def fingerprint(self) -> str:
        """Return a digest of everything that the plan depends on."""
        parts = self.model_dump(mode="json", exclude={"statistics"})
        return digest(parts)

    def read(self, spark: Any, *, refresh: bool = True) -> DataFrame:
        """Return the rows, at the pinned snapshot if there is one.

        Args:
            refresh: Whether to discard cached metadata of the table; see `refresh`.

        Raises:
            TableNotFoundError: (4)
            TableVersionNotFoundError: (11) the snapshot no longer exists.
            InvalidInputError: (13) Spark cannot read it.
            UnsupportedOperationError: (0) the session lacks the package for the format.
        """
        with (
            spark_errors(f"'{self.name}' cannot be read"),
            requiring_package(self.format, self.name),
            self._requiring_snapshot(),
        ):
            return self._read(spark, refresh=refresh)

    @contextmanager
    def _requiring_snapshot(self) -> Iterator[None]:
        try:
            yield
        except (PySparkException, Py4JError) as error:
            if self.snapshot is not None and any(sign in f"{error}" for sign in _NO_SNAPSHOT):
                raise TableVersionNotFoundError(
                    f"Snapshot {self.snapshot} of '{self.name}' no longer exists: it was "
                    "vacuumed or expired. Plan again; or convert it again, if it is that of the "
                    "last increment"
                ) from error
            raise

    def _read(self, spark: Any, *, refresh: bool) -> DataFrame:
        found: DataFrame
        if refresh:
            self.refresh(spark)
        if self.catalog and self.snapshot is not None:
            found = spark.sql(f"SELECT * FROM {self.sql_name} VERSION AS OF {self.snapshot}")
        elif self.catalog:
            found = spark.table(self.sql_name)
        else:
            found = self._reader(spark).load(self.location)
        # A table without a snapshot had no rows when the plan was made.
        is_empty = self.has_snapshots and self.snapshot is None
        return found.where("false") if is_empty else found

    def refresh(self, spark: Any) -> None:
        """Make Spark reload a table's metadata, because other writers may have changed it.

        Spark caches the list of a table's files, and Iceberg's catalogs cache the table.
        """
        if self.catalog == OWN_CATALOG or (self.catalog and self.has_snapshots):
            spark.sql(f"REFRESH TABLE {self.sql_name}")

    def refresh_files(self, spark: Any) -> None:
        """Make Spark list a table's files again; rows that the session caches remain cached.

        For tables of the session's own catalog, this takes a tenth of the time of `refresh`.
        """
        if self.catalog != OWN_CATALOG or getattr(spark, "_jvm", None) is None:
            self.refresh(spark)
            return
        with spark_errors(f"'{self.name}' cannot be read"):
            session_catalog(spark).refreshTable(table_identifier(spark, self.names))

    def _reader(self, spark: Any) -> Any:
        reader = spark.read.format(self.format)
        if self.format == "csv":  # by default, Spark reads the columns of all files by position
            reader = reader.option("enforceSchema", "false")
        reader = reader.options(**self.read_options)
        if self.columns and self.format in ("csv", "json"):
            reader = reader.schema(self.schema_read)
        if self.snapshot is not None:
            reader = reader.option("versionAsOf", str(self.snapshot))
        return reader


def session_catalog(spark: Any) -> Any:
    """Return the JVM's object for the session's own catalog."""
    return spark._jsparkSession.sessionState().catalog()


def table_identifier(spark: Any, names: tuple[str, ...]) -> Any:
    """Return the JVM's identifier of a table in the session's own catalog."""
    database = java_class(spark, "scala.Option").apply(names[-2])
    identifier = java_class(spark, "org.apache.spark.sql.catalyst.TableIdentifier")
    return identifier(names[-1], database)


@contextmanager
def requiring_package(format: str, name: str) -> Iterator[None]:
    """Raise UnsupportedOperation (0) if the session lacks a format's package, which is named.

    Args:
        format: "" if it is not known yet.
    """
    try:
        yield
    except (PySparkException, Py4JError) as error:
        said = f"{error}"
        found = _NOT_FOUND.search(said)
        format = format or (found[1].lower() if found else "")
        if format in _PACKAGES and any(sign in said for sign in _MISSING):
            raise unsupported(
                f"'{name}' is in {format}, which this session cannot read: start it with the "
                f"package (spark.jars.packages) {_PACKAGES[format]}"
            ) from error
        raise


def size_of(frame: DataFrame) -> int | None:
    """Return the size of the files that Spark would read, or None if unknown."""
    plan = getattr(frame, "_jdf", None)
    if plan is None:
        return None
    size = int(str(plan.queryExecution().optimizedPlan().stats().sizeInBytes()))
    return size if size < _UNKNOWN_SIZE else None


def unread_problems(
    spark: Any, table: SourceTable, frame: DataFrame, directories: Iterable[str] = ()
) -> list[Problem]:
    """Return a warning if Spark ignores files in a table's directories that Hive may read.

    They are in sub-directories that are not partitions, such as those that Hive writes for UNION
    ALL. They are not detected through Spark Connect, which gives no access to file systems.

    Args:
        directories: The directories of the table or of its partitions.
    """
    is_of_files = table.format in FORMATS and not table.has_snapshots
    if not is_of_files or getattr(spark, "_jvm", None) is None:
        return []
    found = files.list_plain_subdirectories(spark, table.location, len(table.partitions))
    below = table.location.rstrip("/") + "/"
    outside = [each for each in directories if not f"{each}/".startswith(below)]
    with ThreadPoolExecutor(_THREADS) as pool:
        for each in pool.map(lambda path: files.list_plain_subdirectories(spark, path, 0), outside):
            found += each
    if not found:
        return []
    with spark_errors(f"The files of '{table.name}' cannot be listed"):
        listed = map(_parse_path, frame.inputFiles())
        if _parse_path(table.location) in listed:  # a reader of Hive's gets all files, or fails
            return []
    read = {above for each in files_read(table, frame) for above in _parse_path(each).parents}
    left_out = [each for each in found if PurePosixPath(each).parent not in read]
    if not left_out:
        return []
    return [
        warning(
            "Spark leaves out what is in sub-directories that are not partitions, such as "
            f"{left_out[0]}: move those files up where their rows belong to the table, or give the "
            "read option recursiveFileLookup=true for a path"
        )
    ]


def files_read(table: SourceTable, frame: DataFrame) -> list[str]:
    """Return the URIs of all files with rows that Spark reads, by a pass that reads no columns."""
    with spark_errors(f"The files of '{table.name}' cannot be listed"):
        path = frame.metadataColumn("_metadata").getField("file_path")
        return sorted(row[0] for row in frame.select(path).distinct().collect())


def _parse_path(uri: str) -> PurePosixPath:
    return PurePosixPath(unquote(urlsplit(uri).path))


# -- paths -----------------------------------------------------------------------------------------


_TABLES = (
    ("_delta_log", "Delta", "Give the format delta (--format delta)"),
    (".hoodie", "Hudi", "Write its latest state to a table of Parquet with Hudi, and convert that"),
    ("metadata/*.metadata.json", "Iceberg",
     "Convert it from its catalog (--spark-catalog), or give the format iceberg"),
)  # fmt: skip
"""Names in the directory of a table, with the table's format and advice."""
_DATA = "data"
"""Iceberg's directory of files with rows."""
_SKIPPING_OPTIONS = [name.lower() for name in files.SKIPPING_OPTIONS]
_SNAPSHOT_OPTIONS = ("versionasof", "timestampasof", "snapshot-id", "as-of-timestamp", "branch",
                     "tag", "start-snapshot-id", "end-snapshot-id", "readchangefeed",
                     "readchangedata")  # fmt: skip
"""Options of Delta and Iceberg with which Spark reads other rows than those of the latest
snapshot."""
_INFERENCE = "spark.sql.sources.partitionColumnTypeInference.enabled"
_NULL = "__HIVE_DEFAULT_PARTITION__"
_TEXTS = ("string", "char", "varchar")


def check_read_options(read_options: Mapping[str, str], *, has_snapshots: bool) -> None:
    """Raise InvalidInput (13) for options with which Spark reads other rows than the plan says."""
    for key, value in read_options.items():
        if has_snapshots and key.lower() in _SNAPSHOT_OPTIONS:
            raise invalid(
                f"The option {key} is not supported: a conversion reads the latest snapshot, or "
                "version, at the time of the plan. Remove the option; or convert a table with the "
                "rows that it selects"
            )
        if key.lower() in _SKIPPING_OPTIONS and value.lower() == "true":
            raise invalid(
                f"With the option {key}, Spark leaves rows out without an error: remove it"
            )


def require_plain_files(spark: Any, path: str, format: str) -> None:
    """Raise UnsupportedOperation (0) for files of a Delta, Hudi or Iceberg table.

    They are not detected through Spark Connect.
    """
    if getattr(spark, "_jvm", None) is None:
        return
    for directory in _possible_tables(path):
        for name, owner, advice in _TABLES:
            if files.matches(spark, directory, name):
                raise unsupported(
                    f"'{path}' has files of {owner} ({directory}/{name}), of which Spark would "
                    f"also read deleted and outdated rows as {format}. {advice}"
                )


def _possible_tables(path: str) -> Iterator[str]:
    """Yield a path and its parents, up to the first that may be the directory of a table."""
    yield path
    parent, _, name = path.rstrip("/").rpartition("/")
    is_inside = "=" in name or name == _DATA or files.is_pattern(name)
    if is_inside and not parent.rstrip("/").endswith(":") and parent:
        yield from _possible_tables(parent)


def problems_of(
    spark: Any, table: SourceTable, frame: DataFrame, casts: Mapping[str, str]
) -> list[Problem]:
    """Return blockers for a path without snapshots whose partitions Spark would misread.

    Args:
        frame: The rows as Spark reads them, without the casts.
    """
    if table.catalog or table.has_snapshots:
        return []
    options = table.options
    if options.get("recursivefilelookup", "").lower() == "true":  # it has no partitions
        return []
    found = [*_files_beside_partitions(spark, table.location, options, frame.columns)]
    return [*found, *_changed_values(spark, table.location, options, frame, casts)]


def _files_beside_partitions(
    spark: Any, path: str, options: Mapping[str, str], columns: Sequence[str]
) -> Iterator[Problem]:
    """Yield a blocker for files beside partition directories, which Spark leaves out."""
    if getattr(spark, "_jvm", None) is None or files.is_pattern(path):
        return
    partition = files.first_name(spark, path, "*=*", is_directory=True)
    if partition is None or _column_of(partition) not in {each.lower() for each in columns}:
        return
    pattern = options.get("pathglobfilter", "*")
    name = files.first_name(spark, path, pattern, is_directory=False)
    if name is not None:
        yield blocker(
            "Spark leaves out files beside partition directories, such as "
            f"{path.rstrip('/')}/{name} beside {partition}: move them into partitions or "
            "elsewhere, or exclude them with the read option pathGlobFilter"
        )


def _changed_values(
    spark: Any, path: str, options: Mapping[str, str], frame: DataFrame, casts: Mapping[str, str]
) -> Iterator[Problem]:
    """Yield a blocker for each partition column of which Spark changes a value, as 01 to 1.

    Columns with a cast to a type other than text are meant to change.
    """
    meant = {name.lower() for name, to in casts.items() if not to.lower().startswith(_TEXTS)}
    fields = {each.name.lower(): each for each in frame.schema.fields}
    texts = {name for name, each in fields.items() if isinstance(each.dataType, StringType)}
    typed = [name for name in fields if name not in meant | texts]
    if not typed:
        return
    with spark_errors(f"The partitions of '{path}' cannot be listed"):
        values = _partition_values(frame.inputFiles(), options.get("basepath", path))
        for name in typed:
            changed = _first_changed(spark, values.get(name, ()), fields[name].dataType)
            if changed is not None:
                yield _changed_value(fields[name], *changed)


def _changed_value(field: StructField, text: str, value: str | None) -> Problem:
    name, type_name = field.name, field.dataType.simpleString()
    return blocker(
        f"'{name}={text}' would become {value}: set {_INFERENCE}=false in the session to keep the "
        f"texts; or, to convert them to {type_name}, give the option casts "
        f"(--cast {name}={type_name})",
        name,
    )


def _partition_values(uris: Iterable[str], base: str) -> dict[str, set[str]]:
    """Return the texts in the names of partition directories, by column in lower case."""
    names = PurePosixPath(urlsplit(base).path).parts
    depth = next((n for n, name in enumerate(names) if files.is_pattern(name)), len(names))
    found: dict[str, set[str]] = {}
    for uri in uris:
        for name in unquote(urlsplit(uri).path).split("/")[depth:-1]:
            text = unquote(name.partition("=")[2])
            if text and text != _NULL:
                found.setdefault(_column_of(name), set()).add(text)
    return found


def _first_changed(spark: Any, texts: Collection[str], data_type: DataType) -> Any:
    """Return a text with its text as a value of a type, if that is different; else None."""
    if not texts:
        return None
    frame = spark.createDataFrame([(text,) for text in sorted(texts)], "before string")
    value = F.col("before").try_cast(data_type).cast("string").alias("after")
    return frame.select("before", value).where("NOT before <=> after").first()


def _column_of(directory: str) -> str:
    return unquote(directory.partition("=")[0]).lower()
