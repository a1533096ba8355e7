"""Read all rows of CSV and JSON files with the second reader, as hashes of a new table's values."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import types as spark

from . import csv_check, csv_files, json_check
from .csv_files import Cell, dialect_of
from .file_rows import Column, value_of_directory
from .hashes import Hashes, IncomparableError, hashes
from .storage import Storage, UnreachableError, decode, encoding_of, is_wide, open_text

_CHANGING = ("mode", "emptyvalue", "nanvalue", "positiveinf", "negativeinf", "locale",
             "rescueddatacolumn", "singlevariantcolumn", "primitivesasstring", "prefersdecimal",
             "dropfieldifallnull", "allowcomments", "allowsinglequotes", "linesep")  # fmt: skip
"""Read options with which Spark makes other rows or values of a text."""
Values = Mapping[str, "Sequence[Any] | pa.ChunkedArray"]
"""The values of some rows by the name of their column in the files."""
_CORRUPT = "_corrupt_record"
_CHUNK = 8 << 20
_DOCUMENT_BYTES = 64 << 20


class TextRows:
    """The rows of CSV or JSON files; see `FileRows` for the attributes.

    While rows are read, more columns are left out.
    """

    old_calendar = False

    def __init__(
        self, storage: Storage, format: str, files: Sequence[str], options: Mapping[str, str]
    ) -> None:
        """Take the files of a source.

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

    def choose(self, columns: Sequence[Column], read: spark.StructType) -> None:
        """Choose the columns of the table whose values can be compared."""
        for column, field in zip(columns, read.fields, strict=True):
            reason = column.reason
            if column.is_partition:
                reason = reason or self._reason(column)
            elif field.name == _CORRUPT or not _is_comparable(field.dataType, is_csv=self._is_csv):
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
        of = column.field.type
        if column.is_partition:
            return np.full(count, hashes(value_of_directory(column, uri), of)[0])
        try:
            given = found[column.name]
            values = given.cast(of) if isinstance(given, pa.ChunkedArray) else pa.array(given, of)
        except (pa.ArrowException, OverflowError) as error:
            raise UnreachableError(f"values of column '{column.name}' in {uri}") from error
        return hashes(column.as_compared(values), of)

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
            for data in csv_files.chunks(stream, dialect):
                text = decode(data, dialect.encoding)
                table = csv_files.parsed(text, dialect, names, skipped)
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
    spaces = ("ignoreleadingwhitespace", "ignoretrailingwhitespace")
    if any(options.get(each, "").lower() == "true" for each in spaces):
        values = pc.utf8_trim_whitespace(values)
    null = options.get("nullvalue", "")
    return pc.if_else(pc.equal(values, null), "", values) if null else values
