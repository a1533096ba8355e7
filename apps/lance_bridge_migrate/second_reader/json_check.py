"""The objects of JSON files as Python's json reads them, and their values beside Spark's."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal, InvalidOperation
from typing import Any

from pyspark.sql import types as spark

from ..plan import Problem, blocker
from .storage import (
    NOT_READ,
    REMOTE_BYTES,
    Samples,
    Storage,
    UnreachableError,
    correction,
    decode,
    encoding_of,
    is_wide,
    most_useful,
    open_text,
    path_in,
    samples_of,
    shortened,
    written,
)

_LINES = re.compile(r"\r\n|\n|\r")
_START = re.compile(r"[^\s,]")
BROKEN = object()
"""Stands for a line that is no object."""


def lines_of(text: str) -> Iterator[Any]:
    """Yield the object of each line, or `BROKEN`; of a list, each of its objects."""
    for line in _LINES.split(text):
        if not line.strip():
            continue
        try:
            yield from _objects(json.loads(line))
        except ValueError:
            yield BROKEN


def documents_of(text: str) -> Iterator[Any]:
    """Yield the objects of a text in which an object may have several lines.

    Raises:
        ValueError: It is not JSON.
    """
    decoder, at = json.JSONDecoder(), 0
    while start := _START.search(text, at):
        found, at = decoder.raw_decode(text, start.start())
        yield from _objects(found)


def _objects(found: Any) -> Iterator[Any]:
    if isinstance(found, list):
        yield from (each if isinstance(each, dict) else BROKEN for each in found)
    else:
        yield found if isinstance(found, dict) else BROKEN


def difference(value: Any, read: Any, data_type: spark.DataType, path: str = "") -> str | None:
    """Return the path of the first value that Spark reads otherwise; None if there is none."""
    if isinstance(data_type, spark.StructType) and isinstance(value, dict):
        return _in_struct(value, read, data_type, path)
    if isinstance(data_type, spark.ArrayType) and isinstance(value, list):
        if read is None or len(read) != len(value):
            return path
        pairs = zip(value, read, strict=True)
        found = (difference(a, b, data_type.elementType, f"{path}[]") for a, b in pairs)
        return next((each for each in found if each is not None), None)
    return None if _is_same(value, read, data_type) else path


def _in_struct(value: Any, read: Any, columns: spark.StructType, path: str) -> str | None:
    known = {each.name.lower(): each for each in columns.fields}
    known |= {each.name: each for each in columns.fields}
    start = f"{path}." if path else ""
    for name, each in value.items():
        field = known.get(name) or known.get(name.lower())
        if field is None:
            if each in (None, {}):
                continue
            return f"{start}{name}"
        if read is None:
            return path
        found = difference(each, read[field.name], field.dataType, f"{start}{name}")
        if found is not None:
            return found
    return None


def _is_same(value: Any, read: Any, data_type: spark.DataType) -> bool:
    if value is None or read is None:
        return value is None and read is None
    if isinstance(data_type, spark.StringType):
        return not isinstance(value, str) or bool(value == read)
    if isinstance(value, bool) or isinstance(data_type, spark.BooleanType):
        return bool(value is read)
    if isinstance(data_type, spark.DecimalType):
        return bool(_decimal(value) == read)
    if isinstance(data_type, spark.NumericType) and isinstance(value, (int, float)):
        return bool(value == read) or value != value  # noqa: PLR0124 - NaN
    return True


def _decimal(value: Any) -> Decimal | None:
    try:
        return Decimal(str(value))
    except InvalidOperation:
        return None


# -- check -----------------------------------------------------------------------------------------


_HEAD = 500
"""The number of first lines of a file in its sample."""
_CHUNK = 8 << 20
_DOCUMENT_BYTES = 8 << 20
CORRUPT = "_corrupt_record"
"""The column in which Spark has lines that are no JSON."""


@dataclass(frozen=True)
class _Sample:
    """A sample of one file.

    Attributes:
        objects: Its objects, with `BROKEN` for lines that are none.
        has_documents: Whether the file is JSON only if an object may have several lines.
        broken: The number and the text of the first line that is no object; None if there is none.
    """

    uri: str
    data: bytes
    encoding: str
    objects: list[Any]
    has_documents: bool = False
    broken: tuple[int, str] | None = None


def check(
    session: Any,
    storage: Storage,
    files: Sequence[str],
    columns: spark.StructType,
    read_options: Mapping[str, str],
    *,
    is_local: bool,
) -> tuple[list[Problem], None]:
    """Compare the files of a source, and find the read options that make both readers agree.

    The first lines of some files are compared. All files on this machine are decoded; if Spark
    has found lines that are no JSON, the first one is looked for.
    """
    options = {key.lower(): value for key, value in read_options.items()}
    reader = _Reader(storage, options, finds_broken=CORRUPT in columns.names, is_local=is_local)
    samples, problems = samples_of(files, reader.sample, is_local=is_local)
    chosen = most_useful(samples, lambda s: s.broken or s.encoding or s.has_documents)
    return [*problems, *_problems(session, chosen, columns, read_options)], None


@dataclass(frozen=True)
class _Reader:
    """Reads samples of files."""

    storage: Storage
    options: Mapping[str, str]
    finds_broken: bool
    is_local: bool

    def sample(self, uri: str) -> _Sample | None:
        """Return the sample of a file; None if it is empty."""
        given = self.options.get("encoding", self.options.get("charset", ""))
        with open_text(self.storage, uri) as stream:
            start = stream.read(_CHUNK if self.is_local else REMOTE_BYTES)
            more = stream.read(1) != b""
        if not start.strip():
            return None
        encoding = encoding_of(start, given, is_utf8=True)
        is_whole = not more and len(start) <= _DOCUMENT_BYTES
        if self.options.get("multiline", "").lower() == "true" or is_wide(encoding):
            return self._document(uri, start, encoding, is_whole=is_whole)
        odd, is_utf8 = self._undecodable(uri, start) if not given else (b"", True)
        lines = start.splitlines(keepends=True)
        if more:
            lines = lines[:-1]
        encoding = encoding_of(start, given, is_utf8=is_utf8)
        data = b"".join(lines[:_HEAD]) + b"\n" + odd
        objects = [*lines_of(decode(data, encoding))]
        looks_broken = self.finds_broken or BROKEN in objects
        broken = self._first_broken(uri, encoding) if looks_broken else None
        if broken and is_whole:
            found = self._document(uri, start, encoding, is_whole=True)
            if BROKEN not in found.objects:
                return found
        if broken:
            data += broken[1].encode(encoding or "utf-8") + b"\n"
            objects = [*lines_of(decode(data, encoding))]
        return _Sample(uri, data, encoding, objects, broken=broken)

    def _document(self, uri: str, data: bytes, encoding: str, *, is_whole: bool) -> _Sample:
        if not is_whole:
            raise UnreachableError(f"{uri}, which is large and may have objects of several lines")
        text = decode(data, encoding)
        try:
            objects = [*documents_of(text)]
        except ValueError:
            objects = [BROKEN]
        lines = [*lines_of(text)]
        return _Sample(uri, data, encoding, objects, has_documents=BROKEN in lines)

    def _undecodable(self, uri: str, start: bytes) -> tuple[bytes, bool]:
        """Return the first line that is not UTF-8, if any, and whether there is none."""
        with open_text(self.storage, uri) as stream:
            while data := b"".join(stream.readlines(_CHUNK)) if self.is_local else start:
                try:
                    data.decode("utf-8")
                except UnicodeDecodeError as error:
                    first = data.rfind(b"\n", 0, error.start) + 1
                    return data[first:].split(b"\n", 1)[0] + b"\n", False
                if not self.is_local:
                    break
        return b"", True

    def _first_broken(self, uri: str, encoding: str) -> tuple[int, str] | None:
        with open_text(self.storage, uri) as stream:
            for number, line in enumerate(stream, 1):
                text = decode(line, encoding)
                if BROKEN in [*lines_of(text)]:
                    return number, text.strip()
                if not self.is_local and stream.tell() > REMOTE_BYTES:
                    return None
        return None


def _problems(
    session: Any,
    samples: Sequence[_Sample],
    columns: spark.StructType,
    read_options: Mapping[str, str],
) -> Iterator[Problem]:
    if not samples or not columns.fields:
        return
    with written(session, "json", [each.data for each in samples]) as files:
        read = files.read(read_options, columns)
        if read is None and CORRUPT not in columns.names:
            yield NOT_READ
            return
        found = _first_difference(samples, read[1], columns) if read else _corrupt(samples)
        if found is not None:
            column, text = found
            options = _options_that_agree(files, samples, read_options)
            yield blocker(f"{text}: {correction(options)}", column)


def _corrupt(samples: Sequence[_Sample]) -> tuple[str, str]:
    """Return the difference if Spark takes all lines for no JSON, which it cannot show."""
    odd = next((each for each in samples if each.broken or each.encoding), samples[0])
    if odd.encoding and not odd.broken:
        return CORRUPT, f"{path_in(odd.uri)} is not UTF-8, and Spark reads no value of it"
    return CORRUPT, _broken_text(odd)


def _first_difference(
    samples: Sequence[_Sample], rows: Sequence[Sequence[Any]], columns: spark.StructType
) -> tuple[str, str] | None:
    """Return the column and the text of the first difference."""
    for sample, read in zip(samples, rows, strict=True):
        path = path_in(sample.uri)
        for value, row in zip(sample.objects, read, strict=False):
            if value is BROKEN:
                # Spark has no value of the line either, but for the line itself.
                if all(row[name] is None for name in columns.names if name != CORRUPT):
                    return CORRUPT if CORRUPT in columns.names else "", _broken_text(sample)
                continue
            found = difference(value, row, columns)
            if found is not None:
                shown = shortened(json.dumps(value, ensure_ascii=False))
                return found, f"{path} has {shown}, of which Spark reads {found} otherwise"
        if len(sample.objects) != len(read):
            if sample.broken or sample.has_documents:
                return CORRUPT, _broken_text(sample)
            counts = f"{len(sample.objects)} objects in a sample, and Spark reads {len(read)} rows"
            return "", f"{path} has {counts}"
    return None


def _broken_text(sample: _Sample) -> str:
    path = path_in(sample.uri)
    if sample.has_documents or sample.broken is None:
        return f"{path} has objects of several lines, and Spark reads each line as a row"
    number, text = sample.broken
    shown = shortened(text)
    return f"Line {number} of {path} is not JSON ({shown!r}), and Spark reads a row without values"


def _options_that_agree(
    files: Samples, samples: Sequence[_Sample], read_options: Mapping[str, str]
) -> dict[str, str] | None:
    """Return options with which Spark reads the samples as the second reader does."""
    given = {key.lower() for key in read_options}
    encodings = {each.encoding for each in samples} - {""}
    wanted: dict[str, str] = {}
    if any(each.has_documents for each in samples) or any(map(is_wide, encodings)):
        wanted["multiLine"] = "true"
    if len(encodings) == 1 and not given & {"encoding", "charset"}:
        wanted["encoding"] = encodings.pop()
        wanted |= {} if "multiLine" in wanted else {"lineSep": "\n"}
    wanted = {key: value for key, value in wanted.items() if key.lower() not in given}
    if not wanted:
        return None
    read = files.read({**read_options, **wanted}, None)
    if read is None or _first_difference(samples, read[1], read[0]) is not None:
        return None
    return wanted
