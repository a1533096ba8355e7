"""The formats and columns of Lance entries in Hive Metastore and Glue, which engines read files by.

Every entry needs all three formats. AWS's client for Spark and Hive fails for a whole database if
one entry lacks any; Trino fails without a SerDe. Engines must refuse to read Lance files, and no
tool may take them for text:

- The input and output formats are abstract classes, which Hive and Spark have but cannot create,
  and which Trino, Athena and Impala do not know. A class that does not exist would break DESCRIBE
  in Hive as well.
- The SerDe is one whose columns Hive and its metastore take from the entry. Catalog crawlers
  take ``LazySimpleSerDe``, the SerDe of Hive's text files, for CSV; none knows this one.

Readers of entries, such as data catalogs and DESCRIBE, see the columns in Hive's syntax. Lance
allows names and types that Hive cannot write: those are shortened, and the column's comment says
so.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from .records import CatalogColumn, Column, Published

INPUT_FORMAT = "org.apache.hadoop.mapred.FileInputFormat"
OUTPUT_FORMAT = "org.apache.hadoop.mapred.FileOutputFormat"
SERDE = "org.apache.hadoop.hive.serde2.lazybinary.LazyBinarySerDe"
_TEXT_SERDE = "org.apache.hadoop.hive.serde2.lazy.LazySimpleSerDe"
"""What lance-bridge wrote before, together with `INPUT_FORMAT`."""

ROWS, SIZE = "numRows", "totalSize"
"""Parameters that engines estimate by, and data catalogs show."""


@dataclass(frozen=True)
class Formats:
    """The Java classes that an entry names; None or "" if it names none."""

    input_format: str | None = INPUT_FORMAT
    output_format: str | None = OUTPUT_FORMAT
    serde: str | None = SERDE

    def completed(self) -> Formats:
        """Return the formats of a Lance entry with what is missing; other clients' stay."""
        serde = SERDE if self._has_text_serde else self.serde
        return Formats(
            self.input_format or INPUT_FORMAT, self.output_format or OUTPUT_FORMAT, serde or SERDE
        )

    def problems(self) -> tuple[str, ...]:
        """Return what `completed` would correct, for people."""
        missing = {
            "no input format": not self.input_format,
            "no output format": not self.output_format,
            "no SerDe": not self.serde,
            "the SerDe of text files": self._has_text_serde,
        }
        return tuple(problem for problem, is_found in missing.items() if is_found)

    @property
    def _has_text_serde(self) -> bool:
        return (self.input_format, self.serde) == (INPUT_FORMAT, _TEXT_SERDE)


def statistics_of(published: Published) -> dict[str, str]:
    """Return the parameters of an entry for the rows and size of its table."""
    values = {ROWS: published.rows, SIZE: published.size}
    return {key: str(value) for key, value in values.items() if value is not None}


# -- columns ---------------------------------------------------------------------------------------


NAME_LENGTH, COMMENT_LENGTH = 255, 255
"""In characters: what both Hive and Glue hold."""

_PRIMITIVE = {
    "void": "string",
    "byte": "tinyint",
    "short": "smallint",
    "integer": "int",
    "long": "bigint",
    "timestamp_ntz": "timestamp",
}
_CONTROL = re.compile(r"[\x00-\x1f\x7f]")
_NOT_IN_FIELDS = re.compile(r"[^\w ]", re.ASCII)
"""What ends the name of a field in Hive's types, or that some readers refuse there."""
_DEEPEST = 32
"""Types of more levels are shortened: readers parse them recursively."""


def hive_columns(columns: Sequence[Column], *, type_length: int) -> list[CatalogColumn]:
    """Return the columns of an entry: one for each column of the table, in its order.

    Args:
        columns: The columns at the table's top level.
        type_length: The maximum length of a type, in characters.
    """
    names = _unique([_shorten(_CONTROL.sub("_", each.name)) for each in columns])
    return [_column(column, name, type_length) for column, name in zip(columns, names, strict=True)]


def _column(column: Column, name: str, type_length: int) -> CatalogColumn:
    text = _within(column.type, type_length)
    notes = [] if name == column.name else [f"Lance column {column.name!r}"]
    notes += [] if text == _text(column.type, _depth(column.type)) else ["shortened type"]
    comment = "; ".join(notes)
    if len(comment) > COMMENT_LENGTH:
        comment = f"{comment[: COMMENT_LENGTH - 1]}…"
    return CatalogColumn(name, text, column.nullable, _CONTROL.sub(" ", comment))


def _shorten(name: str) -> str:
    """Return a name as catalogs store it: in lower case, neither empty nor too long."""
    return name.lower()[:NAME_LENGTH] or "_"


def _unique(names: Sequence[str]) -> list[str]:
    """Return the names with numbers added to those that repeat an earlier one."""
    taken, found = set(names), list[str]()
    for name in names:
        unique = name if name not in found else next(_numbered(name, taken))
        taken.add(unique)
        found.append(unique)
    return found


def _numbered(name: str, taken: set[str]) -> Iterator[str]:
    for number in range(2, len(taken) + 3):
        ending = f"_{number}"
        candidate = f"{name[: NAME_LENGTH - len(ending)]}{ending}"
        if candidate not in taken:
            yield candidate


def _within(data_type: Any, length: int) -> str:
    """Return a type of at most so many characters; its deepest levels are ``string`` if need be."""
    for depth in range(min(_depth(data_type), _DEEPEST), 0, -1):
        text = _text(data_type, depth)
        if len(text) <= length:
            return text
    return _text(data_type, 0)


def _depth(data_type: Any) -> int:
    if isinstance(data_type, str):
        return 1
    return 1 + max((_depth(each) for each in _inner(data_type)), default=0)


def _inner(data_type: Any) -> list[Any]:
    if data_type["type"] == "struct":
        return [field["type"] for field in data_type["fields"]]
    keys = ("elementType",) if data_type["type"] == "array" else ("keyType", "valueType")
    return [data_type[key] for key in keys]


def _text(data_type: Any, depth: int) -> str:
    """Return a type with so many levels, in Hive's syntax."""
    if isinstance(data_type, str):
        return _PRIMITIVE.get(data_type, data_type)
    inner = _inner(data_type)
    if depth <= 1 or not inner:
        return "string"  # Hive has no struct without fields
    texts = [_text(each, depth - 1) for each in inner]
    if data_type["type"] == "struct":
        plain = (_NOT_IN_FIELDS.sub("_", field["name"]).strip() for field in data_type["fields"])
        names = _unique([*map(_shorten, plain)])
        texts = [f"{name}:{text}" for name, text in zip(names, texts, strict=True)]
    return f"{data_type['type']}<{','.join(texts)}>"
