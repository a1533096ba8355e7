"""Find the files of a source that Spark skips because of their names, and unknown partitions."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from fnmatch import fnmatchcase
from pathlib import PurePosixPath
from urllib.parse import unquote, urlsplit

from .storage import Storage, StoredFile

_HIDDEN = re.compile(r"\.|_(?!.*=)|.*\._COPYING_$")
"""Names that Spark ignores."""
_OF_NO_TABLE = (
    "_SUCCESS", "_metadata", "_common_metadata", "_committed_*", "_started_*", ".*.crc",
    ".DS_Store", "._*", ".git*", ".hive-staging*", "_temporary", ".spark-staging*",
    "_spark_metadata", ".part-*", "_delta_log", ".hoodie*", ".ipynb_checkpoints", ".cache",
    "_tmp*", ".tmp*", ".Trash*", ".snapshot",
)  # fmt: skip
"""Hidden names of markers, checksums and uncommitted files."""
_SUFFIXES = {
    "parquet": (".parquet", ".pq", ".parq"),
    "orc": (".orc",),
    "avro": (".avro",),
    "csv": (".csv", ".tsv", ".txt"),
    "json": (".json", ".jsonl", ".ndjson"),
}
_COMPRESSED = (".gz", ".bz2", ".zst", ".snappy", ".lz4", ".deflate", ".xz")
_MAGIC = {"parquet": b"PAR1", "orc": b"ORC", "avro": b"Obj\x01"}


def hidden_files(storage: Storage, format: str, stored: Iterable[StoredFile]) -> list[str]:
    """Return the paths of files with rows of a format that Spark skips because of a name.

    Markers, checksums and directories of jobs that did not commit are no files of a table.
    """
    found = []
    for each in stored:
        names = PurePosixPath(each.inside).parts
        hidden = [name for name in names if _HIDDEN.match(name)]
        if not hidden or not each.size or any(_is_of_no_table(name) for name in hidden):
            continue
        if _has_rows(storage, format, each):
            found.append(each.path)
    return sorted(found)


def visible(stored: Iterable[StoredFile]) -> Iterator[StoredFile]:
    """Yield the files that have no hidden name in their path."""
    for each in stored:
        if each.size and not any(_HIDDEN.match(name) for name in PurePosixPath(each.inside).parts):
            yield each


def _is_of_no_table(name: str) -> bool:
    return any(fnmatchcase(name, pattern) for pattern in _OF_NO_TABLE)


def _has_rows(storage: Storage, format: str, file: StoredFile) -> bool:
    name = file.path.lower()
    for suffix in _COMPRESSED:
        name = name.removesuffix(suffix)
    if name.endswith(_SUFFIXES.get(format, ())):
        return True
    magic = _MAGIC.get(format)
    if magic is None or not storage.is_local(file.path):
        return False
    with storage.open(file.uri) as opened:
        return opened.read(len(magic)) == magic


def unregistered_partitions(
    stored: Iterable[StoredFile], registered: Sequence[str], levels: int
) -> Iterator[str]:
    """Yield the directories of partitions that have files, and are not in the catalog.

    Args:
        registered: The locations of the partitions in the catalog.
        levels: The number of partition columns.
    """
    known = {_path(each) for each in registered}
    seen = set()
    for each in stored:
        names = PurePosixPath(each.inside).parts
        directories = names[:levels]
        if len(names) <= levels or not all("=" in name for name in directories):
            continue
        if any(_HIDDEN.match(name) for name in names) or not each.size:
            continue
        root = each.path[: len(each.path) - len(each.inside)].rstrip("/")
        directory = f"{root}/{'/'.join(directories)}"
        if directory not in known and directory not in seen:
            seen.add(directory)
            yield directory


def _path(location: str) -> str:
    """Return the path of a catalog's location, which is not always percent-encoded."""
    path = urlsplit(location).path if ":/" in location else location
    return unquote(path).rstrip("/") if "%" in location and ":/" in location else path.rstrip("/")
