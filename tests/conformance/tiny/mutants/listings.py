"""Adapters that list wrongly."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import islice
from typing import Any

from lance_namespace.errors import (
    InternalError,
    LanceNamespaceError,
)

from lance_bridge import TableRecord
from lance_bridge.catalog import Path

from ..adapter import SERVERS, TinyCatalog
from ..server import Json, ServerError
from . import mutant


@mutant
class FirstPageOnly(TinyCatalog):
    """Takes no notice of the token for the next page."""

    def pages(self, operation: str, path: Path, **body: Any) -> Iterator[Json]:
        yield from self.send(operation, path, **body, after="")["rows"]


@mutant
class TenTables(TinyCatalog):
    """Lists ten names at most; everything else reads all pages."""

    def list_tables(self, namespace: Path, *, lance_only: bool = False) -> Iterable[str]:
        return list(islice(super().list_tables(namespace, lance_only=lance_only), 10))


@mutant
class FirstPageOfSchemas(TinyCatalog):
    """Reads all pages of tables, and one of schemas."""

    def list_namespaces(self, parent: Path) -> Iterable[str]:
        return [row["name"] for row in self.send("list_schemas", parent)["rows"]]


@mutant
class RepeatsAcrossPages(TinyCatalog):
    """Begins each page with the last row of the page before."""

    def list_tables(self, namespace: Path, *, lance_only: bool = False) -> Iterable[str]:
        names: list[str] = []
        for number, name in enumerate(super().list_tables(namespace, lance_only=lance_only)):
            if number % 10 == 0:
                names += names[-1:]
            names.append(name)
        return names


@mutant
class EndsWhereItBreaks(TinyCatalog):
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


@mutant
class StopsAtABrokenEntry(TinyCatalog):
    """Fails the whole listing over one entry that cannot be read."""

    def entries(self, namespace: Path) -> Iterator[TableRecord]:
        for row in self.pages("list", namespace, schema=namespace[0]):
            yield self.record(namespace, row)


@mutant
class HidesBrokenEntries(TinyCatalog):
    """Leaves entries that cannot be read out of the names, so that a schema looks empty."""

    def list_tables(self, namespace: Path, *, lance_only: bool = False) -> Iterable[str]:
        records = self.scan_tables(namespace, lance_only=lance_only)
        return [record.path[-1] for record in records if record.is_readable]


@mutant
class UnsortedScan(TinyCatalog):
    """Returns Lance tables in the opposite order."""

    def scan_tables(
        self, namespace: Path, *, lance_only: bool = False, after: str | None = None
    ) -> Iterable[TableRecord]:
        found = list(super().scan_tables(namespace, lance_only=lance_only, after=after))
        return found[::-1] if lance_only else found


@mutant
class ScanIncludesTheMarker(TinyCatalog):
    """Begins a scan at the name after which it should begin."""

    def scan_tables(
        self, namespace: Path, *, lance_only: bool = False, after: str | None = None
    ) -> Iterable[TableRecord]:
        found = super().scan_tables(namespace, lance_only=lance_only)
        return [r for r in found if after is None or r.path[-1] >= after]


@mutant
class LowerCaseMarkOnly(TinyCatalog):
    """Knows Lance tables by table_type=lance in lower case alone."""

    def list_tables(self, namespace: Path, *, lance_only: bool = False) -> Iterable[str]:
        records = self.scan_tables(namespace)
        if not lance_only:
            return super().list_tables(namespace)
        return [r.path[-1] for r in records if r.properties.get("table_type") == "lance"]


@mutant
class ListsEverySchema(TinyCatalog):
    """Lists the tables of all schemas whose names begin alike."""

    def list_tables(self, namespace: Path, *, lance_only: bool = False) -> Iterable[str]:
        names: list[str] = list(super().list_tables(namespace, lance_only=lance_only))
        for (schema, table), _ in list(SERVERS[self._config.server].tables.items()):
            if schema != namespace[0] and schema.startswith(namespace[0]):
                names.append(table)
        return sorted(names)


@mutant
class EmptyInsteadOfMissing(TinyCatalog):
    """Lists a schema that does not exist as an empty one."""

    def pages(self, operation: str, path: Path, **body: Any) -> Iterator[Json]:
        try:
            yield from super().pages(operation, path, **body)
        except LanceNamespaceError as error:
            if not isinstance(error.__cause__, ServerError) or error.__cause__.status != 404:
                raise


@mutant
class SortsWithoutUnderscores(TinyCatalog):
    """Sorts names as some databases do."""

    def list_tables(self, namespace: Path, *, lance_only: bool = False) -> Iterable[str]:
        found = super().list_tables(namespace, lance_only=lance_only)
        return sorted(found, key=lambda name: name.replace("_", ""))


@mutant
class LeavesOutTheUnreadable(TinyCatalog):
    """Scans as if an entry that cannot be read did not exist."""

    def entries(self, namespace: Path) -> Iterator[TableRecord]:
        return (record for record in super().entries(namespace) if record.is_readable)
