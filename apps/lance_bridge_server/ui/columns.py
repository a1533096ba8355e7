"""Columns of a schema as lines of a table, with nested columns and readable types."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from lance_namespace_urllib3_client.models import JsonArrowDataType, JsonArrowField

_VECTOR_ITEMS = {"float16", "float32", "float64", "uint8", "bfloat16"}
_LISTS = {"list", "large_list", "fixed_size_list"}
_BINARY = {"binary", "large_binary", "binary_view", "fixed_size_binary"}
_EXTENSION = "ARROW:extension:name"
_BLOB_KEY = "lance-encoding:blob"
_BLOB_EXTENSION = "lance.blob"


@dataclass(frozen=True)
class ColumnLine:
    """A column, or a field of one."""

    name: str
    path: str
    """The names down to it, joined by dots."""
    depth: int
    type: str
    kind: str
    """``vector``, ``blob``, ``text``, ``number``, ``binary`` or ``other``."""
    nullable: bool
    metadata: dict[str, str]


def column_lines(fields: Iterable[JsonArrowField]) -> list[ColumnLine]:
    """Return the lines of a schema."""
    return list(_lines(fields, (), 0))


def _lines(
    fields: Iterable[JsonArrowField], parent: tuple[str, ...], depth: int
) -> Iterator[ColumnLine]:
    for each in fields:
        path, metadata = (*parent, each.name), dict(each.metadata or {})
        kind = kind_of(each)
        text = "blob" if kind == "blob" else type_text(each.type, metadata)
        yield ColumnLine(
            each.name, ".".join(path), depth, text, kind, each.nullable is not False, metadata
        )
        if kind != "blob":
            yield from _lines(_inner_fields(each.type), path, depth + 1)


def _inner_fields(type_: JsonArrowDataType) -> list[JsonArrowField]:
    """Return the named fields in a type, also inside lists, whose items have no name."""
    while type_.type in _LISTS and type_.fields:
        type_ = type_.fields[0].type
    return list(type_.fields or ()) if type_.type == "struct" else []


def kind_of(field: JsonArrowField) -> str:
    """Return the kind of a column, see `ColumnLine.kind`."""
    metadata = field.metadata or {}
    name = field.type.type
    if metadata.get(_BLOB_KEY) == "true" or metadata.get(_EXTENSION, "").startswith(
        _BLOB_EXTENSION
    ):
        return "blob"
    if dimension_of(field.type):
        return "vector"
    if name in _BINARY:
        return "binary"
    if name in ("utf8", "large_utf8", "utf8_view"):
        return "text"
    return "number" if name.rstrip("0123456789") in ("int", "uint", "float", "decimal") else "other"


def dimension_of(type_: JsonArrowDataType) -> int | None:
    """Return the dimension of a vector type, or None for other types."""
    is_vector = (
        type_.type == "fixed_size_list"
        and type_.fields is not None
        and _item_name(type_.fields[0]) in _VECTOR_ITEMS
    )
    return type_.length if is_vector else None


def _item_name(item: JsonArrowField) -> str:
    extension = (item.metadata or {}).get(_EXTENSION, "")
    return "bfloat16" if extension == "lance.bfloat16" else item.type.type


def type_text(type_: JsonArrowDataType, metadata: dict[str, str] | None = None) -> str:
    """Return a readable type: ``vector[768] of float32``, ``list of struct``."""
    extension = (metadata or {}).get(_EXTENSION)
    if extension:
        return extension
    inner = type_.fields[0] if type_.fields else None
    if dimension_of(type_) and inner is not None:
        return f"vector[{type_.length}] of {_item_name(inner)}"
    if type_.type in _LISTS and inner is not None:
        size = f"[{type_.length}]" if type_.type == "fixed_size_list" else ""
        return f"list{size} of {type_text(inner.type, dict(inner.metadata or {}))}"
    if type_.type == "map" and inner is not None and inner.type.fields:
        key, value = (type_text(each.type) for each in inner.type.fields[:2])
        return f"map of {key} to {value}"
    if type_.type.startswith("decimal") and type_.length is not None:
        return f"decimal({type_.length // 1000}, {type_.length % 1000})"
    return f"{type_.type}[{type_.length}]" if type_.length is not None else type_.type
