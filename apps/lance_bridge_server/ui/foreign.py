"""Entries of a catalog that are not Lance's: their names, and what the catalog says of them.

The API has no operation for them. They are listed and read as tables are: `list_tables` and
`describe_table` are what a principal must be allowed.
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
    """An entry that is not Lance's."""

    is_lance: bool
    type: str
    """What the catalog calls it."""
    location: str
    properties: Mapping[str, str]
    """Without secrets, and without the schema."""
    columns: list[ForeignColumn]
    """Those that its properties have, or else the catalog; none if neither has any."""


def list_foreign(namespace: LanceNamespace, request: Any) -> api.ListTablesResponse:
    """Return a page of the names of a namespace's entries that are not Lance's.

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
    """Return an entry; None in catalogs that have no other entries than Lance's.

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
        entry.record.kind or "unknown",
        redact(entry.location),
        {
            key: _HIDDEN if is_secret(key) else redact(value)
            for key, value in sorted(entry.properties.items())
            if key not in schema_keys
        },
        columns,
    )


def _catalog_at(namespace: LanceNamespace, names: list[str]) -> tuple[Any, list[str]]:
    """Return the catalog that an identifier is for, and the identifier in that catalog."""
    child = catalog_of(namespace, tuple(names))
    return (child, names) if child is namespace else (child, names[1:])
