"""Field paths by which requests name columns: ``a.b``, with backticks around a name with a dot.

Source: the specification's "Lance field path". Names are case-sensitive. A single name means a
top-level column.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import lance
from lance_namespace.errors import TableColumnNotFoundError

from ..dotted_names import in_backticks, split_name
from ..errors import invalid, require_text

if TYPE_CHECKING:
    from ..table import Table

_MAX_NAMES = 20
"""Maximum number of names in a message."""


@dataclass(frozen=True)
class Column:
    """An existing field: its path in segments, and Lance's schema of it."""

    segments: tuple[str, ...]
    field: Any
    """A ``lance.schema.LanceField``."""

    @property
    def path(self) -> str:
        """The canonical path."""
        return canonical(self.segments)

    @property
    def parent(self) -> tuple[str, ...]:
        return self.segments[:-1]

    @property
    def name(self) -> str:
        return self.segments[-1]


def parse(text: str) -> tuple[str, ...]:
    """Return the segments of a path.

    Raises:
        InvalidInputError: (13) it is empty, ends in a dot, or a backtick is not closed.
    """
    require_text("The field path", text)
    segments = split_name(text)
    if segments is None:
        raise invalid(
            f"{text[:100]!r} is not a field path: join names with dots; a name that has a dot or a "
            "backtick goes in backticks, with each backtick inside doubled"
        )
    return tuple(segments)


def canonical(segments: Sequence[str]) -> str:
    """Return a path in the spelling that Lance uses."""
    return ".".join(in_backticks(each) if "." in each or "`" in each else each for each in segments)


def default_index_name(column: str) -> str:
    """Return the name of an index on a field, given its path, if the request has none.

    Raises:
        InvalidInputError: (13) it is not a field path.
    """
    return f"{canonical(parse(column))}_idx"


def find_column(dataset: lance.LanceDataset, table: Table, text: str) -> Column:
    """Return the field that ``text`` names.

    Raises:
        InvalidInputError: (13) it is not a field path.
        TableColumnNotFoundError: (12)
    """
    segments = parse(text)
    field = dataset.lance_schema.field(canonical(segments)) if "\0" not in text else None
    if field is None:
        raise _not_found(dataset, table, text)
    return Column(segments, field)


def find_columns(dataset: lance.LanceDataset, table: Table, texts: Sequence[str]) -> list[Column]:
    """Return the fields that ``texts`` name.

    Raises:
        InvalidInputError: (13) no path, one that is not a field path, or a field named twice.
        TableColumnNotFoundError: (12)
    """
    if not texts:
        raise invalid("The request names no column")
    columns: dict[tuple[str, ...], Column] = {}
    for text in texts:
        column = find_column(dataset, table, text)
        if column.segments in columns:
            raise invalid(f"Column '{column.path}' is named twice")
        columns[column.segments] = column
    return list(columns.values())


def siblings(dataset: lance.LanceDataset, parent: tuple[str, ...]) -> list[str]:
    """Return the names of the fields under ``parent``, or of the columns if it is empty."""
    if not parent:
        return [field.name() for field in dataset.lance_schema.fields()]
    struct: Any = dataset.lance_schema.field(canonical(parent))
    return [field.name() for field in struct.children()]


def walk(dataset: lance.LanceDataset) -> Iterator[Column]:
    """Yield every field, including nested fields."""
    level = [Column((each.name(),), each) for each in dataset.lance_schema.fields()]
    while level:
        yield from level
        level = [
            Column((*column.segments, child.name()), child)
            for column in level
            for child in column.field.children()
        ]


def field_ids(dataset: lance.LanceDataset, names: Collection[str]) -> list[int]:
    """Return the ids of columns and of all their nested fields, for a Lance operation.

    Lance keeps an index unless the operation lists a field of the index as changed.
    """
    return [each.field.id() for each in walk(dataset) if each.segments[0] in names]


def metadata_of(column: Column) -> dict[str, str]:
    """Return a field's metadata as text."""
    return {_text(k): _text(v) for k, v in (column.field.metadata or {}).items()}


def _text(value: bytes | str) -> str:
    return value.decode(errors="replace") if isinstance(value, bytes) else value


def _not_found(dataset: lance.LanceDataset, table: Table, text: str) -> TableColumnNotFoundError:
    names = siblings(dataset, ())
    known = ", ".join(names[:_MAX_NAMES]) + (", …" if len(names) > _MAX_NAMES else "")
    return TableColumnNotFoundError(
        f"Table '{table.name}' has no column {text[:100]!r}: its columns are {known}"
    )
