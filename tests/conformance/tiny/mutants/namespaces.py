"""Adapters that treat namespaces wrongly."""

from __future__ import annotations

from collections.abc import Iterable

from lance_namespace.errors import (
    LanceNamespaceError,
)

from lance_bridge import NamespaceRecord
from lance_bridge.catalog import Path
from lance_bridge.errors import (
    namespace_not_found,
    table_not_found,
)

from ..adapter import TinyCatalog
from ..server import ServerError
from . import mutant


@mutant
class EveryNamespaceExists(TinyCatalog):
    """Makes up a schema where there is none."""

    def load_namespace(self, path: Path) -> NamespaceRecord:
        try:
            return super().load_namespace(path)
        except LanceNamespaceError as error:
            if error.code != 1:
                raise
            return NamespaceRecord(path)


@mutant
class MissingSchemaIsAMissingTable(TinyCatalog):
    """Says of a missing schema that a table does not exist."""

    def meaning(self, error: ServerError, operation: str, path: Path) -> LanceNamespaceError:
        if error.code == "NO_SUCH_SCHEMA":
            return table_not_found(path)
        return super().meaning(error, operation, path)


@mutant
class MissingTableIsAMissingSchema(TinyCatalog):
    """Says of a missing table that its schema does not exist."""

    def meaning(self, error: ServerError, operation: str, path: Path) -> LanceNamespaceError:
        if error.code == "NO_SUCH_TABLE":
            return namespace_not_found(path)
        return super().meaning(error, operation, path)


@mutant
class DropsWithTables(TinyCatalog):
    """Drops a schema with all that is in it, and declares that the server does not."""

    def drop_namespace(self, path: Path) -> None:
        self.send("delete_schema", path, schema=path[0], cascade=True)


@mutant
class CreatesExistingNamespaces(TinyCatalog):
    """Says that it created a schema that exists."""

    def create_namespace(self, record: NamespaceRecord) -> None:
        if record.path[0] not in list(self.list_namespaces(())):
            super().create_namespace(record)


@mutant
class LosesNamespaceProperties(TinyCatalog):
    """Creates schemas without their properties."""

    def create_namespace(self, record: NamespaceRecord) -> None:
        super().create_namespace(NamespaceRecord(record.path))


@mutant
class SortsNamespacesBackwards(TinyCatalog):
    """Lists namespaces in another order."""

    def list_namespaces(self, parent: Path) -> Iterable[str]:
        return sorted(super().list_namespaces(parent), reverse=True)
