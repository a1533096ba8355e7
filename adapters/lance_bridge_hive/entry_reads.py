"""Reads entries of the metastore: one of them, or many in batches.

An entry that the metastore cannot return fails the whole batch that it is in. A batch that fails is
halved, until what remains is the entry, which is then one that cannot be read.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, TypeVar

from lance_namespace.errors import LanceNamespaceError, TableNotFoundError

from lance_bridge.catalog import Path, TableRecord
from lance_bridge.errors import (
    OF_ONE_OBJECT,
    concurrent_modification,
    display,
    namespace_not_found,
    table_not_found,
)

from . import mapping
from .calls import Calls
from .commit_records import CommitRecords
from .errors import map_errors, translate_errors

logger = logging.getLogger(__name__)

ABSENT = "NoSuchObjectException"
NO_DATABASE = (ABSENT, "UnknownDBException")

_INSERT_ONLY_TABLES = 2
"""The value of Hive's ClientCapability, for which hmsclient has no name."""
_MOST_FAILURES = 20
_READS = 20  # attempts to read an entry that is modified concurrently

T = TypeVar("T")


def in_halves(
    read: Callable[[Sequence[str]], Iterable[T]], names: Sequence[str]
) -> tuple[list[T], dict[str, LanceNamespaceError]]:
    """Return what ``read`` returns for names, and the errors of names for which it fails alone.

    After `_MOST_FAILURES` failures, a part that fails is not halved: all its names have failed.
    Errors of the server or the connection are raised: with these, halves would fail as well.
    """
    found: list[T] = []
    failed: dict[str, LanceNamespaceError] = {}
    pending = [names]
    while pending:
        part = pending.pop()
        try:
            found += read(part)
        except OF_ONE_OBJECT as error:
            if len(part) == 1 or len(failed) >= _MOST_FAILURES:
                failed |= dict.fromkeys(part, error)
            else:
                logger.info("a batch of %d names is halved: %s", len(part), error)
                middle = len(part) // 2
                pending += [part[middle:], part[:middle]]
    return found, failed


class EntryReads:
    """Reads entries, as the latest commit records have them."""

    def __init__(self, calls: Calls, records: CommitRecords, *, catalog_levels: bool) -> None:
        self._calls = calls
        self._records = records
        self._catalog_levels = catalog_levels

    def load_many(self, namespace: Path, names: Sequence[str], size: int) -> Iterator[TableRecord]:
        """Yield the records of entries, read in calls of ``size`` names and sorted in each call.

        Entries that do not exist are left out; those that cannot be read are
        `TableRecord.unreadable`.

        Raises:
            NamespaceNotFoundError: The database does not exist.
            LanceNamespaceError: No entry of a batch can be read.
        """
        for start in range(0, len(names), size):
            wanted = list(names[start : start + size])
            records = self._load_part(namespace, wanted)
            present = {record.path[-1] for record in records}
            for name in wanted:
                if name not in present:
                    records += self._load_missing((*namespace, name))
            yield from sorted(records, key=lambda record: record.path)

    def _load_part(self, namespace: Path, names: Sequence[str]) -> list[TableRecord]:
        tables, failed = in_halves(lambda part: self._load_batch(namespace, part), names)
        if len(failed) == len(names) > 1:
            raise next(iter(failed.values()))  # of the namespace, or of the metastore
        records = [mapping.record_from(namespace, table) for table in tables]
        return records + [_unreadable((*namespace, name), error) for name, error in failed.items()]

    def _load_batch(self, namespace: Path, names: Sequence[str]) -> list[Any]:
        types = self._calls.types
        request = types.GetTablesRequest(
            dbName=namespace[-1], tblNames=list(names), capabilities=self._declared_capabilities()
        )
        self._set_catalog(request, namespace)
        with (
            translate_errors(f"read tables of '{display(namespace)}'"),
            map_errors(dict.fromkeys(NO_DATABASE, namespace_not_found(namespace))),
        ):
            response = self._calls.read(
                "get_table_objects_by_name_req", lambda c: c.get_table_objects_by_name_req(request)
            )
        apply_latest = self._records.apply_latest
        return [apply_latest((*namespace, each.tableName), each) for each in response.tables or []]

    def _load_missing(self, path: Path) -> list[TableRecord]:
        """Return an entry that a batch's response lacks; nothing if it no longer exists."""
        try:
            with translate_errors(f"read table '{display(path)}'"):
                return [mapping.record_from(path[:-1], self.load(path))]
        except TableNotFoundError:
            return []
        except OF_ONE_OBJECT as error:
            return [_unreadable(path, error)]

    def load(self, path: Path) -> Any:
        """Return a consistent state of an entry.

        If two reads return the same revision, the second saw everything written with it.
        """
        table = self.load_once(path)
        earlier = None
        for _ in range(_READS):
            if mapping.is_whole(table) or (
                earlier and mapping.revision_of(earlier) == mapping.revision_of(table)
            ):
                return self._records.apply_latest(path, table)
            earlier, table = table, self.load_once(path)
        raise concurrent_modification(path)

    def load_once(self, path: Path) -> Any:
        """Return an entry as one call returns it."""
        types = self._calls.types
        request = types.GetTableRequest(
            dbName=path[-2], tblName=path[-1], capabilities=self._declared_capabilities()
        )
        self._set_catalog(request, path[:-1])
        with map_errors({ABSENT: table_not_found(path)}):
            return self._calls.read("get_table_req", lambda c: c.get_table_req(request)).table

    def _declared_capabilities(self) -> Any:
        """Return what Hive's own clients declare: Hive 3 and 4 refuse ACID tables to others."""
        return self._calls.types.ClientCapabilities(values=[_INSERT_ONLY_TABLES])

    def _set_catalog(self, request: Any, namespace: Path) -> None:
        if self._catalog_levels:
            request.catName = namespace[0]


def _unreadable(path: Path, error: LanceNamespaceError) -> TableRecord:
    logger.warning("entry '%s' cannot be read: %s", display(path), error)
    return TableRecord.unreadable(path)
