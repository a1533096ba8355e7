"""The columns and the number of rows in files of Parquet, ORC and Avro.

They are in footers of Parquet and ORC, which pyarrow reads, and in headers of Avro, which this
module reads. One file of each distinct schema is also read by Spark.
"""

from __future__ import annotations

import io
import json
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any, BinaryIO

import pyarrow as pa
import pyarrow.parquet as pq
from py4j.protocol import Py4JError
from pyarrow import orc
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame
from pyspark.sql import types as spark

from ..plan import Problem, warning
from ..spark.session import spark_errors
from ..spark.sources import SourceTable
from .storage import Storage, UnreachableError, hadoop_path, reason, spread

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
    # Blocks of Avro are counted one by one, which is slow through Spark's file systems.
    may_count = format != "avro" or all(storage.is_local(uri) for uri in files[:1])

    def read_one(uri: str) -> _Footer:
        try:
            with storage.open(uri) as file:
                return _READERS[format](file, may_count)
        except (pa.ArrowException, OSError, ValueError, KeyError) as error:
            raise UnreachableError(f"{uri}: {reason(error)}") from error

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
    opened = pq.ParquetFile(pa.PythonFile(file, mode="r"))
    notes = opened.metadata.metadata or {}
    by = notes.get(_SPARK, _NO_OLD_SPARK)
    is_old = by < _NO_OLD_SPARK or any(each in notes for each in _OF_OLD_CALENDAR)
    return opened.schema_arrow.remove_metadata(), int(opened.metadata.num_rows), is_old


def _orc(file: BinaryIO, _: bool) -> _Footer:
    opened = orc.ORCFile(pa.PythonFile(file, mode="r"))
    return opened.schema.remove_metadata(), int(opened.nrows), True


def _avro(file: BinaryIO, may_count: bool) -> _Footer:
    columns = read_avro_columns(file)
    return columns, count_avro_rows(file) if may_count else None, False


_READERS = {"parquet": _parquet, "orc": _orc, "avro": _avro}
FORMATS = tuple(_READERS)


# -- types as Spark converts them ------------------------------------------------------------------


MAX_FILES = 100
"""The maximum number of files of a table whose columns Spark reads."""


@dataclass(frozen=True)
class SparkSchemas:
    """The columns of some files, as Spark reads them from their footers.

    Attributes:
        files: The number of files of the table.
        files_read: The number of files whose columns are known.
        schemas: One file of each distinct schema.
    """

    files: int
    files_read: int
    schemas: Mapping[str, spark.StructType]

    @property
    def is_complete(self) -> bool:
        return self.files_read == self.files


def read_by_spark(
    session: Any, table: SourceTable, frame: DataFrame, known: FileSchemas | None
) -> SparkSchemas | None:
    """Have Spark read the columns of a table's files, or of an evenly spaced sample.

    If the second reader has read the footers of all files, one file of each schema is enough.

    Returns None if they cannot be read: for other formats, Spark Connect, damaged files, and tables
    whose files Spark does not list.
    """
    if table.format not in ("parquet", "orc") or getattr(session, "_jvm", None) is None:
        return None
    found: dict[str, tuple[str, spark.StructType]] = {}
    try:
        files = [*known.schemas] if known is not None else sorted(frame.inputFiles())
        chosen = spread(files, MAX_FILES)
        if chosen and _is_directory(session, chosen[0]):
            return None  # Hive's reader lists the table's directory in place of its files
        for file in chosen:
            schema = session.read.format(table.format).load(_path(session, file)).schema
            found.setdefault(schema.json(), (file, schema))
    except (PySparkException, Py4JError):
        return None
    if not found:
        return None
    count = len(files) if known is None else known.files
    read_of = count if len(chosen) == len(files) else len(chosen)
    return SparkSchemas(count, read_of, dict(found.values()))


def _is_directory(session: Any, uri: str) -> bool:
    path = hadoop_path(session, uri)
    files = path.getFileSystem(session._jsparkSession.sessionState().newHadoopConf())
    return bool(files.getFileStatus(path).isDirectory())


def _path(session: Any, uri: str) -> str:
    """Return Hadoop's path for a percent-encoded URI."""
    return str(hadoop_path(session, uri).toString())


def check_types(
    session: Any, table: SourceTable, columns: spark.StructType, found_types: SparkSchemas
) -> Iterator[Problem]:
    """Check that a table's files can be read with its types; warn if only a sample was checked.

    If a type differs in a file, Spark reads a row of the file, because it can widen some types.

    Args:
        columns: The schema with which Spark reads the table.

    Raises:
        InvalidInputError: (13) a file cannot be read; the message names it.
        ServiceUnavailableError: (17)
    """
    declared = {field.name.lower(): _type(field) for field in columns.fields}
    for file, found in found_types.schemas.items():
        names = {field.name.lower(): _type(field) for field in found.fields}
        common = set(names) & set(declared)
        # Without common names, columns may be matched by position, as in ORC files of Hive.
        if not common or any(names[name] != declared[name] for name in common):
            _read_one(session, table, columns, file)
    if not found_types.is_complete:
        yield warning(
            f"The types of {found_types.files_read} of its {found_types.files:,} files were "
            "compared with those of its columns"
        )


def _type(field: spark.StructField) -> str:
    return field.dataType.simpleString().lower()


def _read_one(session: Any, table: SourceTable, columns: spark.StructType, file: str) -> None:
    partitions = {name.lower() for name in table.partitions}
    kept = [field for field in columns.fields if field.name.lower() not in partitions]
    with spark_errors(
        f"The rows of '{table.name}' cannot be read with the types of its columns ({file})"
    ):
        reader = session.read.schema(spark.StructType(kept)).format(table.format)
        reader.load(_path(session, file)).limit(1)._jdf.collect()


# -- Avro ------------------------------------------------------------------------------------------


_MAGIC = b"Obj\x01"
_SYNC = 16
_SCHEMA = "avro.schema"
_LONGEST_NUMBER = 10
"""The bytes of a number of 64 bits."""
_LARGEST = 64 << 20
"""The largest value in a header; a larger size is that of a damaged file."""

_PLAIN: Mapping[str, pa.DataType] = {
    "null": pa.null(),
    "boolean": pa.bool_(),
    "int": pa.int32(),
    "long": pa.int64(),
    "float": pa.float32(),
    "double": pa.float64(),
    "bytes": pa.binary(),
    "string": pa.string(),
    "enum": pa.string(),
    "fixed": pa.binary(),
}
_LOGICAL: Mapping[str, pa.DataType] = {
    "date": pa.date32(),
    "timestamp-millis": pa.timestamp("ms", "UTC"),
    "timestamp-micros": pa.timestamp("us", "UTC"),
    "local-timestamp-millis": pa.timestamp("ms"),
    "local-timestamp-micros": pa.timestamp("us"),
}
_UNKNOWN = pa.null()
"""The type of what Spark alone knows: it is not compared."""


def read_avro_columns(file: BinaryIO) -> pa.Schema:
    """Return the columns of a file, and read to the end of its header.

    Raises:
        ValueError: It is no Avro file, or is damaged.
    """
    if file.read(len(_MAGIC)) != _MAGIC:
        raise ValueError("it is no Avro file")
    header = _map(file)
    file.seek(_SYNC, io.SEEK_CUR)
    return schema_of_avro(json.loads(header[_SCHEMA]))


def count_avro_rows(file: BinaryIO) -> int:
    """Return the number of rows of a file that was read to the end of its header.

    Raises:
        ValueError: It is damaged.
    """
    rows = 0
    while (count := _number(file, may_end=True)) is not None:
        size = _number(file)
        file.seek(size + _SYNC, io.SEEK_CUR)
        rows += count
    return rows


def schema_of_avro(avro: Any) -> pa.Schema:
    """Return the columns of a schema of Avro, as Spark reads them."""
    found = _Types().of(avro)
    if not pa.types.is_struct(found):
        raise ValueError("its rows are no records")
    return pa.schema([*found])


def _map(file: BinaryIO) -> dict[str, bytes]:
    found = {}
    while count := _number(file):
        if count < 0:
            _number(file)
        for _ in range(abs(count)):
            key = _value(file).decode()
            found[key] = _value(file)
    if _SCHEMA not in found:
        raise ValueError("it has no schema")
    return found


def _value(file: BinaryIO) -> bytes:
    size = _number(file)
    data = file.read(size) if 0 <= size <= _LARGEST else b""
    if len(data) != size:
        raise ValueError("its header is damaged")
    return data


def _number(file: BinaryIO, *, may_end: bool = False) -> Any:
    """Return a number in Avro's encoding; None at the end of a file, if it may end."""
    found = 0
    for position in range(_LONGEST_NUMBER):
        [*byte] = file.read(1)
        if not byte:
            if may_end and not position:
                return None
            raise ValueError("it ends too early")
        found |= (byte[0] & 0x7F) << (7 * position)
        if byte[0] < 0x80:
            return (found >> 1) ^ -(found & 1)
    raise ValueError("it is damaged")


class _Types:
    """Arrow types of Avro's, with those that have a name."""

    def __init__(self) -> None:
        self._named: dict[str, pa.DataType] = {}
        self._namespace = ""

    def of(self, avro: Any) -> pa.DataType:
        if isinstance(avro, list):
            return self._union(avro)
        if isinstance(avro, str):
            return _PLAIN.get(avro) or self._named.get(self._full_name(avro), _UNKNOWN)
        kind = avro["type"]
        if kind == "record":
            return self._record(avro)
        if kind == "array":
            return pa.list_(self.of(avro["items"]))
        if kind == "map":
            return pa.map_(pa.string(), self.of(avro["values"]))
        found = _logical(avro) or (_PLAIN.get(kind) if isinstance(kind, str) else None)
        found = found or self.of(kind)
        if "name" in avro:
            self._add(avro, found)
        return found

    def _add(self, avro: Any, found: pa.DataType) -> None:
        name = str(avro["name"])
        if avro.get("namespace") and "." not in name:
            name = f"{avro['namespace']}.{name}"
        self._named[self._full_name(name)] = found

    def _full_name(self, name: str) -> str:
        return name if "." in name or not self._namespace else f"{self._namespace}.{name}"

    def _union(self, avro: list[Any]) -> pa.DataType:
        found = [self.of(each) for each in avro if each != "null"]
        if len(found) == 1:
            return found[0]
        for numbers in ((pa.int32(), pa.int64()), (pa.float32(), pa.float64())):
            if found and {*found} == {*numbers}:
                return numbers[-1]
        return _UNKNOWN

    def _record(self, avro: Any) -> pa.DataType:
        self._add(avro, _UNKNOWN)  # until it is known, as in a type that contains itself
        outer = self._namespace
        self._namespace = avro.get("namespace") or str(avro["name"]).rpartition(".")[0] or outer
        found = pa.struct([(each["name"], self.of(each["type"])) for each in avro["fields"]])
        self._namespace = outer
        self._add(avro, found)
        return found


def _logical(avro: Any) -> pa.DataType | None:
    name = avro.get("logicalType")
    if name == "decimal":
        precision, scale = int(avro["precision"]), int(avro.get("scale", 0))
        return pa.decimal128(precision, scale) if precision <= 38 else _UNKNOWN
    return _LOGICAL.get(name)
