"""Files that this process reads with pyarrow, which has types that Spark does not have.

Examples are nanoseconds, times of day, float16 and decimals of more than 38 digits in Parquet.
"""

from __future__ import annotations

import base64
import re
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any

import pyarrow as pa
import pyarrow.dataset as ds
import pyarrow.fs as pafs
from lance_namespace.errors import ServiceUnavailableError, TableNotFoundError

from lance_bridge.dotted_names import first_names
from lance_bridge.errors import first_line, invalid

from .plan import Model, Problem, blocker, digest
from .spark.files import HIDDEN

_FORMATS: dict[str, Callable[[], ds.FileFormat]] = {
    "parquet": ds.ParquetFileFormat,
    "orc": ds.OrcFileFormat,
    "csv": ds.CsvFileFormat,
    "json": ds.JsonFileFormat,
    "arrow": ds.IpcFileFormat,
}
FORMATS = tuple(_FORMATS)
_URI = re.compile(r"[A-Za-z][A-Za-z0-9+.-]+:")
_S3 = re.compile(r"s3[an]://")
_THREADS = 16
_CHECKSUM = ".crc"
"""The suffix of files that Hadoop writes beside those in local directories."""
_BATCH: dict[str, int] = {"batch_size": 1024, "batch_readahead": 4, "fragment_readahead": 1}
_BATCH_BYTES = 4 << 20
"""Bounds of memory: rows may hold images."""
_WITH_COUNTS = ("parquet", "orc", "arrow")
"""Formats whose files say how many rows they have."""


class ArrowFiles(Model):
    """A directory or file, and what a later run needs to read the same rows.

    Attributes:
        path: A path or a URI of a file system that pyarrow has.
        format: One of `FORMATS`.
        sizes: The bytes of each file, by its path in the file system.
        columns: The union of the columns of all files and their partitions, as Arrow IPC in base64.
        left_out: Files that pyarrow does not read, because their names begin with . or _.
    """

    path: str
    format: str
    sizes: dict[str, int]
    columns: str
    left_out: tuple[str, ...] = ()

    @property
    def schema(self) -> pa.Schema:
        """The columns of the rows."""
        return pa.ipc.read_schema(pa.py_buffer(base64.b64decode(self.columns)))

    @property
    def bytes(self) -> int:
        """The size of all files."""
        return sum(self.sizes.values())

    @classmethod
    def at_path(cls, path: str, format: str, read_options: Mapping[str, str]) -> ArrowFiles:
        """Return the files of a directory, or one file.

        Raises:
            TableNotFoundError: (4) there are none.
            InvalidInputError: (13) the format, an option or the file system is not supported; a
                file is not in this format; or its columns do not fit those of the others.
            ServiceUnavailableError: (17)
        """
        if format not in FORMATS:
            raise invalid(f"pyarrow reads none of '{format}', only: {', '.join(FORMATS)}")
        if read_options:
            name = next(iter(read_options))
            raise invalid(f"With pyarrow, there are no options of the reader, such as {name}")
        sizes, left_out = _list_files(path)
        if not sizes:
            raise TableNotFoundError(f"There are no files to read at {path}")
        found = cls(path=path, format=format, sizes=sizes, columns="", left_out=tuple(left_out))
        columns = found._union()
        text = base64.b64encode(columns.serialize().to_pybytes()).decode()
        return found.model_copy(update={"columns": text})

    def fingerprint(self) -> str:
        """Return a digest of everything that the plan depends on."""
        return digest(self.model_dump(mode="json"))

    def problems(self) -> list[Problem]:
        """Return a blocker for files of this format that are left out because they are hidden."""
        kept = (each for each in self.left_out if not each.endswith(_CHECKSUM))
        left_out = [each for each in kept if f".{self.format}" in each]
        text = f"because their names begin with . or _: {first_names(left_out, 5)}"
        return [blocker(f"Files are left out {text}. Rename or remove them")] if left_out else []

    def count_rows(self) -> int:
        """Return the number of rows; for Parquet, ORC and Arrow, from the files' own figures."""
        with _reading(self.path):
            return int(self._dataset(self.schema).count_rows())

    def batches(self) -> Iterator[pa.RecordBatch]:
        """Yield the rows of all files, always in the same order.

        Raises:
            InvalidInputError: (13) a value does not fit its column.
            ServiceUnavailableError: (17)
        """
        with _reading(self.path):
            batch = {**_BATCH, "batch_size": self._rows_at_once()}
            yield from self._dataset(self.schema).scanner(**batch).to_batches()

    def _rows_at_once(self) -> int:
        most = _BATCH["batch_size"]
        if self.format not in _WITH_COUNTS:
            return most  # pyarrow reads them in blocks of bytes
        return min(max(_BATCH_BYTES * self.count_rows() // max(self.bytes, 1), 1), most)

    def _dataset(self, columns: pa.Schema) -> ds.FileSystemDataset:
        system, root = _file_system(self.path)
        return ds.dataset(
            list(self.sizes),
            schema=columns,
            format=_FORMATS[self.format](),
            filesystem=system,
            partitioning=ds.partitioning(flavor="hive", schema=None),
            partition_base_dir=root,
        )

    def _union(self) -> pa.Schema:
        """Return the columns of all files, each with the widest of its types.

        Raises InvalidInput (13), which names a file, if they have no common type.
        """
        with _reading(self.path):
            dataset = self._dataset(pa.schema([]))
            fragments = list(dataset.get_fragments())
            with ThreadPoolExecutor(_THREADS) as threads:
                schemas = list(threads.map(_schema_of, fragments))
        union = schemas[0]
        for fragment, schema in zip(fragments, schemas, strict=True):
            try:
                union = pa.unify_schemas([union, schema], promote_options="permissive")
            except pa.ArrowException as error:
                raise invalid(
                    f"The columns of {fragment.path} do not fit those of the files before it: "
                    f"{first_line(error)}"
                ) from error
        return self._with_partitions(union.remove_metadata())

    def _with_partitions(self, columns: pa.Schema) -> pa.Schema:
        system, root = _file_system(self.path)
        discovered = ds.HivePartitioning.discover()
        options = ds.FileSystemFactoryOptions(partition_base_dir=root, partitioning=discovered)
        factory = ds.FileSystemDatasetFactory(
            system, list(self.sizes), _FORMATS[self.format](), options
        )
        with _reading(self.path):
            for field in factory.inspect(fragments=0):
                if field.name not in columns.names:
                    columns = columns.append(field)
        return columns


def _schema_of(fragment: Any) -> pa.Schema:
    try:
        return fragment.physical_schema
    except (pa.ArrowException, OSError) as error:
        raise invalid(f"{fragment.path} cannot be read: {first_line(error)}") from error


@contextmanager
def _reading(path: str) -> Iterator[None]:
    """Raise pyarrow's errors as those of a namespace."""
    try:
        yield
    except pa.ArrowInvalid as error:
        raise invalid(f"'{path}' cannot be read: {first_line(error)}") from error
    except (OSError, pa.ArrowException) as error:
        raise ServiceUnavailableError(f"'{path}' cannot be read: {first_line(error)}") from error


def _file_system(path: str) -> tuple[pafs.FileSystem, str]:
    """Return pyarrow's file system of a path or URI, and the path in it.

    Raises:
        InvalidInputError: (13) pyarrow has none for it.
    """
    if not _URI.match(path):
        return pafs.LocalFileSystem(), path
    try:
        system, inside = pafs.FileSystem.from_uri(_S3.sub("s3://", path))
    except (OSError, pa.ArrowException, ValueError) as error:
        raise invalid(f"pyarrow cannot read {path}: {first_line(error)}") from error
    return system, inside


def _list_files(path: str) -> tuple[dict[str, int], list[str]]:
    """Return the size of each file to read, in order, and the hidden files below the path."""
    system, root = _file_system(path)
    with _reading(path):
        info = system.get_file_info(root)
        if info.type is pafs.FileType.NotFound:
            raise TableNotFoundError(f"There is nothing at {path}")
        if info.is_file:
            return {info.path: info.size}, []
        found = system.get_file_info(pafs.FileSelector(root, recursive=True))
    sizes, hidden = dict[str, int](), list[str]()
    for each in sorted(found, key=lambda item: str(item.path)):
        if not each.is_file:
            continue
        inside = str(each.path)[len(root.rstrip("/")) + 1 :]
        if any(map(HIDDEN.match, inside.split("/"))):
            hidden.append(inside)
        else:
            sizes[each.path] = each.size
    return sizes, hidden
