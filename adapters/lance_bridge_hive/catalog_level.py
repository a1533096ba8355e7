"""Hive catalogs, the level above databases: what `catalog_levels` adds."""

from __future__ import annotations

import uuid
from collections.abc import Callable
from typing import Any, Protocol, TypeVar

from thrift.Thrift import TException

from lance_bridge.catalog import NamespaceRecord
from lance_bridge.errors import invalid, namespace_already_exists, namespace_not_empty

from . import mapping
from .errors import is_a, text_of
from .names import DEFAULT_DATABASE, HIVES_CATALOG, all_databases_of, database_argument

T = TypeVar("T")


class Call(Protocol):
    """One call to the metastore, by name, with the client that knows catalogs."""

    def __call__(self, name: str, operation: Callable[[Any], T]) -> T: ...


class CatalogLevel:
    """Loads, makes, changes and drops catalogs. Raises Thrift errors as they come."""

    def __init__(self, read: Call, change: Call, root: str | None) -> None:
        self._read = read
        self._change = change
        self._root = root

    @property
    def _types(self) -> Any:
        from pymetastore.hive_metastore import ttypes  # noqa: PLC0415 - large, and seldom needed

        return ttypes

    def names(self) -> list[str]:
        """Return the names of all catalogs."""
        return list(self._read("get_catalogs", lambda c: c.get_catalogs()).names or [])

    def databases_of(self, name: str) -> list[str]:
        """Return the names of a catalog's databases; none where there is no such catalog."""
        pattern = all_databases_of(name)
        return list(self._read("get_databases", lambda c: c.get_databases(pattern)))

    def load(self, name: str) -> Any:
        """Return the Thrift Catalog."""
        request = self._types.GetCatalogRequest(name=name)
        return self._read("get_catalog", lambda c: c.get_catalog(request)).catalog

    def create(self, record: NamespaceRecord) -> None:
        """Make a catalog; Hive adds its database `default`.

        Raises:
            NamespaceAlreadyExistsError: (2) also where the properties would not do for a new one.
        """
        (name,) = record.path
        if name in self.names():
            raise namespace_already_exists(record.path)
        catalog = self._types.Catalog(**mapping.catalog_fields(record, self._root))
        request = self._types.CreateCatalogRequest(catalog=catalog)
        self._change("create_catalog", lambda c: c.create_catalog(request))

    def alter(self, record: NamespaceRecord) -> None:
        """Replace a catalog's description, and its location where one is given."""
        (name,) = record.path
        current = self.load(name)
        kept = {mapping.CATALOG_LOCATION: current.locationUri}
        wanted = NamespaceRecord(record.path, {**kept, **record.properties})
        self._replace(name, mapping.catalog_fields(wanted, None))

    def drop(self, name: str) -> None:
        """Drop a catalog that holds nothing but an empty `default`, and none of its files.

        Hive deletes the directory of a catalog that it drops. So the catalog is pointed at a place
        where nothing is, before; and back again if it could not be dropped.

        Raises:
            NamespaceNotEmptyError: (3)
            InvalidInputError: (13) the catalog is Hive's own.
        """
        if name == HIVES_CATALOG:
            raise invalid(f"Hive keeps its catalog '{name}'")
        others = sorted(set(self.databases_of(name)) - {DEFAULT_DATABASE})
        if others:
            raise namespace_not_empty((name,), f"it holds namespaces {', '.join(others[:5])}")
        catalog = self.load(name)
        default = self._drop_default(name)
        fields = {"name": name, "description": catalog.description}
        unused = f"{catalog.locationUri.rstrip('/')}/.dropped-{uuid.uuid4().hex}"
        try:
            self._replace(name, {**fields, "locationUri": unused})
            request = self._types.DropCatalogRequest(name=name)
            self._change("drop_catalog", lambda c: c.drop_catalog(request))
        except TException:
            self._replace(name, {**fields, "locationUri": catalog.locationUri})
            if default is not None:
                self._change("create_database", lambda c: c.create_database(default))
            raise

    def _drop_default(self, name: str) -> Any:
        """Drop the database that Hive gave the catalog, and return it, or None without one."""
        argument = database_argument((name, DEFAULT_DATABASE))
        try:
            database = self._read("get_database", lambda c: c.get_database(argument))
            self._change("drop_database", lambda c: c.drop_database(argument, False, False))
        except TException as error:
            if is_a(error, "InvalidOperationException"):
                raise namespace_not_empty((name,), text_of(error)) from error
            if is_a(error, "NoSuchObjectException"):
                return None
            raise
        return database

    def _replace(self, name: str, fields: dict[str, str | None]) -> None:
        request = self._types.AlterCatalogRequest(name=name, newCat=self._types.Catalog(**fields))
        self._change("alter_catalog", lambda c: c.alter_catalog(request))
