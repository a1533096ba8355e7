"""Read the columns and the numbers of rows of all Parquet and ORC files with pyarrow."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.parquet as pq
from pyarrow import orc

from .storage import Storage, UnreachableError

FORMATS = ("parquet", "orc")
_THREADS = 16


@dataclass(frozen=True)
class FileSchemas:
    """What the footers of all files of a source contain.

    Attributes:
        rows: The number of rows of all files.
        schemas: One file of each distinct schema, by its URI.
    """

    files: int
    rows: int
    schemas: Mapping[str, pa.Schema]


def read_all(storage: Storage, format: str, files: Sequence[str]) -> FileSchemas:
    """Read the footers of all files, however many; a sample could miss a column.

    Raises:
        UnreachableError: One cannot be read, such as an encrypted or a damaged file.
    """
    read = _parquet if format == "parquet" else _orc

    def read_one(uri: str) -> tuple[pa.Schema, int]:
        try:
            with storage.open(uri) as file:
                return read(pa.PythonFile(file, mode="r"))
        except (pa.ArrowException, OSError, ValueError) as error:
            raise UnreachableError(f"{uri}: {str(error).splitlines()[0][:200]}") from error

    with ThreadPoolExecutor(_THREADS) as pool:
        found = list(pool.map(read_one, files))
    # Not every extension type can be hashed.
    distinct: dict[bytes, tuple[str, pa.Schema]] = {}
    for uri, (schema, _) in zip(files, found, strict=True):
        distinct.setdefault(schema.serialize().to_pybytes(), (uri, schema))
    schemas = dict(distinct.values())
    return FileSchemas(len(files), sum(rows for _, rows in found), schemas)


def _parquet(file: pa.NativeFile) -> tuple[pa.Schema, int]:
    read = pq.ParquetFile(file)
    return read.schema_arrow.remove_metadata(), int(read.metadata.num_rows)


def _orc(file: pa.NativeFile) -> tuple[pa.Schema, int]:
    read = orc.ORCFile(file)
    return read.schema.remove_metadata(), int(read.nrows)
