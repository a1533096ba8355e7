"""Tables of a catalog that are not Lance tables: their names and descriptions.

The API has no operations for them. Listing and reading them requires the same rights as for Lance
tables: `list_tables` and `describe_table`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import lance_namespace as api
from lance_namespace import LanceNamespace

from lance_bridge import LanceBridgeNamespace
from lance_bridge.paging import PageRequest, encode_token
from lance_bridge.redaction import is_secret, redact

from ..authorization.accesses import catalog_of
from .foreign_schema import ForeignColumn, columns_in

_HIDDEN = "(not shown)"


@dataclass(frozen=True)
class ForeignTable:
    """A table that is not a Lance table, unless `is_lance` is set."""

    is_lance: bool
    type: str
    """The catalog's name of its type."""
    location: str
    properties: Mapping[str, str]
    """The properties without secrets and the schema."""
    columns: list[ForeignColumn]
    """The columns in its properties, or else in the catalog; empty if neither has any."""


def list_foreign(namespace: LanceNamespace, request: Any) -> api.ListTablesResponse:
    """Return a page of the names of a namespace's tables that are not Lance tables.

    Raises:
        InvalidInputError: (13) the token is of another listing.
        NamespaceNotFoundError: (1)
    """
    page = PageRequest.parse(f"others {request.id}", request.limit, request.page_token)
    child, path = _catalog_at(namespace, list(request.id or ()))
    names: list[str] = []
    if not isinstance(child, LanceBridgeNamespace):
        return api.ListTablesResponse(tables=names)
    after = page.after[0] if page.after else None
    for entry in child.tables.scan(child.namespace_path(path, of_tables=True), after=after):
        if entry.record.is_lance:
            continue
        if len(names) == page.limit:
            return api.ListTablesResponse(
                tables=names, page_token=encode_token(page.scope, (names[-1],))
            )
        names.append(entry.path[-1])
    return api.ListTablesResponse(tables=names)


def describe_foreign(namespace: LanceNamespace, request: Any) -> ForeignTable | None:
    """Return a table, or None if its catalog contains only Lance tables.

    Raises:
        TableNotFoundError: (4)
        NamespaceNotFoundError: (1)
    """
    child, path = _catalog_at(namespace, list(request.id or ()))
    if not isinstance(child, LanceBridgeNamespace):
        return None
    entry = child.tables.load_entry(child.tables.path_of(path))
    columns, schema_keys = columns_in(entry.properties)
    if not columns and not entry.record.is_lance:
        catalog = child.tables.connection.catalog
        columns = [
            ForeignColumn(each.name, 0, each.type, each.nullable, each.comment, each.is_partition)
            for each in catalog.load_columns(entry.path)
        ]
    return ForeignTable(
        entry.record.is_lance,
        entry.record.entry_type or "unknown",
        redact(entry.location),
        {
            key: _HIDDEN if is_secret(key) else redact(value)
            for key, value in sorted(entry.properties.items())
            if key not in schema_keys
        },
        columns,
    )


def _catalog_at(namespace: LanceNamespace, names: list[str]) -> tuple[Any, list[str]]:
    """Return the catalog of an identifier, and the identifier in that catalog."""
    child = catalog_of(namespace, tuple(names))
    return (child, names) if child is namespace else (child, names[1:])
