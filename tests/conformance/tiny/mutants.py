"""Adapters of the small service that are wrong in one way each, to see that the kit finds it.

Each subclass of `Mutant` is one mistake that an author has made or could make; its docstring says
which. Where a function is enough, `wrong_answers` and `wrong_arguments` make the subclass.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import replace
from importlib import import_module
from itertools import islice
from typing import Any, ClassVar

from lance_namespace.errors import (
    InternalError,
    LanceNamespaceError,
    PermissionDeniedError,
)

from lance_bridge import NamespaceRecord, TableRecord
from lance_bridge.catalog import GUARD, RESERVED_PREFIX, Path
from lance_bridge.errors import (
    concurrent_modification,
    namespace_not_empty,
    namespace_not_found,
    table_already_exists,
    table_not_found,
)

from .adapter import PAGE, SERVERS, Json, ServerError, TinyCatalog

GROUPS = (
    "connections", "entries", "faults", "guards", "listings", "namespaces", "neighbours",
    "properties",
)  # fmt: skip
Mistakes = Mapping[str, Callable[..., Any]]
"""What is wrong, and the function that makes it so."""


class Mutant(TinyCatalog):
    """The correct adapter; its subclasses are groups, whose own make one thing wrong."""

    group: ClassVar[str]


_made: list[type[Mutant]] = []


def wrong_answers(group: type[Mutant], method: str, mistakes: Mistakes) -> None:
    """Make mutants whose functions get the right answer of a method, and then its arguments."""
    right = vars(TinyCatalog)[method]

    def override(change: Callable[..., Any]) -> Any:
        if isinstance(right, property):
            return property(lambda self: change(right.__get__(self)))
        return lambda self, *given, **named: change(right(self, *given, **named), *given)

    _make(group, method, {text: override(change) for text, change in mistakes.items()})


def wrong_arguments(group: type[Mutant], method: str, mistakes: Mistakes) -> None:
    """Make mutants whose functions get the adapter and the arguments, and return others."""
    right = vars(TinyCatalog)[method]

    def override(change: Callable[..., Any]) -> Any:
        return lambda self, *given, **named: right(self, *change(self, *given), **named)

    _make(group, method, {text: override(change) for text, change in mistakes.items()})


def _make(group: type[Mutant], method: str, overrides: Mistakes) -> None:
    for text, override in overrides.items():
        name = "".join(word.capitalize() for word in re.findall(r"\w+", text))
        _made.append(type(name, (group,), {"__doc__": text, method: override}))


def all_mutants() -> dict[str, type[Mutant]]:
    """Return every mutant by its name."""
    import_module(f"{__name__}_under_faults")
    kinds = (kind for group in Mutant.__subclasses__() for kind in group.__subclasses__())
    return {kind.__name__: kind for kind in kinds}


class Entries(Mutant):
    """Adapters that create, describe, rename or drop entries wrongly."""

    group = "entries"


wrong_answers(Entries, "record", {
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
wrong_answers(Entries, "fields", {
    "Decodes %20 in locations.": lambda fields, _: {
        **fields, "location": fields["location"].replace("%20", " ")
    },
})  # fmt: skip
wrong_answers(Entries, "fields", {
    "Stores a local location without its scheme.": lambda fields, _: {
        **fields, "location": fields["location"].removeprefix("file://")
    },
})  # fmt: skip
wrong_arguments(Entries, "drop_table", {
    "Drops a later table of the name.": lambda _, record: [replace(record, identity=None)],
})  # fmt: skip
wrong_arguments(Entries, "rename_table", {
    "Renames within the old schema, whatever the new path says.": lambda _, record, new: (
        record, (record.path[0], new[1])
    ),
})  # fmt: skip


class MakesManagedEntries(Entries):
    """Lets the server own the files of new tables, and says that it does not."""

    def send(self, operation: str, path: Path, **body: Any) -> Json:
        if operation == "create":
            body["kind"] = "MANAGED"
        return super().send(operation, path, **body)

    def record(self, namespace: Path, row: Json) -> TableRecord:
        return replace(super().record(namespace, row), is_external=True)


class CreateReplaces(Entries):
    """Creates over an entry that exists."""

    def create_table(self, record: TableRecord) -> TableRecord:
        try:
            return super().create_table(record)
        except LanceNamespaceError as error:
            if not isinstance(error.__cause__, ServerError) or error.__cause__.status != 409:
                raise
            self.alter_table(replace(record, revision=None))
            return self.load_table(record.path)


class CreateExisting(Entries):
    """Says that it created what exists, and leaves it as it is."""

    def create_table(self, record: TableRecord) -> TableRecord:
        try:
            return super().create_table(record)
        except LanceNamespaceError as error:
            if not isinstance(error.__cause__, ServerError) or error.__cause__.status != 409:
                raise
            return self.load_table(record.path)


class CreatesTheSchema(Entries):
    """Creates a schema that is missing for a table."""

    def create_table(self, record: TableRecord) -> TableRecord:
        if record.path[0] not in list(self.list_namespaces(())):
            self.create_namespace(NamespaceRecord(record.path[:1]))
        return super().create_table(record)


class DropDeletesFiles(Entries):
    """Has the server delete a table's files."""

    def drop_table(self, record: TableRecord) -> None:
        schema, table = record.path
        self.send("delete", record.path, schema=schema, table=table, purge=True)


class DropOfMissingSucceeds(Entries):
    """Says nothing where there is no table to drop."""

    def drop_table(self, record: TableRecord) -> None:
        if record.path[-1] in self.list_tables(record.path[:-1]):
            super().drop_table(record)


class DropOfAReplacedTableSucceeds(Entries):
    """Says nothing where another table has got the name, and leaves that one."""

    def drop_table(self, record: TableRecord) -> None:
        try:
            super().drop_table(record)
        except LanceNamespaceError as error:
            if error.code != 14:
                raise


class FoldsNames(Entries):
    """Keeps names in lower case on a server that does not, and does not declare it."""

    def create_table(self, record: TableRecord) -> TableRecord:
        folded = (record.path[0], record.path[1].lower())
        return super().create_table(replace(record, path=folded))

    def load_table(self, path: Path) -> TableRecord:
        return super().load_table((path[0], path[1].lower()))


class FindsBeginnings(Entries):
    """Finds a table by the beginning of its name."""

    def load_table(self, path: Path) -> TableRecord:
        for row in self.pages("list", path[:-1], schema=path[0]):
            if row["name"].startswith(path[1]):
                return self.record(path[:-1], row)
        raise table_not_found(path)


# -- renames ---------------------------------------------------------------------------------------


class RenameOverwrites(Entries):
    """Renames over an entry that exists."""

    def rename_table(self, record: TableRecord, new_path: Path) -> None:
        schema, table = record.path
        guard = record.revision if GUARD in record.properties else None
        self.send(
            "move", record.path, schema=schema, table=table, to=tuple(new_path), if_match=guard,
            force=True,
        )  # fmt: skip


class RenamesByCreateAndDrop(Entries):
    """Makes a new table of the new name, and drops the old one."""

    def rename_table(self, record: TableRecord, new_path: Path) -> None:
        found = self.load_table(record.path)
        if GUARD in record.properties and found.revision != record.revision:
            raise concurrent_modification(record.path)
        self.create_table(replace(found, path=new_path))
        self.drop_table(found)


class RenameBlamesTheOldName(Entries):
    """Says of the old name that it exists, where the new one is taken."""

    def rename_table(self, record: TableRecord, new_path: Path) -> None:
        try:
            super().rename_table(record, new_path)
        except LanceNamespaceError as error:
            if isinstance(error.__context__, ServerError) or error.code == 5:
                raise table_already_exists(record.path) from error
            raise


class Namespaces(Mutant):
    """Adapters that treat namespaces wrongly."""

    group = "namespaces"


wrong_answers(Namespaces, "meaning", {
    "Says of a missing schema that a table does not exist.": lambda found, error, _, path: (
        table_not_found(path) if error.code == "NO_SUCH_SCHEMA" else found
    ),
    "Says of a missing table that its schema does not exist.": lambda found, error, _, path: (
        namespace_not_found(path) if error.code == "NO_SUCH_TABLE" else found
    ),
})  # fmt: skip
wrong_answers(Namespaces, "list_namespaces", {
    "Lists namespaces in another order.": lambda found, _: sorted(found, reverse=True),
})  # fmt: skip
wrong_arguments(Namespaces, "create_namespace", {
    "Creates schemas without their properties.": lambda _, record: [NamespaceRecord(record.path)],
})  # fmt: skip


class EveryNamespaceExists(Namespaces):
    """Makes up a schema where there is none."""

    def load_namespace(self, path: Path) -> NamespaceRecord:
        try:
            return super().load_namespace(path)
        except LanceNamespaceError as error:
            if error.code != 1:
                raise
            return NamespaceRecord(path)


class DropsWithTables(Namespaces):
    """Drops a schema with all that is in it, and declares that the server does not."""

    def drop_namespace(self, path: Path) -> None:
        self.send("delete_schema", path, schema=path[0], cascade=True)


class DropsWithoutALock(Namespaces):
    """Looks whether a schema is empty, and drops it with what was created in it since."""

    def drop_namespace(self, path: Path) -> None:
        if list(self.list_tables(path)):
            raise namespace_not_empty(path, "it holds tables")
        self.send("delete_schema", path, schema=path[0], cascade=True)


class CreatesExistingNamespaces(Namespaces):
    """Says that it created a schema that exists."""

    def create_namespace(self, record: NamespaceRecord) -> None:
        if record.path[0] not in list(self.list_namespaces(())):
            super().create_namespace(record)


class Properties(Mutant):
    """Adapters that lose or change properties."""

    group = "properties"


def stored(change: Callable[[Mapping[str, str]], Mapping[str, str]]) -> Callable[..., Any]:
    """Return what changes the options of the fields that the server is to hold."""
    return lambda fields, _: {**fields, "options": change(fields["options"])}


def shown(change: Callable[[Mapping[str, str]], Mapping[str, str]]) -> Callable[..., Any]:
    """Return what changes the properties of a record."""
    return lambda found, *_: found.with_properties(change(found.properties))


def unreserved(properties: Mapping[str, str]) -> Mapping[str, str]:
    return {k: v for k, v in properties.items() if not k.startswith(RESERVED_PREFIX)}


wrong_answers(Properties, "fields", {
    "Cuts values at 255 characters.": stored(lambda all: {k: v[:255] for k, v in all.items()}),
    "Leaves out what is empty.": stored(lambda all: {k: v for k, v in all.items() if v}),
    "Loses what is not ASCII.": stored(
        lambda all: {k: v.encode("ascii", "replace").decode() for k, v in all.items()}
    ),
    "Keeps keys in lower case.": stored(lambda all: {k.lower(): v for k, v in all.items()}),
})  # fmt: skip
wrong_answers(Properties, "record", {
    "Strips white space around values.": shown(lambda all: {k: v.strip() for k, v in all.items()}),
    "Hides lance_bridge.* as if they were its own.": shown(unreserved),
    "Shows what the server keeps for itself among the properties.": lambda found, _, row: (
        found.with_properties({**found.properties, "etag": row["etag"]})
    ),
    "Gives None where an entry has no properties but its marks.": lambda found, *_: (
        replace(found, properties=None)
        if set(found.properties) <= {"table_type", "managed_by"}
        else found
    ),
})  # fmt: skip
wrong_answers(Properties, "entries", {
    "Shows lance_bridge.* when an entry is loaded, and not when it is scanned.": lambda found, _: (
        each.with_properties(unreserved(each.properties)) for each in found
    ),
})  # fmt: skip
wrong_arguments(Properties, "alter_table", {
    "Cuts values at 4000 characters, when an entry changes only.": lambda _, record: [
        record.with_properties({k: v[:4000] for k, v in record.properties.items()})
    ],
    "Keeps properties that an alter leaves out.": lambda catalog, record: [
        record.with_properties({**catalog.load_table(record.path).properties, **record.properties})
    ],
    "Changes properties, and takes no notice of the location.": lambda catalog, record: [
        replace(record, location=catalog.load_table(record.path).location)
    ],
})  # fmt: skip
wrong_arguments(Properties, "alter_namespace", {
    "Keeps a schema's properties that an alter leaves out.": lambda catalog, record: [
        NamespaceRecord(
            record.path, {**catalog.load_namespace(record.path).properties, **record.properties}
        )
    ],
})  # fmt: skip


class Listings(Mutant):
    """Adapters that list wrongly, or keep from core what else needs the files at a location."""

    group = "listings"


wrong_answers(Listings, "list_tables", {
    "Lists ten names at most; everything else reads all pages.": lambda found, _: found[:10],
    "Sorts names as some databases do.": lambda found, _: sorted(
        found, key=lambda name: name.replace("_", "")
    ),
})  # fmt: skip
wrong_answers(Listings, "scan_tables", {
    "Scans two hundred entries at most, though names are listed whole.": lambda found, _: islice(
        found, 200
    ),
})  # fmt: skip
wrong_answers(Listings, "entries", {
    "Scans as if an entry that cannot be read did not exist.": lambda found, _: (
        record for record in found if record.is_readable
    ),
})  # fmt: skip
wrong_answers(Listings, "partition_locations", {
    "Returns the partitions on the first page.": lambda found, _: islice(found, PAGE),
})  # fmt: skip
wrong_answers(Listings, "scan_hidden_tables", {
    "Returns the hidden tables on the first page.": lambda found: islice(found, PAGE),
})  # fmt: skip
wrong_answers(Listings, "record", {
    "Says of no entry that it has partitions.": lambda found, *_: replace(
        found, is_partitioned=False
    ),
})  # fmt: skip
wrong_answers(Listings, "capabilities", {
    "Has scan_hidden_tables, and does not declare it: no case would be run.": lambda found: replace(
        found, hides_tables=False
    ),
})  # fmt: skip


class FirstPageOnly(Listings):
    """Takes no notice of the token for the next page."""

    def pages(self, operation: str, path: Path, **body: Any) -> Iterator[Json]:
        yield from self.send(operation, path, **body, after="")["rows"]


class FirstPageOfSchemas(Listings):
    """Reads all pages of tables, and one of schemas."""

    def list_namespaces(self, parent: Path) -> Iterable[str]:
        return [row["name"] for row in self.send("list_schemas", parent)["rows"]]


class RepeatsAcrossPages(Listings):
    """Begins each page with the last row of the page before."""

    def list_tables(self, namespace: Path, *, lance_only: bool = False) -> Iterable[str]:
        names: list[str] = []
        for number, name in enumerate(super().list_tables(namespace, lance_only=lance_only)):
            if number % 10 == 0:
                names += names[-1:]
            names.append(name)
        return names


class EndsWhereItBreaks(Listings):
    """Takes an error on a later page for the end of the listing."""

    def pages(self, operation: str, path: Path, **body: Any) -> Iterator[Json]:
        rows = super().pages(operation, path, **body)
        started = False
        try:
            for row in rows:
                started = True
                yield row
        except InternalError:
            if not started:
                raise


class StopsAtABrokenEntry(Listings):
    """Fails the whole listing over one entry that cannot be read."""

    def entries(self, namespace: Path) -> Iterator[TableRecord]:
        for row in self.pages("list", namespace, schema=namespace[0]):
            yield self.record(namespace, row)


class HidesBrokenEntries(Listings):
    """Leaves entries that cannot be read out of the names, so that a schema looks empty."""

    def list_tables(self, namespace: Path, *, lance_only: bool = False) -> Iterable[str]:
        records = self.scan_tables(namespace, lance_only=lance_only)
        return [record.path[-1] for record in records if record.is_readable]


class UnsortedScan(Listings):
    """Returns Lance tables in the opposite order."""

    def scan_tables(
        self, namespace: Path, *, lance_only: bool = False, after: str | None = None
    ) -> Iterable[TableRecord]:
        found = list(super().scan_tables(namespace, lance_only=lance_only, after=after))
        return found[::-1] if lance_only else found


class ScanIncludesTheMarker(Listings):
    """Begins a scan at the name after which it should begin."""

    def scan_tables(
        self, namespace: Path, *, lance_only: bool = False, after: str | None = None
    ) -> Iterable[TableRecord]:
        found = super().scan_tables(namespace, lance_only=lance_only)
        return [r for r in found if after is None or r.path[-1] >= after]


class LowerCaseMarkOnly(Listings):
    """Knows Lance tables by table_type=lance in lower case alone."""

    def list_tables(self, namespace: Path, *, lance_only: bool = False) -> Iterable[str]:
        records = self.scan_tables(namespace)
        if not lance_only:
            return super().list_tables(namespace)
        return [r.path[-1] for r in records if r.properties.get("table_type") == "lance"]


class ListsEverySchema(Listings):
    """Lists the tables of all schemas whose names begin alike."""

    def list_tables(self, namespace: Path, *, lance_only: bool = False) -> Iterable[str]:
        names: list[str] = list(super().list_tables(namespace, lance_only=lance_only))
        for (schema, table), _ in list(SERVERS[self._config.server].tables.items()):
            if schema != namespace[0] and schema.startswith(namespace[0]):
                names.append(table)
        return sorted(names)


class EmptyInsteadOfMissing(Listings):
    """Lists a schema that does not exist as an empty one."""

    def pages(self, operation: str, path: Path, **body: Any) -> Iterator[Json]:
        try:
            yield from super().pages(operation, path, **body)
        except LanceNamespaceError as error:
            if not isinstance(error.__cause__, ServerError) or error.__cause__.status != 404:
                raise


class RefusedPartitionsAreNone(Listings):
    """Takes partitions that may not be read for none."""

    def partition_locations(self, record: TableRecord) -> Iterable[str]:
        try:
            yield from super().partition_locations(record)
        except PermissionDeniedError:
            return
