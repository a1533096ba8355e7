"""Other entries that may share a location: tables of other Hive catalogs, and partitions."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from functools import cached_property
from typing import Any

from lance_namespace.errors import (
    NamespaceNotFoundError,
    TableNotFoundError,
    UnsupportedOperationError,
)
from thrift.Thrift import TException

from lance_bridge.catalog import Catalog, TableRecord
from lance_bridge.errors import display

from . import mapping
from .calls import Calls
from .capabilities import DEFAULT_DATABASE, HIVE_CATALOG, database_argument
from .config import HiveConfig
from .errors import is_a, text_of, translate_errors

_PARTITIONS = 1000
"""Partitions read in one call, unless the metastore allows fewer."""
_EXCEEDS_LIMIT = re.compile(r"exceeds limit|limit\.partition\.request")
_ALL = -1


class SharedLocations(Catalog):
    """The queries that core sends to a catalog before it deletes files."""

    _config: HiveConfig
    _calls: Calls
    _has_catalogs = True
    """False if the metastore has no catalogs: it is older than Hive 3."""
    _partitions = _PARTITIONS

    @cached_property
    def _all_catalogs(self) -> SharedLocations:
        """The same metastore with the level of catalogs, over the same connections."""
        if self._config.catalog_levels:
            return self
        config = self._config.model_copy(update={"catalog_levels": True})
        return type(self)(config, self._calls.pool)  # type: ignore[call-arg]  # HiveCatalog's

    def scan_hidden_tables(self) -> Iterable[TableRecord]:
        """Return the tables of the catalogs that this client does not list.

        Makes 1 call if the metastore has one catalog, or is older than Hive 3.
        """
        if self._config.catalog_levels or not self._has_catalogs:
            return
        try:
            names = list(self._all_catalogs.list_namespaces(()))
        except UnsupportedOperationError:
            self._has_catalogs = False
            return
        if len(names) > 1:
            calls = self._all_catalogs._calls
            with translate_errors("read the default database"):
                default = calls.read("get_database", lambda c: c.get_database(DEFAULT_DATABASE))
            for name in names:
                if name != (default.catalogName or HIVE_CATALOG):
                    yield from self._all_catalogs._scan_catalog(name)

    def _scan_catalog(self, name: str) -> Iterator[TableRecord]:
        try:
            databases = list(self.list_namespaces((name,)))
        except NamespaceNotFoundError:  # dropped since it was listed
            return
        for database in databases:
            try:
                yield from self.scan_tables((name, database))
            except NamespaceNotFoundError:
                continue

    def partition_locations(self, record: TableRecord) -> Iterable[str]:
        """Return the locations of partitions: 1 call for all names, and 1 for each 1,000."""
        is_hidden = len(record.path) > self.capabilities.levels + 1
        source = self._all_catalogs if is_hidden else self
        calls = source._calls
        database, table = database_argument(record.path[:-1]), record.path[-1]
        with translate_errors(f"read the partitions of '{display(record.path)}'"):
            try:
                names = calls.read(
                    "get_partition_names", lambda c: c.get_partition_names(database, table, _ALL)
                )
                yield from self._locations_of(calls, database, table, names)
            except TException as error:
                if is_a(error, "NoSuchObjectException", "UnknownDBException"):
                    return
                # Hive 2 returns an internal error for a table that does not exist.
                if not is_a(error, "TApplicationException") or source._has_table(record):
                    raise

    def _locations_of(
        self, calls: Calls, database: str, table: str, names: list[str]
    ) -> Iterator[str]:
        """Read partitions by name, in fewer a call if the metastore limits them.

        Hive 4.1 and later do, by ``metastore.limit.partition.request``.
        """
        start = 0
        while start < len(names):
            wanted = names[start : start + self._partitions]
            try:
                found = _read_partitions(calls, database, table, wanted)
            except TException as error:
                if len(wanted) == 1 or not _EXCEEDS_LIMIT.search(text_of(error)):
                    raise
                self._partitions = len(wanted) // 2
                continue
            for partition in found:
                yield from mapping.partition_locations(partition)
            start += len(wanted)

    def _has_table(self, record: TableRecord) -> bool:
        try:
            self.load_table(record.path)
        except (TableNotFoundError, NamespaceNotFoundError):
            return False
        return True


def _read_partitions(calls: Calls, database: str, table: str, names: list[str]) -> Iterable[Any]:
    return calls.read(
        "get_partitions_by_names", lambda c: c.get_partitions_by_names(database, table, names)
    )
