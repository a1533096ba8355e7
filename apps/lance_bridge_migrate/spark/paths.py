"""Find out whether Spark would read other rows of a path than those of its table."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from lance_bridge.errors import invalid, unsupported

from . import files

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
