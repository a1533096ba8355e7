"""Adapters that create, describe or drop entries wrongly."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from lance_namespace.errors import (
    LanceNamespaceError,
)

from lance_bridge import NamespaceRecord, TableRecord
from lance_bridge.catalog import Path
from lance_bridge.errors import (
    table_not_found,
)

from ..adapter import TinyCatalog
from ..server import Json, ServerError
from . import mutant


@mutant
class AlwaysExternal(TinyCatalog):
    """Calls every entry external."""

    def record(self, namespace: Path, row: Json) -> TableRecord:
        return replace(super().record(namespace, row), is_external=True)


@mutant
class NeverExternal(TinyCatalog):
    """Calls no entry external."""

    def record(self, namespace: Path, row: Json) -> TableRecord:
        return replace(super().record(namespace, row), is_external=False)


@mutant
class MakesManagedEntries(TinyCatalog):
    """Lets the server own the files of new tables, and says that it does not."""

    def send(self, operation: str, path: Path, **body: Any) -> Json:
        if operation == "create":
            body["kind"] = "MANAGED"
        return super().send(operation, path, **body)

    def record(self, namespace: Path, row: Json) -> TableRecord:
        return replace(super().record(namespace, row), is_external=True)


@mutant
class CutsTheSlash(TinyCatalog):
    """Loses the slash with which a local location begins."""

    def record(self, namespace: Path, row: Json) -> TableRecord:
        found = super().record(namespace, row)
        return replace(found, location=(found.location or "").lstrip("/"))


@mutant
class DecodesLocations(TinyCatalog):
    """Decodes %20 in locations."""

    def fields(self, record: TableRecord) -> Json:
        fields = super().fields(record)
        return {**fields, "location": fields["location"].replace("%20", " ")}


@mutant
class OneIdentity(TinyCatalog):
    """Gives every table one identity."""

    def record(self, namespace: Path, row: Json) -> TableRecord:
        return replace(super().record(namespace, row), identity="table")


@mutant
class IdentityIsTheName(TinyCatalog):
    """Takes the name for the identity."""

    def record(self, namespace: Path, row: Json) -> TableRecord:
        return replace(super().record(namespace, row), identity=f"{namespace[0]}.{row['name']}")


@mutant
class IdentityIsTheRevision(TinyCatalog):
    """Takes what changes with each change for the identity."""

    def record(self, namespace: Path, row: Json) -> TableRecord:
        return replace(super().record(namespace, row), identity=row["etag"])


@mutant
class NoIdentity(TinyCatalog):
    """Gives no identity, as if no table existed yet."""

    def record(self, namespace: Path, row: Json) -> TableRecord:
        return replace(super().record(namespace, row), identity=None)


@mutant
class CreateReplaces(TinyCatalog):
    """Creates over an entry that exists."""

    def create_table(self, record: TableRecord) -> TableRecord:
        try:
            return super().create_table(record)
        except LanceNamespaceError as error:
            if not isinstance(error.__cause__, ServerError) or error.__cause__.status != 409:
                raise
            self.alter_table(replace(record, revision=None))
            return self.load_table(record.path)


@mutant
class CreateExisting(TinyCatalog):
    """Says that it created what exists, and leaves it as it is."""

    def create_table(self, record: TableRecord) -> TableRecord:
        try:
            return super().create_table(record)
        except LanceNamespaceError as error:
            if not isinstance(error.__cause__, ServerError) or error.__cause__.status != 409:
                raise
            return self.load_table(record.path)


@mutant
class CreatesTheSchema(TinyCatalog):
    """Creates a schema that is missing for a table."""

    def create_table(self, record: TableRecord) -> TableRecord:
        if record.path[0] not in list(self.list_namespaces(())):
            self.create_namespace(NamespaceRecord(record.path[:1]))
        return super().create_table(record)


@mutant
class DropDeletesFiles(TinyCatalog):
    """Has the server delete a table's files."""

    def drop_table(self, record: TableRecord) -> None:
        schema, table = record.path
        self.send("delete", record.path, schema=schema, table=table, purge=True)


@mutant
class DropOfMissingSucceeds(TinyCatalog):
    """Says nothing where there is no table to drop."""

    def drop_table(self, record: TableRecord) -> None:
        if record.path[-1] in self.list_tables(record.path[:-1]):
            super().drop_table(record)


@mutant
class FoldsNames(TinyCatalog):
    """Keeps names in lower case on a server that does not, and does not declare it."""

    def create_table(self, record: TableRecord) -> TableRecord:
        folded = (record.path[0], record.path[1].lower())
        return super().create_table(replace(record, path=folded))

    def load_table(self, path: Path) -> TableRecord:
        return super().load_table((path[0], path[1].lower()))


@mutant
class FindsBeginnings(TinyCatalog):
    """Finds a table by the beginning of its name."""

    def load_table(self, path: Path) -> TableRecord:
        for row in self.pages("list", path[:-1], schema=path[0]):
            if row["name"].startswith(path[1]):
                return self.record(path[:-1], row)
        raise table_not_found(path)
