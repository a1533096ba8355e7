"""List, open and sample the files of a source for the second reader.

Local files are opened by Python. Files of other storages are read through Spark's file systems,
which have the credentials; what parses the bytes is the second reader in both cases. Samples are
small files with some records, which both readers read in the same way.
"""

from __future__ import annotations

import bz2
import codecs
import gzip
import io
import os
import re
import tempfile
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import Path, PurePosixPath
from typing import Any, BinaryIO, TypeVar, cast
from urllib.parse import unquote, urlsplit

from py4j.protocol import Py4JError
from pyspark.errors import PySparkException
from pyspark.sql import types as spark

from ..plan import Problem, warning
from ..spark import files
from ..spark.session import java_class

_BLOCK = 1 << 16


class UnreachableError(Exception):
    """A storage or a file that the second reader cannot read; the message is the reason."""


@dataclass(frozen=True)
class StoredFile:
    """A file below the directory of a source.

    Attributes:
        path: The path without scheme and host, not percent-encoded.
        inside: The path relative to the source's directory.
    """

    path: str
    inside: str
    size: int

    @property
    def uri(self) -> str:
        """The URI of a file on this machine."""
        return PurePosixPath(self.path).as_uri()


class Storage:
    """The file systems of a Spark session, read without Spark's readers.

    Attributes:
        local_schemes: The schemes of URIs whose files Python opens.
    """

    local_schemes: tuple[str, ...] = ("", "file")

    def __init__(self, session: Any) -> None:
        self._session = session
        self._conf = session._jsparkSession.sessionState().newHadoopConf()

    def is_local(self, uri: str) -> bool:
        """Return whether Python can open the files of a path or URI."""
        try:
            system, path = self._system(uri)
            return str(system.makeQualified(path).toUri().getScheme()) in self.local_schemes
        except Py4JError as error:
            raise UnreachableError(reason(error)) from error

    def open(self, uri: str) -> BinaryIO:
        """Open a file by its percent-encoded URI.

        Raises:
            UnreachableError: It cannot be read.
        """
        parts = urlsplit(uri)
        try:
            if parts.scheme in self.local_schemes:
                return Path(unquote(parts.path)).open("rb")
            path = hadoop_path(self._session, uri)
            return io.BufferedReader(_HadoopFile(self._session, self._conf, path), _BLOCK)
        except (OSError, Py4JError) as error:
            raise UnreachableError(reason(error)) from error

    def files_below(self, location: str) -> list[StoredFile]:
        """Return all files below a directory, or below the directories that a glob matches.

        Raises:
            UnreachableError: They cannot be listed.
        """
        try:
            system, path = self._system(location)
            if not files.is_pattern(location):
                return [*self._below(system, path)]
            found = system.globStatus(path) or ()
            return [each for status in found for each in self._below(system, status.getPath())]
        except (OSError, Py4JError) as error:
            raise UnreachableError(reason(error)) from error

    def _system(self, location: str) -> tuple[Any, Any]:
        path = java_class(self._session, "org.apache.hadoop.fs.Path")(location)
        return path.getFileSystem(self._conf), path

    def _below(self, system: Any, path: Any) -> Iterator[StoredFile]:
        uri = system.makeQualified(path).toUri()
        root = str(uri.getPath())
        if str(uri.getScheme()) in self.local_schemes:
            yield from _local_files(root)
            return
        waiting = [] if system.isFile(path) else [path]
        while waiting:
            for status in system.listStatus(waiting.pop()):
                found = status.getPath()
                if status.isDirectory():
                    waiting.append(found)
                    continue
                name = str(found.toUri().getPath())
                yield StoredFile(name, name[len(root) :].lstrip("/"), int(status.getLen()))


def hadoop_path(session: Any, uri: str) -> Any:
    """Return Hadoop's path for a percent-encoded URI."""
    found = java_class(session, "java.net.URI")(uri)
    return java_class(session, "org.apache.hadoop.fs.Path")(found)


def path_in(uri: str) -> str:
    """Return the path of a percent-encoded URI."""
    return unquote(urlsplit(uri).path)


def _local_files(root: str) -> Iterator[StoredFile]:
    for directory, _, names in os.walk(root):
        for name in names:
            path = os.path.join(directory, name)
            if os.path.isfile(path):
                size = os.path.getsize(path)
                yield StoredFile(path, os.path.relpath(path, root), size)


def reason(error: Exception) -> str:
    """Return the first line of an error that says something."""
    lines = [each.strip() for each in str(error).splitlines() if each.strip()]
    text = lines[1] if len(lines) > 1 and isinstance(error, Py4JError) else "".join(lines[:1])
    return text.removeprefix(": ")[:200] or type(error).__name__


class _HadoopFile(io.RawIOBase):
    """A file of one of Hadoop's file systems, as Python reads files."""

    def __init__(self, session: Any, conf: Any, path: Any) -> None:
        super().__init__()
        system = path.getFileSystem(conf)
        self._size = int(system.getFileStatus(path).getLen())
        self._stream = system.open(path)
        self._utils = java_class(session, "org.apache.commons.io.IOUtils")
        self._at = 0

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        start = {io.SEEK_SET: 0, io.SEEK_CUR: self._at, io.SEEK_END: self._size}[whence]
        self._at = max(start + offset, 0)
        return self._at

    def readinto(self, buffer: Any) -> int:
        wanted = min(len(buffer), self._size - self._at)
        if wanted <= 0:
            return 0
        try:
            self._stream.seek(self._at)
            found = bytes(self._utils.toByteArray(self._stream, wanted))
        except Py4JError as error:
            raise OSError(reason(error)) from error
        buffer[:wanted] = found
        self._at += wanted
        return wanted

    def close(self) -> None:
        if not self.closed:
            self._stream.close()
        super().close()


# -- texts -----------------------------------------------------------------------------------------


LATIN = "ISO-8859-1"
_WIDE = {codecs.BOM_UTF16_LE: "UTF-16", codecs.BOM_UTF16_BE: "UTF-16"}
_NOT_OPENED = (".zst", ".snappy", ".lz4", ".deflate", ".xz", ".lzo")


def open_text(storage: Storage, uri: str) -> BinaryIO:
    """Open a file, decompressed.

    Raises:
        UnreachableError: It cannot be read, or has a compression that Python does not have.
    """
    name = uri.lower()
    if name.endswith(_NOT_OPENED):
        raise UnreachableError(f"{uri} is compressed in a way that it does not know")
    file = storage.open(uri)
    if name.endswith(".gz"):
        return cast("BinaryIO", gzip.open(file))
    return cast("BinaryIO", bz2.open(file)) if name.endswith(".bz2") else file


def encoding_of(data: bytes, given: str, *, is_utf8: bool) -> str:
    """Return the encoding of a text: the given one, or what it must be if that is UTF-8."""
    if given:
        return given
    wide = next((name for mark, name in _WIDE.items() if data.startswith(mark)), "")
    return wide or ("" if is_utf8 else LATIN)


def is_wide(encoding: str) -> bool:
    """Return whether the bytes of a line break are not those of ASCII."""
    return encoding.upper().replace("-", "").startswith(("UTF16", "UTF32"))


def decode(data: bytes, encoding: str) -> str:
    """Return a text without its mark of the byte order.

    Raises:
        UnreachableError: It is not in this encoding, or Python does not know that.
    """
    try:
        return data.decode(encoding or "utf-8").removeprefix("\ufeff")
    except (UnicodeDecodeError, LookupError) as error:
        raise UnreachableError(str(error)[:200]) from error


# -- skipped files ---------------------------------------------------------------------------------


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
        if (
            not hidden
            or not each.size
            or any(fnmatchcase(name, p) for name in hidden for p in _OF_NO_TABLE)
        ):
            continue
        if _has_rows(storage, format, each):
            found.append(each.path)
    return sorted(found)


def visible(stored: Iterable[StoredFile]) -> Iterator[StoredFile]:
    """Yield the files that have no hidden name in their path."""
    for each in stored:
        if each.size and not any(_HIDDEN.match(name) for name in PurePosixPath(each.inside).parts):
            yield each


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
) -> set[str]:
    """Return the directories of partitions that have files, and are not in the catalog.

    Args:
        registered: The locations of the partitions in the catalog.
        levels: The number of partition columns.
    """
    found = set()
    for each in stored:
        names = PurePosixPath(each.inside).parts
        directories = names[:levels]
        if len(names) <= levels or not all("=" in name for name in directories):
            continue
        if any(_HIDDEN.match(name) for name in names) or not each.size:
            continue
        root = each.path[: len(each.path) - len(each.inside)].rstrip("/")
        found.add(f"{root}/{'/'.join(directories)}")
    return found - {_path(each) for each in registered}


def _path(location: str) -> str:
    """Return the path of a catalog's location, which is not always percent-encoded."""
    return (path_in(location) if ":/" in location else location).rstrip("/")


# -- samples ---------------------------------------------------------------------------------------


_Item = TypeVar("_Item")
_Sample = TypeVar("_Sample")
_MOST = 20
"""The maximum number of files with odd records whose samples are compared, and of those without."""
REMOTE_BYTES = 1 << 20
"""The first bytes of a file on another machine, which are its sample."""
ACCEPT = "accept_differences (--accept-differences)"
"""The option that makes blockers warnings."""
NOT_READ = warning("Spark could not read a sample of its rows beside the second reader")
_THREADS = 4
_SHOWN = 60
_FILE = "__file"
_OF_FILES = ("pathglobfilter", "modifiedbefore", "modifiedafter", "recursivefilelookup", "basepath")
"""Options that choose files, of which a sample has its own."""


@dataclass(frozen=True)
class Samples:
    """Samples in a directory, read by Spark with options that may be tried one after another."""

    session: Any
    format: str
    directory: Path
    names: Sequence[str]

    def read(
        self, options: Mapping[str, str], columns: spark.StructType | None
    ) -> tuple[spark.StructType, list[list[Any]]] | None:
        """Return Spark's columns and its rows of each sample; None if it cannot read them.

        Args:
            columns: The columns to read; None to have Spark infer them.
        """
        reader = self.session.read.format(self.format).option("enforceSchema", "true")
        reader = reader.options(**{k: v for k, v in options.items() if k.lower() not in _OF_FILES})
        if columns is not None:
            reader = reader.schema(columns)
        try:
            frame = reader.load(self.directory.as_uri())
            name = frame.metadataColumn("_metadata").getField("file_name").alias(_FILE)
            rows = frame.select("*", name).collect()
        except (PySparkException, Py4JError):
            return None
        found: dict[str, list[Any]] = {each: [] for each in self.names}
        for row in rows:
            found[row[len(row) - 1]].append(row)
        return frame.schema, [found[each] for each in self.names]


@contextmanager
def written(session: Any, format: str, texts: Sequence[bytes]) -> Iterator[Samples]:
    """Write samples to a temporary directory of this machine."""
    with tempfile.TemporaryDirectory(prefix="lance-bridge-sample-") as name:
        names = [f"{number:05d}.{format}" for number in range(len(texts))]
        for each, text in zip(names, texts, strict=True):
            (Path(name) / each).write_bytes(text)
        yield Samples(session, format, Path(name), names)


def spread(items: Sequence[_Item], most: int) -> list[_Item]:
    """Return at most so many files or numbers, evenly spaced from the first to the last."""
    if len(items) <= most:
        return list(items)
    last = len(items) - 1
    return [items[number * last // max(most - 1, 1)] for number in range(most)]


def samples_of(
    files: Sequence[str], sample: Callable[[str], _Sample | None], *, is_local: bool
) -> tuple[list[_Sample], list[Problem]]:
    """Return the samples of all files, or of some that are not on this machine, with a warning.

    Args:
        sample: Returns the sample of a file; None if it is empty.
    """
    chosen = files if is_local else spread(files, _MOST)
    with ThreadPoolExecutor(_THREADS) as threads:
        samples = [each for each in threads.map(sample, chosen) if each is not None]
    if is_local:
        return samples, []
    text = (
        f"The second reader compared the first {REMOTE_BYTES >> 20} MB of {len(samples)} of its "
        f"{len(files):,} files, because they are not on this machine"
    )
    return samples, [warning(text)]


def most_useful(samples: Sequence[_Sample], is_odd: Callable[[_Sample], object]) -> list[_Sample]:
    """Return the samples to compare: those with odd records first."""
    odd = [each for each in samples if is_odd(each)]
    plain = [each for each in samples if not is_odd(each)]
    return odd[:_MOST] + spread(plain, _MOST)


def shortened(text: str) -> str:
    """Return a text, or its first characters, for a message."""
    return text if len(text) <= _SHOWN else f"{text[:_SHOWN]}…"


def correction(options: Mapping[str, str] | None) -> str:
    """Return the advice to give some read options; if there are none, to correct the file."""
    if options is None:
        return f"correct the file, or accept what Spark reads with the option {ACCEPT}"
    return f"give the read options with which both agree ({as_arguments(options)})"


def as_arguments(options: Mapping[str, str]) -> str:
    """Return read options as a shell takes them."""
    texts = [f"{key}={value}" for key, value in options.items()]
    shown = [f"$'{t!r}'".replace("''", "'") if "\n" in t else f"'{t}'" for t in texts]
    return " ".join(f"--read-option {each}" for each in shown)
