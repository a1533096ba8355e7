"""Adapters that list wrongly, or keep from core what else needs the files at a location."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace
from itertools import islice
from typing import Any

from lance_namespace.errors import (
    InternalError,
    LanceNamespaceError,
    PermissionDeniedError,
)

from lance_bridge import TableRecord
from lance_bridge.catalog import Path

from ..adapter import SERVERS
from ..server import PAGE, Json, ServerError
from . import Mutant, wrong_answers

wrong_answers(__name__, "list_tables", {
    "Lists ten names at most; everything else reads all pages.": lambda found, _: found[:10],
    "Sorts names as some databases do.": lambda found, _: sorted(
        found, key=lambda name: name.replace("_", "")
    ),
})  # fmt: skip
wrong_answers(__name__, "scan_tables", {
    "Scans two hundred entries at most, though names are listed whole.": lambda found, _: islice(
        found, 200
    ),
})  # fmt: skip
wrong_answers(__name__, "entries", {
    "Scans as if an entry that cannot be read did not exist.": lambda found, _: (
        record for record in found if record.is_readable
    ),
})  # fmt: skip
wrong_answers(__name__, "partition_locations", {
    "Returns the partitions on the first page.": lambda found, _: islice(found, PAGE),
})  # fmt: skip
wrong_answers(__name__, "scan_hidden_tables", {
    "Returns the hidden tables on the first page.": lambda found: islice(found, PAGE),
})  # fmt: skip
wrong_answers(__name__, "record", {
    "Says of no entry that it has partitions.": lambda found, *_: replace(
        found, is_partitioned=False
    ),
})  # fmt: skip
wrong_answers(__name__, "capabilities", {
    "Has scan_hidden_tables, and does not declare it: no case would be run.": lambda found: replace(
        found, hides_tables=False
    ),
})  # fmt: skip


class FirstPageOnly(Mutant):
    """Takes no notice of the token for the next page."""

    def pages(self, operation: str, path: Path, **body: Any) -> Iterator[Json]:
        yield from self.send(operation, path, **body, after="")["rows"]


class FirstPageOfSchemas(Mutant):
    """Reads all pages of tables, and one of schemas."""

    def list_namespaces(self, parent: Path) -> Iterable[str]:
        return [row["name"] for row in self.send("list_schemas", parent)["rows"]]


class RepeatsAcrossPages(Mutant):
    """Begins each page with the last row of the page before."""

    def list_tables(self, namespace: Path, *, lance_only: bool = False) -> Iterable[str]:
        names: list[str] = []
        for number, name in enumerate(super().list_tables(namespace, lance_only=lance_only)):
            if number % 10 == 0:
                names += names[-1:]
            names.append(name)
        return names


class EndsWhereItBreaks(Mutant):
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


class StopsAtABrokenEntry(Mutant):
    """Fails the whole listing over one entry that cannot be read."""

    def entries(self, namespace: Path) -> Iterator[TableRecord]:
        for row in self.pages("list", namespace, schema=namespace[0]):
            yield self.record(namespace, row)


class HidesBrokenEntries(Mutant):
    """Leaves entries that cannot be read out of the names, so that a schema looks empty."""

    def list_tables(self, namespace: Path, *, lance_only: bool = False) -> Iterable[str]:
        records = self.scan_tables(namespace, lance_only=lance_only)
        return [record.path[-1] for record in records if record.is_readable]


class UnsortedScan(Mutant):
    """Returns Lance tables in the opposite order."""

    def scan_tables(
        self, namespace: Path, *, lance_only: bool = False, after: str | None = None
    ) -> Iterable[TableRecord]:
        found = list(super().scan_tables(namespace, lance_only=lance_only, after=after))
        return found[::-1] if lance_only else found


class ScanIncludesTheMarker(Mutant):
    """Begins a scan at the name after which it should begin."""

    def scan_tables(
        self, namespace: Path, *, lance_only: bool = False, after: str | None = None
    ) -> Iterable[TableRecord]:
        found = super().scan_tables(namespace, lance_only=lance_only)
        return [r for r in found if after is None or r.path[-1] >= after]


class LowerCaseMarkOnly(Mutant):
    """Knows Lance tables by table_type=lance in lower case alone."""

    def list_tables(self, namespace: Path, *, lance_only: bool = False) -> Iterable[str]:
        records = self.scan_tables(namespace)
        if not lance_only:
            return super().list_tables(namespace)
        return [r.path[-1] for r in records if r.properties.get("table_type") == "lance"]


class ListsEverySchema(Mutant):
    """Lists the tables of all schemas whose names begin alike."""

    def list_tables(self, namespace: Path, *, lance_only: bool = False) -> Iterable[str]:
        names: list[str] = list(super().list_tables(namespace, lance_only=lance_only))
        for (schema, table), _ in list(SERVERS[self._config.server].tables.items()):
            if schema != namespace[0] and schema.startswith(namespace[0]):
                names.append(table)
        return sorted(names)


class EmptyInsteadOfMissing(Mutant):
    """Lists a schema that does not exist as an empty one."""

    def pages(self, operation: str, path: Path, **body: Any) -> Iterator[Json]:
        try:
            yield from super().pages(operation, path, **body)
        except LanceNamespaceError as error:
            if not isinstance(error.__cause__, ServerError) or error.__cause__.status != 404:
                raise


class RefusedPartitionsAreNone(Mutant):
    """Takes partitions that may not be read for none."""

    def partition_locations(self, record: TableRecord) -> Iterable[str]:
        try:
            yield from super().partition_locations(record)
        except PermissionDeniedError:
            return
