"""The pages of tables that are not Lance tables, with the schema in their properties."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from lance_namespace import LanceNamespace
from starlette.responses import Response

from lance_bridge import LanceBridgeNamespace
from lance_bridge.errors import display, invalid
from lance_bridge.redaction import redact

from .caches import catalog_at
from .rendering import shown_properties
from .request import UiRequest, gather
from .tree import load_tree

# -- schema ----------------------------------------------------------------------------------------


_SPARK = "spark.sql.sources.schema"
_SPARK_PARTS = f"{_SPARK}.numParts"
_ICEBERG = "current-schema"
_MOST_PARTS = 1000
_MOST_LEVELS = 20
_CHILDREN = ("elementType", "element", "valueType", "value")
"""The keys of the type of items in a list or of values in a map, in both formats."""


@dataclass(frozen=True)
class ForeignColumn:
    """A column, or a field of one."""

    name: str
    depth: int
    type: str
    nullable: bool
    comment: str = ""
    is_partition: bool = False


def columns_in(properties: Mapping[str, str]) -> tuple[list[ForeignColumn], set[str]]:
    """Return the columns in properties, and the keys of the properties that contain them."""
    for keys in (_spark_keys(properties), [_ICEBERG]):
        text = "".join(properties.get(each, "") for each in keys)
        try:
            columns = list(_columns(json.loads(text), 0)) if text else []
        except (ValueError, TypeError, KeyError, AttributeError, RecursionError):
            continue
        if columns:
            return columns, {*keys, _SPARK_PARTS}
    return [], set()


def _spark_keys(properties: Mapping[str, str]) -> list[str]:
    count = properties.get(_SPARK_PARTS, "")
    if not count.isdigit() or int(count) > _MOST_PARTS:
        return [_SPARK]
    return [f"{_SPARK}.part.{index}" for index in range(int(count))]


def _columns(struct: Mapping[str, Any], depth: int) -> Iterator[ForeignColumn]:
    for each in struct["fields"]:
        nullable = not each["required"] if "required" in each else bool(each.get("nullable", True))
        yield ForeignColumn(str(each["name"]), depth, _type_text(each["type"]), nullable)
        inner = _struct_in(each["type"])
        if inner is not None and depth < _MOST_LEVELS:
            yield from _columns(inner, depth + 1)


def _struct_in(type_: Any) -> Mapping[str, Any] | None:
    """Return the struct in a type: the type itself, or nested in its lists and maps."""
    while isinstance(type_, dict) and type_.get("type") != "struct":
        type_ = next((type_[each] for each in _CHILDREN if each in type_), None)
    return type_ if isinstance(type_, dict) else None


def _type_text(type_: Any) -> str:
    if not isinstance(type_, dict):
        return str(type_)
    name = str(type_.get("type"))
    if name == "map":
        key = type_.get("keyType", type_.get("key"))
        return f"map of {_type_text(key)} to {_type_text(_child(type_))}"
    return f"list of {_type_text(_child(type_))}" if name in ("array", "list") else name


def _child(type_: Mapping[str, Any]) -> Any:
    return next((type_[each] for each in _CHILDREN if each in type_), "unknown")


# -- description -----------------------------------------------------------------------------------


@dataclass(frozen=True)
class ForeignTable:
    """A table that is not a Lance table, unless `is_lance` is set."""

    is_lance: bool
    type: str
    """The catalog's name of its type."""
    location: str
    properties: Mapping[str, str]
    """The properties without secrets and the schema."""
    format: str
    """Its format for people; empty if it is unknown."""
    owner: str
    columns: list[ForeignColumn]
    """The columns in its properties, or else in the catalog; empty if neither has any."""


def describe_foreign(namespace: LanceNamespace, request: Any) -> ForeignTable | None:
    """Return a table, or None if its catalog contains only Lance tables.

    Raises:
        TableNotFoundError: (4)
        NamespaceNotFoundError: (1)
    """
    child, path = catalog_at(namespace, request.id or ())
    if not isinstance(child, LanceBridgeNamespace):
        return None
    entry = child.tables.load_entry(child.tables.path_of(path))
    columns, schema_keys = columns_in(entry.properties)
    if not columns and not entry.record.is_lance:
        catalog = child.catalog
        columns = [
            ForeignColumn(each.name, 0, each.type, each.nullable, each.comment, each.is_partition)
            for each in catalog.load_columns(entry.path)
        ]
    return ForeignTable(
        entry.record.is_lance,
        entry.record.entry_type or "unknown",
        redact(entry.location),
        shown_properties(
            {key: value for key, value in entry.properties.items() if key not in schema_keys}
        ),
        entry.record.format,
        entry.record.owner,
        columns,
    )


# -- page ------------------------------------------------------------------------------------------


async def show_foreign(ui: UiRequest) -> Response:
    """Return the page of a table that is not a Lance table.

    Raises:
        InvalidInputError: (13) the catalog has no such tables.
    """
    path = ui.names
    found: ForeignTable | None
    tree, found = await gather(
        load_tree(ui, path[:-1]), ui.call("describe_table", {"id": path}, method=describe_foreign)
    )
    if found is None:
        raise invalid(f"The catalog of '{display(path)}' contains only Lance tables")
    return ui.page("foreign.html", tree=tree, path=path, table=found)
