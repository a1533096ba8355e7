"""Adapters that treat namespaces wrongly."""

from __future__ import annotations

from lance_namespace.errors import LanceNamespaceError

from lance_bridge import NamespaceRecord
from lance_bridge.catalog import Path
from lance_bridge.errors import (
    namespace_not_empty,
    namespace_not_found,
    table_not_found,
)

from . import Mutant, wrong_answers, wrong_arguments

wrong_answers(__name__, "meaning", {
    "Says of a missing schema that a table does not exist.": lambda found, error, _, path: (
        table_not_found(path) if error.code == "NO_SUCH_SCHEMA" else found
    ),
    "Says of a missing table that its schema does not exist.": lambda found, error, _, path: (
        namespace_not_found(path) if error.code == "NO_SUCH_TABLE" else found
    ),
})  # fmt: skip
wrong_answers(__name__, "list_namespaces", {
    "Lists namespaces in another order.": lambda found, _: sorted(found, reverse=True),
})  # fmt: skip
wrong_arguments(__name__, "create_namespace", {
    "Creates schemas without their properties.": lambda _, record: [NamespaceRecord(record.path)],
})  # fmt: skip


class EveryNamespaceExists(Mutant):
    """Makes up a schema where there is none."""

    def load_namespace(self, path: Path) -> NamespaceRecord:
        try:
            return super().load_namespace(path)
        except LanceNamespaceError as error:
            if error.code != 1:
                raise
            return NamespaceRecord(path)


class DropsWithTables(Mutant):
    """Drops a schema with all that is in it, and declares that the server does not."""

    def drop_namespace(self, path: Path) -> None:
        self.send("delete_schema", path, schema=path[0], cascade=True)


class DropsWithoutALock(Mutant):
    """Looks whether a schema is empty, and drops it with what was created in it since."""

    def drop_namespace(self, path: Path) -> None:
        if list(self.list_tables(path)):
            raise namespace_not_empty(path, "it holds tables")
        self.send("delete_schema", path, schema=path[0], cascade=True)


class CreatesExistingNamespaces(Mutant):
    """Says that it created a schema that exists."""

    def create_namespace(self, record: NamespaceRecord) -> None:
        if record.path[0] not in list(self.list_namespaces(())):
            super().create_namespace(record)
