"""SHOW, CREATE, ALTER, DESCRIBE and DROP NAMESPACE."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from lance_namespace import (
    CreateNamespaceRequest,
    DescribeNamespaceRequest,
    DropNamespaceRequest,
    ListNamespacesRequest,
)

from lance_bridge.catalog import Path
from lance_bridge.connection import Connection
from lance_bridge.errors import display, invalid, retry_after_readback, unsupported
from lance_bridge.records import check_key, check_property
from lance_bridge.requests import parse_namespace

from ..addresses import CatalogAddress

Args = Mapping[str, Any]
Answer = dict[str, Any]


def list_children(catalog: CatalogAddress, args: Args) -> Answer:
    """``{namespace}`` to ``{namespaces: [path, …]}``, sorted.

    Raises: NamespaceNotFound, InvalidInput.
    """
    path = list(args["namespace"])
    found = catalog.connect().list_namespaces(ListNamespacesRequest(id=path))
    return {"namespaces": [[*path, name] for name in sorted(found.namespaces)]}


def load(catalog: CatalogAddress, args: Args) -> Answer:
    """``{namespace}`` to ``{properties}``, in Spark's spelling.

    Raises: NamespaceNotFound, InvalidInput.
    """
    connection, path = _parse_path(catalog, args)
    request = DescribeNamespaceRequest(id=list(path))
    found = catalog.connect().describe_namespace(request).properties or {}
    to_spark = {theirs: ours for ours, theirs in _spelling(connection, path).items()}
    return {"properties": {to_spark.get(key, key): value for key, value in found.items()}}


def create(catalog: CatalogAddress, args: Args) -> Answer:
    """``{namespace, properties}`` to ``{}``.

    Raises: Unsupported, NamespaceNotFound (of the parent), NamespaceAlreadyExists,
        InvalidInput.
    """
    connection, path = _parse_path(catalog, args)
    properties = _to_catalog_spelling(connection, path, args["properties"])
    request = CreateNamespaceRequest(id=list(path), mode="Create", properties=properties)
    catalog.connect().create_namespace(request)
    return {}


def alter(catalog: CatalogAddress, args: Args) -> Answer:
    """``{namespace, set, unset}`` to ``{}``; other properties are kept.

    Raises: Unsupported, NamespaceNotFound, InvalidInput.
    """
    connection, path = _parse_path(catalog, args)
    if not path:
        raise invalid("The root namespace has no properties")
    wanted = _to_catalog_spelling(connection, path, args.get("set") or {})
    spelling = _spelling(connection, path)
    unwanted = {spelling.get(key, key) for key in args.get("unset") or ()}
    for key, value in wanted.items():
        check_property(key, value)
    for key in unwanted:
        check_key(key)
    connection.check_namespace_management(path, wanted)
    _alter(connection, path, wanted, unwanted)
    _require_comment(connection, path, wanted, spelling.get("comment"))
    return {}


def _alter(
    connection: Connection, path: Path, wanted: Mapping[str, str], unwanted: set[str]
) -> None:
    reason = connection.capabilities.no_namespace_changes
    if reason:
        raise unsupported(f"Namespace '{display(path)}' cannot change: {reason}")
    record = connection.catalog.load_namespace(path)
    kept = {key: value for key, value in record.properties.items() if key not in unwanted}
    changed = replace(record, properties={**kept, **wanted})
    if changed == record:
        return

    def has_happened() -> bool:
        found = connection.catalog.load_namespace(path).properties
        was_set = all(found.get(key) == value for key, value in wanted.items())
        return was_set and not any(key in found for key in unwanted - wanted.keys())

    retry_after_readback(lambda: connection.catalog.alter_namespace(changed), has_happened)


def _require_comment(
    connection: Connection, path: Path, wanted: Mapping[str, str], key: str | None
) -> None:
    """Raise if the comment did not change: Hive before 4 silently ignores it."""
    if key is None or key not in wanted:
        return
    if connection.catalog.load_namespace(path).properties.get(key) != wanted[key]:
        raise unsupported(
            f"The comment of namespace '{display(path)}' cannot be changed: its catalog keeps "
            "the one it was created with. The other changes were made"
        )


def drop(catalog: CatalogAddress, args: Args) -> Answer:
    """``{namespace, cascade}`` to ``{}``. Cascade deletes its tables.

    Raises: Unsupported, NamespaceNotFound, NamespaceNotEmpty, InvalidInput, InvalidTableState.
    """
    behavior = "Cascade" if args.get("cascade") else "Restrict"
    request = DropNamespaceRequest(id=args["namespace"], mode="Fail", behavior=behavior)
    catalog.connect().drop_namespace(request)
    return {}


def _parse_path(catalog: CatalogAddress, args: Args) -> tuple[Connection, Path]:
    connection = catalog.connect().connection
    return connection, parse_namespace(args["namespace"], connection.capabilities)


def _spelling(connection: Connection, path: Path) -> Mapping[str, str]:
    """Return the catalog's names of Spark's own properties, by Spark's names."""
    levels = connection.capabilities.namespace_words
    if not 0 < len(path) <= len(levels):
        return {}
    words = levels[len(path) - 1]
    named = {"comment": words.comment, "location": words.location, "owner": words.owner}
    return {ours: theirs for ours, theirs in named.items() if theirs}


def _to_catalog_spelling(
    connection: Connection, path: Path, properties: Mapping[str, str]
) -> dict[str, str]:
    """Return properties in the catalog's spelling.

    Spark sets an owner on everything that it creates. It is dropped if the catalog has no such
    property, because the catalog then tracks owners itself.
    """
    spelling = _spelling(connection, path)
    given = {k: v for k, v in properties.items() if k != "owner" or k in spelling}
    return {spelling.get(key, key): value for key, value in given.items()}
