"""Read the columns and the numbers of rows of all Parquet, ORC and Avro files."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import BinaryIO

import pyarrow as pa
import pyarrow.parquet as pq
from pyarrow import orc

from . import avro_files
from .storage import Storage, UnreachableError

_THREADS = 16
_SPARK, _NO_OLD_SPARK = b"org.apache.spark.version", b"3"
_OF_OLD_CALENDAR = (b"org.apache.spark.legacyDateTime", b"org.apache.spark.legacyINT96")
"""Keys in the metadata of Parquet files that Spark wrote."""


@dataclass(frozen=True)
class FileSchemas:
    """What the footers of all files of a source contain.

    Attributes:
        rows: The number of rows of all files; None if counting them would take long.
        schemas: One file of each distinct schema, by its URI.
        has_old_calendar: Whether a file has days and times of the calendar before 1582.
    """

    files: int
    rows: int | None
    schemas: Mapping[str, pa.Schema]
    has_old_calendar: bool = False


def read_all(storage: Storage, format: str, files: Sequence[str]) -> FileSchemas:
    """Read the footers of all files, however many; a sample could miss a column.

    Raises:
        UnreachableError: One cannot be read, such as an encrypted or a damaged file.
    """
    read = _READERS[format]
    # Blocks of Avro are counted one by one, which is slow through Spark's file systems.
    may_count = format != "avro" or all(storage.is_local(uri) for uri in files[:1])

    def read_one(uri: str) -> _Footer:
        try:
            with storage.open(uri) as file:
                return read(file, may_count)
        except (pa.ArrowException, OSError, ValueError, KeyError) as error:
            raise UnreachableError(f"{uri}: {str(error).splitlines()[0][:200]}") from error

    with ThreadPoolExecutor(_THREADS) as pool:
        found = list(pool.map(read_one, files))
    # Not every extension type can be hashed.
    distinct: dict[bytes, tuple[str, pa.Schema]] = {}
    for uri, (schema, _, _) in zip(files, found, strict=True):
        distinct.setdefault(schema.serialize().to_pybytes(), (uri, schema))
    schemas = dict(distinct.values())
    is_old = any(each for _, _, each in found)
    counts = [rows for _, rows, _ in found]
    rows = None if None in counts else sum(each or 0 for each in counts)
    return FileSchemas(len(files), rows, schemas, is_old)


_Footer = tuple[pa.Schema, int | None, bool]
"""The columns, the number of rows, and whether the file has the calendar before 1582."""


def _parquet(file: BinaryIO, _: bool) -> _Footer:
    read = pq.ParquetFile(pa.PythonFile(file, mode="r"))
    notes = read.metadata.metadata or {}
    by = notes.get(_SPARK, _NO_OLD_SPARK)
    is_old = by < _NO_OLD_SPARK or any(each in notes for each in _OF_OLD_CALENDAR)
    return read.schema_arrow.remove_metadata(), int(read.metadata.num_rows), is_old


def _orc(file: BinaryIO, _: bool) -> _Footer:
    read = orc.ORCFile(pa.PythonFile(file, mode="r"))
    return read.schema.remove_metadata(), int(read.nrows), True


def _avro(file: BinaryIO, may_count: bool) -> _Footer:
    columns = avro_files.read_columns(file)
    return columns, avro_files.count_rows(file) if may_count else None, False


_READERS = {"parquet": _parquet, "orc": _orc, "avro": _avro}
FORMATS = tuple(_READERS)
