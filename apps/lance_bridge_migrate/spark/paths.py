"""Find out whether Spark would read other rows of a path than those of its table."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from pathlib import PurePosixPath
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote, urlsplit

from pyspark.sql import DataFrame
from pyspark.sql import functions as F
from pyspark.sql.types import DataType, StringType, StructField

from lance_bridge.errors import invalid, unsupported

from ..plan import Problem, blocker
from . import files
from .session import spark_errors

if TYPE_CHECKING:
    from .sources import SourceTable

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
            if files.has_match(spark, directory, name):
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
    options = {key.lower(): value for key, value in table.read_options.items()}
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
    spark: Any,
    path: str,
    options: Mapping[str, str],
    frame: DataFrame,
    casts: Mapping[str, str],
) -> Iterator[Problem]:
    """Yield a blocker for each partition column of which Spark changes a value, as 01 to 1.

    Columns with a cast to a type other than text are meant to change.
    """
    meant = {name.lower() for name, to in casts.items() if not to.lower().startswith(_TEXTS)}
    fields = {each.name.lower(): each for each in frame.schema.fields}
    typed = [n for n, f in fields.items() if n not in meant and not _is_text(f.dataType)]
    if not typed:
        return
    with spark_errors(f"The partitions of '{path}' cannot be listed"):
        values = _partition_values(frame.inputFiles(), options.get("basepath", path))
        for name in typed:
            changed = _first_changed(spark, values.get(name, ()), fields[name].dataType)
            if changed is not None:
                yield _changed_value(fields[name], *changed)


def _is_text(data_type: DataType) -> bool:
    return isinstance(data_type, StringType)


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
