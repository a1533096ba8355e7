"""Read the rows of files with the second reader, as hashes of the values of a new table.

pyarrow reads Parquet and ORC; CSV and JSON are parsed here.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from typing import Any
from urllib.parse import unquote

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from pyarrow import orc
from pyspark.sql import types as spark

from . import csv_check, json_check
from .columns import names_of, plain_type
from .csv_check import Cell, dialect_of
from .hashes import Hashes, IncomparableError, hashes
from .parquet_orc_avro import FileSchemas
from .storage import (
    Storage,
    UnreachableError,
    decode,
    encoding_of,
    is_wide,
    open_text,
    path_in,
    reason,
    spread,
)

_BATCH_BYTES, MOST_ROWS = 8 << 20, 1 << 14
"""Of a batch of rows: rows may hold images."""
_TYPE_TEXT, _DEFAULT = "__CHAR_VARCHAR_TYPE_STRING", "EXISTS_DEFAULT"
"""Keys in the metadata of Spark's columns."""
_CHAR = re.compile(r"\bchar\(", re.IGNORECASE)
_GROUPS = 10
"""The row groups of a sample."""
_NULL = "__HIVE_DEFAULT_PARTITION__"
_OF_PARTITIONS = (pa.types.is_string, pa.types.is_integer, pa.types.is_date, pa.types.is_boolean)


@dataclass(frozen=True)
class Column:
    """A column of a new table.

    Attributes:
        name: Its name in the source.
        field: Its name and type in the table.
        reason: Why its values are not compared, or "".
        settle: Removes from values what readers change, such as the spaces behind a ``char``.
        is_partition: Whether its values are those of directories.
        has_default: Whether Spark reads a value where a file has no such column.
    """

    name: str
    field: pa.Field
    reason: str = ""
    settle: Callable[[pa.Array], pa.Array] | None = None
    is_partition: bool = False
    has_default: bool = False

    def as_compared(self, values: pa.Array) -> pa.Array:
        """Return values without what readers change."""
        return values if self.settle is None else self.settle(values)

    def hashes(self, values: pa.Array, *, old_calendar: bool = False) -> Hashes:
        """Return the hashes of values as they are compared."""
        return hashes(self.as_compared(values), self.field.type, old_calendar=old_calendar)

    def hashes_of_directory(self, uri: str, rows: int) -> Hashes:
        """Return the hashes of a partition's value in so many rows; raises IncomparableError."""
        return np.full(rows, hashes(value_of_directory(self, uri), self.field.type)[0])


def columns_of(
    read: spark.StructType, table: pa.Schema, casts: Mapping[str, str], partitions: Sequence[str]
) -> list[Column]:
    """Return the columns of a new table.

    Args:
        read: The columns that Spark reads, in the order of the table's.
    """
    cast = {name.lower() for name in casts}
    inside = {name.lower() for name in partitions}
    found = []
    for field, new in zip(read.fields, table, strict=True):
        metadata = field.metadata or {}
        text = str(metadata.get(_TYPE_TEXT, ""))
        is_padded = isinstance(field.dataType, spark.StringType) and text.startswith("char")
        reason = ""
        if field.name.lower() in cast:
            reason = "its values are cast"
        elif "variant" in field.dataType.simpleString() or (_CHAR.search(text) and not is_padded):
            reason = "Spark changes its values as it reads them"
        is_partition = field.name.lower() in inside
        has_default = _DEFAULT in metadata
        settle = _without_spaces if is_padded else None
        found.append(Column(field.name, new, reason, settle, is_partition, has_default))
    return found


def _without_spaces(values: pa.Array) -> pa.Array:
    return pc.utf8_rtrim(values.cast(pa.string()), " ")


class FileRows:
    """The rows of files, of which each batch becomes the hashes of its values by column.

    Attributes:
        columns: The columns of the table whose values can be compared.
        left_out: Why the others cannot, by their names in the table.
        old_calendar: Whether days and times long ago may differ; see `hashes`.
    """

    def __init__(
        self,
        storage: Storage,
        format: str,
        files: Sequence[str],
        schemas: FileSchemas,
        columns: Sequence[Column],
    ) -> None:
        self._storage, self._format = storage, format
        self.files = files
        self.old_calendar = schemas.has_old_calendar
        self._data = [each.name for each in columns if not each.is_partition]
        reasons = [each.reason or self._reason(each, schemas) for each in columns]
        pairs = [*zip(columns, reasons, strict=True)]
        self.columns = [column for column, reason in pairs if not reason]
        self.left_out = {column.field.name: reason for column, reason in pairs if reason}

    def _reason(self, column: Column, schemas: FileSchemas) -> str:
        """Return why a column cannot be compared in all files, or ""."""
        try:
            if column.is_partition:
                for uri in self.files:
                    value_of_directory(column, uri)
                return ""
            for schema in schemas.schemas.values():
                self._require_comparable(column, schema)
        except IncomparableError:
            return "its type in the files is another one"
        return ""

    def _require_comparable(self, column: Column, schema: pa.Schema) -> None:
        stored = _position(self._stored(schema), column)
        if stored is None:
            if column.has_default:
                raise IncomparableError
            return
        of = schema.field(stored).type
        if self._format == "orc" and _has_time(of):  # they are in the zone of who reads them
            raise IncomparableError
        column.hashes(pa.array([], of))

    def _stored(self, schema: pa.Schema) -> dict[str, int]:
        """Return the positions of a file's columns by their names, also in lower case."""
        names = names_of(schema.names, self._data)
        exact = {name: number for number, name in enumerate(names)}
        return {name.lower(): number for name, number in exact.items()} | exact

    def all(self) -> Iterator[list[Hashes]]:
        """Yield the hashes of all rows by column, batch by batch.

        Raises:
            UnreachableError: A file cannot be read.
        """
        for uri in self.files:
            with self._opened(uri) as file:
                for batch in file.batches(range(file.groups)):
                    yield self._hashes(batch, uri)

    def sample(self, most: int) -> Iterator[list[Hashes]]:
        """Yield the hashes of the first rows of some row groups, of files from all over.

        Raises:
            UnreachableError: A file cannot be read.
        """
        files = spread(self.files, _GROUPS)
        for uri in files:
            with self._opened(uri) as file:
                numbers = spread(range(file.groups), max(_GROUPS // len(files), 1))
                for number in numbers:
                    batch = next(file.batches([number]), None)
                    if batch is not None:
                        yield self._hashes(batch.slice(0, max(most // _GROUPS, 1)), uri)

    @contextmanager
    def _opened(self, uri: str) -> Iterator[_Parquet | _Orc]:
        try:
            with self._storage.open(uri) as file:
                native = pa.PythonFile(file, mode="r")
                is_orc = self._format == "orc"
                yield _Orc(native, self._compared_in) if is_orc else _Parquet(native)
        except (pa.ArrowException, OSError) as error:
            raise UnreachableError(f"{uri}: {reason(error)}") from error

    def _compared_in(self, schema: pa.Schema) -> list[str]:
        """Return the names of a file's columns that are compared."""
        stored = self._stored(schema)
        found = (_position(stored, column) for column in self.columns)
        return [schema.names[number] for number in found if number is not None]

    def _hashes(self, batch: pa.RecordBatch, uri: str) -> list[Hashes]:
        stored, rows = self._stored(batch.schema), batch.num_rows
        found = []
        for column in self.columns:
            number = _position(stored, column)
            if column.is_partition:
                found.append(column.hashes_of_directory(uri, rows))
            elif number is None:
                found.append(hashes(pa.nulls(rows), column.field.type))
            else:
                found.append(column.hashes(batch.column(number), old_calendar=self.old_calendar))
        return found


def value_of_directory(column: Column, uri: str) -> pa.Array:
    """Return the value of a partition, from the name of its directory.

    Raises:
        IncomparableError: There is none of this name, or Spark alone knows its value.
    """
    of, wanted = plain_type(column.field.type), column.name.lower()
    names = (name.partition("=") for name in path_in(uri).split("/")[:-1])
    texts = [unquote(t) for name, sep, t in names if sep and unquote(name).lower() == wanted]
    if not texts or not any(check(of) for check in _OF_PARTITIONS):
        raise IncomparableError
    text = None if texts[-1] == _NULL else texts[-1]
    try:
        return column.as_compared(pa.array([text], pa.string()).cast(of))
    except pa.ArrowException as error:
        raise IncomparableError from error


def _position(stored: Mapping[str, int], column: Column) -> int | None:
    return stored.get(column.name, stored.get(column.name.lower()))


def _has_time(of: pa.DataType) -> bool:
    of = plain_type(of)
    parts = (of.field(number).type for number in range(of.num_fields))
    return pa.types.is_timestamp(of) or any(map(_has_time, parts))


class _Parquet:
    """An open file, whose rows are in groups."""

    def __init__(self, file: pa.NativeFile) -> None:
        # By default, INT96 becomes nanoseconds, which hold no times before 1677 or after 2262.
        self._file = pq.ParquetFile(file, coerce_int96_timestamp_unit="us")
        metadata = self._file.metadata
        self.groups = int(metadata.num_row_groups)
        size = sum(metadata.row_group(number).total_byte_size for number in range(self.groups))
        self._rows_at_once = rows_at_once(size, metadata.num_rows)

    def batches(self, groups: Iterable[int]) -> Iterator[pa.RecordBatch]:
        rows = self._rows_at_once
        yield from self._file.iter_batches(batch_size=rows, row_groups=[*groups])


class _Orc:
    def __init__(self, file: pa.NativeFile, compared_in: Callable[[pa.Schema], list[str]]) -> None:
        self._file = orc.ORCFile(file)
        # Without the others, of which pyarrow cannot read each value.
        self._names = compared_in(self._file.schema) or None
        self.groups = int(self._file.nstripes)

    def batches(self, groups: Iterable[int]) -> Iterator[pa.RecordBatch]:
        for number in groups:
            stripe = self._file.read_stripe(number, self._names)
            rows = rows_at_once(stripe.nbytes, stripe.num_rows)
            for start in range(0, stripe.num_rows, rows):
                yield stripe.slice(start, rows)


def rows_at_once(size: int, rows: int) -> int:
    """Return the number of rows of a batch: fewer of large rows, such as those with images."""
    return min(max(_BATCH_BYTES * rows // max(size, 1), 1), MOST_ROWS)


# -- texts -----------------------------------------------------------------------------------------


_CHANGING = ("mode", "emptyvalue", "nanvalue", "positiveinf", "negativeinf", "locale",
             "rescueddatacolumn", "singlevariantcolumn", "primitivesasstring", "prefersdecimal",
             "dropfieldifallnull", "allowcomments", "allowsinglequotes", "linesep")  # fmt: skip
"""Read options with which Spark makes other rows or values of a text."""
Values = Mapping[str, "Sequence[Any] | pa.ChunkedArray"]
"""The values of some rows by the name of their column in the files."""
_CHUNK = 8 << 20
_DOCUMENT_BYTES = 64 << 20


class TextRows:
    """The rows of CSV or JSON files; see `FileRows` for the attributes.

    While rows are read, more columns are left out.
    """

    old_calendar = False

    def __init__(
        self,
        storage: Storage,
        format: str,
        files: Sequence[str],
        options: Mapping[str, str],
        *,
        columns: Sequence[Column],
        read: spark.StructType,
    ) -> None:
        """Choose the columns of the table whose values can be compared.

        Raises:
            UnreachableError: With a read option, Spark makes other values.
        """
        self._storage, self._files = storage, files
        self._options = {key.lower(): value for key, value in options.items()}
        changing = next((each for each in _CHANGING if each in self._options), None)
        if changing is not None:
            raise UnreachableError(f"the read option {changing}")
        self._read = self._csv if format == "csv" else self._json
        self._is_csv = format == "csv"
        self.columns: list[Column] = []
        self.left_out: dict[str, str] = {}
        for column, field in zip(columns, read.fields, strict=True):
            reason = column.reason
            if column.is_partition:
                reason = reason or self._reason(column)
            elif field.name == json_check.CORRUPT or not _is_comparable(
                field.dataType, is_csv=self._is_csv
            ):
                reason = reason or "its texts become values of another type"
            if reason:
                self.left_out[column.field.name] = reason
                continue
            is_text = self._is_csv and isinstance(field.dataType, spark.StringType)
            settle = partial(_settle_text, self._options) if is_text else column.settle
            self.columns.append(replace(column, settle=settle))
        partitions = {column.name for column in columns if column.is_partition}
        self._new_names = {column.name: column.field.name for column in columns}
        self._data = [each for each in read.fields if each.name not in partitions]

    def _reason(self, column: Column) -> str:
        try:
            for uri in self._files:
                value_of_directory(column, uri)
        except IncomparableError:
            return "it is not in the names of directories"
        return ""

    def all(self) -> Iterator[list[Hashes]]:
        """Yield the hashes of all rows by column, batch by batch."""
        for uri in self._files:
            for count, values in self._read(uri):
                yield [self._hashes(column, count, values, uri) for column in self.columns]

    def _hashes(self, column: Column, count: int, found: Values, uri: str) -> Hashes:
        if column.is_partition:
            return column.hashes_of_directory(uri, count)
        try:
            given, of = found[column.name], column.field.type
            values = given.cast(of) if isinstance(given, pa.ChunkedArray) else pa.array(given, of)
        except (pa.ArrowException, OverflowError) as error:
            raise UnreachableError(f"values of column '{column.name}' in {uri}") from error
        return column.hashes(values)

    # -- CSV ---------------------------------------------------------------------------------------

    def _csv(self, uri: str) -> Iterator[tuple[int, Values]]:
        given = dialect_of(self._options)
        sample = csv_check.sample_of(self._storage, given, uri, is_local=True)
        if sample is None:
            return
        dialect, skipped = sample.dialect, int(sample.dialect.has_header)
        if is_wide(dialect.encoding):
            yield self._of_records(sample.records[skipped:])
            return
        names = [each.name for each in self._data]
        with open_text(self._storage, uri) as stream:
            for data in csv_check.chunks(stream, dialect):
                text = decode(data, dialect.encoding)
                table = csv_check.parsed(text, dialect, names, skipped)
                if table is not None:
                    yield table.num_rows, self._of_table(table)
                else:
                    yield self._of_records([*dialect.records(text)][skipped:])
                skipped = 0

    def _of_table(self, table: pa.Table) -> Values:
        return {
            field.name: table[field.name]
            if isinstance(field.dataType, spark.StringType)
            else [self._csv_value(each, field.dataType) for each in table[field.name].to_pylist()]
            for field in self._data
        }

    def _of_records(self, records: Sequence[Sequence[Cell]]) -> tuple[int, Values]:
        found: dict[str, list[Any]] = {each.name: [] for each in self._data}
        for record in records:
            for number, field in enumerate(self._data):
                text = record[number].text if number < len(record) else ""
                found[field.name].append(self._csv_value(text, field.dataType))
        return len(records), found

    def _csv_value(self, text: str, of: spark.DataType) -> Any:
        if isinstance(of, spark.StringType):
            return text
        if text in ("", self._options.get("nullvalue", "")):
            return None
        try:
            return _PARSERS[type(of)](text)
        except (KeyError, ValueError):  # Spark has null for it, which differs from any value
            return 0

    # -- JSON --------------------------------------------------------------------------------------

    def _json(self, uri: str) -> Iterator[tuple[int, Values]]:
        given = self._options.get("encoding", self._options.get("charset", ""))
        is_multiline = self._options.get("multiline", "").lower() == "true"
        with open_text(self._storage, uri) as stream:
            if is_multiline or is_wide(given):
                data = stream.read(_DOCUMENT_BYTES + 1)
                if len(data) > _DOCUMENT_BYTES:
                    raise UnreachableError(f"{uri}, which is large")
                text = decode(data, encoding_of(data, given, is_utf8=True))
                read = json_check.documents_of if is_multiline else json_check.lines_of
                yield self._of_objects(read(text))
                return
            while lines := stream.readlines(_CHUNK):
                text = decode(b"".join(lines), given)
                yield self._of_objects(json_check.lines_of(text))

    def _of_objects(self, objects: Iterable[Any]) -> tuple[int, Values]:
        rows = [
            self._json_struct({} if each is json_check.BROKEN else each, self._data, "")
            for each in objects
        ]
        return len(rows), {each.name: [row[each.name] for row in rows] for each in self._data}

    def _json_value(self, value: Any, of: spark.DataType, column: str) -> Any:
        if value is None:
            return None
        if isinstance(of, spark.StructType) and isinstance(value, dict):
            return self._json_struct(value, of.fields, column)
        if isinstance(of, spark.ArrayType) and isinstance(value, list):
            return [self._json_value(each, of.elementType, column) for each in value]
        if type(value) in _OF_JSON.get(type(of), ()):
            return float(value) if isinstance(of, spark.DoubleType) else value
        self.left_out[self._new_names[column]] = "Spark keeps another text of some of its values"
        return None

    def _json_struct(
        self, value: Mapping[str, Any], fields: Sequence[spark.StructField], column: str
    ) -> dict[str, Any]:
        cases = {name.lower(): each for name, each in value.items()}
        found = {}
        for field in fields:
            each = value.get(field.name, cases.get(field.name.lower()))
            found[field.name] = self._json_value(each, field.dataType, column or field.name)
        return found


_WHOLE = (spark.ByteType, spark.ShortType, spark.IntegerType, spark.LongType)
_PARSERS: Mapping[type[spark.DataType], Callable[[str], Any]] = {
    **dict.fromkeys(_WHOLE, int),
    spark.DoubleType: float,
    spark.BooleanType: lambda text: {"true": True, "false": False}[text.lower()],
}
_OF_JSON: Mapping[type[spark.DataType], tuple[type, ...]] = {
    **dict.fromkeys(_WHOLE, (int,)),
    spark.DoubleType: (int, float),
    spark.BooleanType: (bool,),
    spark.StringType: (str,),
}


def _is_comparable(of: spark.DataType, *, is_csv: bool) -> bool:
    if isinstance(of, spark.StructType) and not is_csv:
        return all(_is_comparable(each.dataType, is_csv=is_csv) for each in of.fields)
    if isinstance(of, spark.ArrayType) and not is_csv:
        return _is_comparable(of.elementType, is_csv=is_csv)
    return type(of) in _OF_JSON


def _settle_text(options: Mapping[str, str], values: pa.Array) -> pa.Array:
    """Return texts without what no reader of CSV keeps: null and empty are the same."""
    values = values.fill_null("")
    values = pc.replace_substring(values, "\r\n", "\n")
    if csv_check.strips(options):
        values = pc.utf8_trim_whitespace(values)
    null = options.get("nullvalue", "")
    return pc.if_else(pc.equal(values, null), "", values) if null else values


SourceRows = FileRows | TextRows
