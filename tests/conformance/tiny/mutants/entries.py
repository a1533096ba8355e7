"""Adapters that create, describe, rename or drop entries wrongly."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from lance_namespace.errors import LanceNamespaceError

from lance_bridge import NamespaceRecord, TableRecord
from lance_bridge.catalog import GUARD, Path
from lance_bridge.errors import (
    concurrent_modification,
    table_already_exists,
    table_not_found,
)

from ..server import Json, ServerError
from . import Mutant, wrong_answers, wrong_arguments

wrong_answers(__name__, "record", {
    "Calls every entry external.": lambda found, *_: replace(found, is_external=True),
    "Calls no entry external.": lambda found, *_: replace(found, is_external=False),
    "Loses the slash with which a local path begins.": lambda found, *_: replace(
        found, location=(found.location or "").replace("file:///", "file://")
    ),
    "Gives every table one identity.": lambda found, *_: replace(found, identity="table"),
    "Takes the name for the identity.": lambda found, *_: replace(found, identity=str(found.path)),
    "Takes what changes with each change for the identity.": lambda found, _, row: replace(
        found, identity=row["etag"]
    ),
    "Gives no identity, as if no table existed yet.": lambda found, *_: replace(
        found, identity=None
    ),
})  # fmt: skip
wrong_answers(__name__, "fields", {
    "Decodes %20 in locations.": lambda fields, _: {
        **fields, "location": fields["location"].replace("%20", " ")
    },
})  # fmt: skip
wrong_answers(__name__, "fields", {
    "Stores a local location without its scheme.": lambda fields, _: {
        **fields, "location": fields["location"].removeprefix("file://")
    },
})  # fmt: skip
wrong_arguments(__name__, "drop_table", {
    "Drops a later table of the name.": lambda _, record: [replace(record, identity=None)],
})  # fmt: skip
wrong_arguments(__name__, "rename_table", {
    "Renames within the old schema, whatever the new path says.": lambda _, record, new: (
        record, (record.path[0], new[1])
    ),
})  # fmt: skip


class MakesManagedEntries(Mutant):
    """Lets the server own the files of new tables, and says that it does not."""

    def send(self, operation: str, path: Path, **body: Any) -> Json:
        if operation == "create":
            body["kind"] = "MANAGED"
        return super().send(operation, path, **body)

    def record(self, namespace: Path, row: Json) -> TableRecord:
        return replace(super().record(namespace, row), is_external=True)


class CreateReplaces(Mutant):
    """Creates over an entry that exists."""

    def create_table(self, record: TableRecord) -> TableRecord:
        try:
            return super().create_table(record)
        except LanceNamespaceError as error:
            if not isinstance(error.__cause__, ServerError) or error.__cause__.status != 409:
                raise
            self.alter_table(replace(record, revision=None))
            return self.load_table(record.path)


class CreateExisting(Mutant):
    """Says that it created what exists, and leaves it as it is."""

    def create_table(self, record: TableRecord) -> TableRecord:
        try:
            return super().create_table(record)
        except LanceNamespaceError as error:
            if not isinstance(error.__cause__, ServerError) or error.__cause__.status != 409:
                raise
            return self.load_table(record.path)


class CreatesTheSchema(Mutant):
    """Creates a schema that is missing for a table."""

    def create_table(self, record: TableRecord) -> TableRecord:
        if record.path[0] not in list(self.list_namespaces(())):
            self.create_namespace(NamespaceRecord(record.path[:1]))
        return super().create_table(record)


class DropDeletesFiles(Mutant):
    """Has the server delete a table's files."""

    def drop_table(self, record: TableRecord) -> None:
        schema, table = record.path
        self.send("delete", record.path, schema=schema, table=table, purge=True)


class DropOfMissingSucceeds(Mutant):
    """Says nothing where there is no table to drop."""

    def drop_table(self, record: TableRecord) -> None:
        if record.path[-1] in self.list_tables(record.path[:-1]):
            super().drop_table(record)


class DropOfAReplacedTableSucceeds(Mutant):
    """Says nothing where another table has got the name, and leaves that one."""

    def drop_table(self, record: TableRecord) -> None:
        try:
            super().drop_table(record)
        except LanceNamespaceError as error:
            if error.code != 14:
                raise


class FoldsNames(Mutant):
    """Keeps names in lower case on a server that does not, and does not declare it."""

    def create_table(self, record: TableRecord) -> TableRecord:
        folded = (record.path[0], record.path[1].lower())
        return super().create_table(replace(record, path=folded))

    def load_table(self, path: Path) -> TableRecord:
        return super().load_table((path[0], path[1].lower()))


class FindsBeginnings(Mutant):
    """Finds a table by the beginning of its name."""

    def load_table(self, path: Path) -> TableRecord:
        for row in self.pages("list", path[:-1], schema=path[0]):
            if row["name"].startswith(path[1]):
                return self.record(path[:-1], row)
        raise table_not_found(path)


# -- renames ---------------------------------------------------------------------------------------


class RenameOverwrites(Mutant):
    """Renames over an entry that exists."""

    def rename_table(self, record: TableRecord, new_path: Path) -> None:
        schema, table = record.path
        guard = record.revision if GUARD in record.properties else None
        self.send(
            "move", record.path, schema=schema, table=table, to=tuple(new_path), if_match=guard,
            force=True,
        )  # fmt: skip


class RenamesByCreateAndDrop(Mutant):
    """Makes a new table of the new name, and drops the old one."""

    def rename_table(self, record: TableRecord, new_path: Path) -> None:
        found = self.load_table(record.path)
        if GUARD in record.properties and found.revision != record.revision:
            raise concurrent_modification(record.path)
        self.create_table(replace(found, path=new_path))
        self.drop_table(found)


class RenameBlamesTheOldName(Mutant):
    """Says of the old name that it exists, where the new one is taken."""

    def rename_table(self, record: TableRecord, new_path: Path) -> None:
        try:
            super().rename_table(record, new_path)
        except LanceNamespaceError as error:
            if isinstance(error.__context__, ServerError) or error.code == 5:
                raise table_already_exists(record.path) from error
            raise
