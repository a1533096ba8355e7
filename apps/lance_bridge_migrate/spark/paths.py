"""Find out whether Spark would read other rows of a path than those of its table."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote

from pyspark.sql import DataFrame

from lance_bridge.errors import invalid, unsupported

from ..plan import Problem, blocker
from . import files

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
_SKIPPING_OPTIONS = ("ignoremissingfiles", "ignorecorruptfiles")


def check_read_options(read_options: Mapping[str, str]) -> None:
    """Raise InvalidInput (13) for options with which Spark reads other rows than the plan says."""
    for key, value in read_options.items():
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


def problems_of(spark: Any, table: SourceTable, frame: DataFrame) -> list[Problem]:
    """Return blockers for a path without snapshots whose partitions Spark would misread.

    Args:
        frame: The rows as Spark reads them.
    """
    if table.catalog or table.has_snapshots:
        return []
    options = {key.lower(): value for key, value in table.read_options.items()}
    if options.get("recursivefilelookup", "").lower() == "true":  # it has no partitions
        return []
    return list(_files_beside_partitions(spark, table.location, options, frame.columns))


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


def _column_of(directory: str) -> str:
    return unquote(directory.partition("=")[0]).lower()
