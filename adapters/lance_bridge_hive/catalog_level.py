"""Hive catalogs: the level above databases that `catalog_levels` adds."""

from __future__ import annotations

import logging
import re
import uuid
from typing import Any

from lance_namespace.errors import LanceNamespaceError
from thrift.Thrift import TException

from lance_bridge.catalog import NamespaceRecord
from lance_bridge.errors import (
    OutcomeUnknownError,
    invalid,
    namespace_already_exists,
    namespace_not_empty,
)

from . import mapping
from .client import Calls
from .errors import is_a, text_of
from .mapping import CATALOG_LOCATION, DEFAULT_DATABASE, HIVE_CATALOG, database_argument

logger = logging.getLogger(__name__)

_DROPPED = "/.dropped-"
_MOVED = re.compile(rf"(?:{re.escape(_DROPPED)}[0-9a-f]{{32}}/?)+$")


class CatalogLevel:
    """Loads, creates, alters and drops catalogs. Raises Thrift errors unchanged."""

    def __init__(self, calls: Calls, root: str | None) -> None:
        self._calls = calls
        self._root = root

    def names(self) -> list[str]:
        """Return the names of all catalogs."""
        return list(self._calls.read("get_catalogs", lambda c: c.get_catalogs()).names or [])

    def databases_of(self, name: str) -> list[str]:
        """Return the names of a catalog's databases; none if the catalog does not exist."""
        pattern = f"@{name}#"  # every database of the catalog
        return list(self._calls.read("get_databases", lambda c: c.get_databases(pattern)))

    def load(self, name: str) -> Any:
        """Return the Thrift Catalog."""
        request = self._calls.types.GetCatalogRequest(name=name)
        return self._calls.read("get_catalog", lambda c: c.get_catalog(request)).catalog

    def create(self, record: NamespaceRecord) -> None:
        """Create a catalog; Hive adds its database `default`.

        Raises:
            NamespaceAlreadyExistsError: even if the properties would be invalid for a new one.
        """
        (name,) = record.path
        if name in self.names():
            raise namespace_already_exists(record.path)
        catalog = self._calls.types.Catalog(**mapping.catalog_fields(record, self._root))
        request = self._calls.types.CreateCatalogRequest(catalog=catalog)
        self._calls.change("create_catalog", lambda c: c.create_catalog(request))

    def alter(self, record: NamespaceRecord) -> None:
        """Replace a catalog's description, and its location if one is given."""
        (name,) = record.path
        current = self.load(name)
        kept = {CATALOG_LOCATION: _original_location(current.locationUri)}
        wanted = NamespaceRecord(record.path, {**kept, **record.properties})
        self._replace(name, mapping.catalog_fields(wanted, None))

    def drop(self, name: str) -> None:
        """Drop a catalog that contains nothing but an empty `default`, but keep its files.

        Hive deletes the directory of a catalog that it drops. Therefore the catalog's location is
        first changed to a directory that does not exist. It is restored if the catalog was
        certainly not dropped. It is not restored if the outcome is unknown, because a delayed drop
        would then delete the directory: the next drop completes it.

        Raises:
            NamespaceNotEmptyError
            InvalidInputError: the catalog is Hive's own.
            OutcomeUnknownError: a reply was lost.
        """
        if name == HIVE_CATALOG:
            raise invalid(f"Catalog '{name}' is built into Hive and cannot be dropped")
        databases = set(self.databases_of(name))
        catalog = self.load(name)
        location = _original_location(catalog.locationUri)
        unfinished = bool(location != catalog.locationUri)
        missing = self._new_default(name, location) if unfinished else None
        others = sorted(databases - {DEFAULT_DATABASE})
        if others:
            if unfinished:
                self._undo_drop(
                    catalog, location, None if DEFAULT_DATABASE in databases else missing
                )
            raise namespace_not_empty((name,), f"It contains namespaces {', '.join(others[:5])}")
        default = self._drop_default(name) or missing
        try:
            if not unfinished:
                self._set_location(catalog, f"{location.rstrip('/')}{_DROPPED}{uuid.uuid4().hex}")
            request = self._calls.types.DropCatalogRequest(name=name)
            self._calls.change("drop_catalog", lambda c: c.drop_catalog(request))
        except OutcomeUnknownError:
            raise
        except (TException, LanceNamespaceError):
            self._undo_drop(catalog, location, default)
            raise

    def _undo_drop(self, catalog: Any, location: str, default: Any) -> None:
        """Undo the first steps of a failed drop; if that fails too, the next drop completes it."""
        try:
            self._set_location(catalog, location)
            if default is not None:
                self._calls.change("create_database", lambda c: c.create_database(default))
        except (TException, LanceNamespaceError) as error:
            logger.warning(
                "catalog '%s' is partly dropped: drop it again (%s)", catalog.name, error
            )

    def _drop_default(self, name: str) -> Any:
        """Drop the database `default` of the catalog; return it, or None if it does not exist."""
        argument = database_argument((name, DEFAULT_DATABASE))
        try:
            database = self._calls.read("get_database", lambda c: c.get_database(argument))
        except TException as error:
            if is_a(error, "NoSuchObjectException"):
                return None
            raise
        try:
            self._calls.change("drop_database", lambda c: c.drop_database(argument, False, False))
        except OutcomeUnknownError:
            if DEFAULT_DATABASE in self.databases_of(name):
                raise
        except TException as error:
            if is_a(error, "InvalidOperationException"):
                raise namespace_not_empty((name,), text_of(error)) from error
            if not is_a(error, "NoSuchObjectException"):
                raise
        return database

    def _new_default(self, name: str, location: str) -> Any:
        """Return the database `default` as Hive creates it for a new catalog."""
        return self._calls.types.Database(
            name=DEFAULT_DATABASE,
            description=f"Default database for catalog {name}",
            locationUri=location,
            parameters={},
            catalogName=name,
        )

    def _set_location(self, catalog: Any, location: str) -> None:
        fields = {"name": catalog.name, "description": catalog.description}
        self._replace(catalog.name, {**fields, "locationUri": location})

    def _replace(self, name: str, fields: dict[str, str | None]) -> None:
        request = self._calls.types.AlterCatalogRequest(
            name=name, newCat=self._calls.types.Catalog(**fields)
        )
        self._calls.change("alter_catalog", lambda c: c.alter_catalog(request))


def _original_location(location: str) -> str:
    """Return the location that a catalog had before an unfinished drop moved it."""
    return _MOVED.sub("", location)
