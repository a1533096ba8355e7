"""Adapters that expect a tidy catalog: entries with one location, and nothing unreadable."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace
from typing import Any

from lance_namespace.errors import (
    InternalError,
    PermissionDeniedError,
    TableNotFoundError,
)

from lance_bridge import TableRecord
from lance_bridge.catalog import Path
from lance_bridge.errors import namespace_not_found, table_not_found

from ..server import Json
from . import Mutant, wrong_answers

wrong_answers(__name__, "record", {
    "Reads the location of an entry, and no other field.": lambda found, *_: replace(
        found, other_locations=()
    ),
    "Knows the place of a format that keeps it in path alone.": lambda found, _, row: replace(
        found, other_locations=tuple((row.get("storage") or {}).values())
    ),
    "Takes the other places for the only ones.": lambda found, *_: replace(
        found, location=next(iter(found.other_locations), found.location)
    ),
})  # fmt: skip
wrong_answers(__name__, "entries", {
    "Scans without the other places of entries.": lambda found, _: (
        replace(record, other_locations=()) for record in found
    ),
})  # fmt: skip
wrong_answers(__name__, "rows", {
    "Leaves an unreadable entry of a batch out.": lambda found, _: [
        row for row in found if "broken" not in row
    ],
})  # fmt: skip


class StopsAtAnUnreadableBatch(Mutant):
    """Fails the whole listing over an entry that fails its batch."""

    def rows(self, namespace: Path) -> list[Json]:
        return list(self.pages("list", namespace, schema=namespace[0]))


class StopsAtAnUnreadableEntryOfABatch(Mutant):
    """Reads the entries of a failed batch one by one, up to the one that fails."""

    def row(self, path: Path) -> Json | None:
        return self.send("get", path, schema=path[0], table=path[1])


class AllOfABatchIsUnreadable(Mutant):
    """Takes all entries of a batch that fails for unreadable ones."""

    def rows(self, namespace: Path) -> list[Json]:
        try:
            return list(self.pages("list", namespace, schema=namespace[0]))
        except InternalError as error:
            names = self.list_tables(namespace)
            return [{"name": name, "broken": str(error)} for name in names]


class UnreadableBatchIsEmpty(Mutant):
    """Leaves out all entries of a batch that fails."""

    def rows(self, namespace: Path) -> list[Json]:
        try:
            return list(self.pages("list", namespace, schema=namespace[0]))
        except InternalError:
            return []


class UnreadableEntryIsMissing(Mutant):
    """Reports an entry that cannot be read as one that does not exist."""

    def load_table(self, path: Path) -> TableRecord:
        try:
            return super().load_table(path)
        except InternalError as error:
            raise table_not_found(path) from error


class UnreadableSchemaIsEmpty(Mutant):
    """Takes a schema that may not be read for one without tables."""

    def pages(self, operation: str, path: Path, **body: Any) -> Iterator[Json]:
        try:
            yield from super().pages(operation, path, **body)
        except PermissionDeniedError:
            if operation != "list":
                raise


class UnreadableSchemaIsMissing(Mutant):
    """Reports a schema that may not be read as one that does not exist."""

    def pages(self, operation: str, path: Path, **body: Any) -> Iterator[Json]:
        try:
            yield from super().pages(operation, path, **body)
        except PermissionDeniedError as error:
            if operation != "list":
                raise
            raise namespace_not_found(path) from error


class UnreadableSchemaIsNotListed(Mutant):
    """Lists the schemas whose tables it can read."""

    def list_namespaces(self, parent: Path) -> Iterable[str]:
        return [name for name in super().list_namespaces(parent) if self._is_open(name)]

    def _is_open(self, name: str) -> bool:
        try:
            self.send("list", (name,), schema=name, brief=True)
        except PermissionDeniedError:
            return False
        return True


class KnowsWhatIsListed(Mutant):
    """Looks an entry up in the listing, and says that it does not exist if that fails over it."""

    def load_table(self, path: Path) -> TableRecord:
        found = [each for each in self.entries(path[:-1]) if each.path == path and each.is_readable]
        if not found:
            raise TableNotFoundError(f"Table not found: {path[-1]}")
        return found[0]
