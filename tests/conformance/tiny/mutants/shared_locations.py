"""Adapters that keep from core what else needs the files at a location."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from itertools import islice

from lance_namespace.errors import PermissionDeniedError

from lance_bridge import TableRecord
from lance_bridge.catalog import Capabilities, Path

from ..adapter import TinyCatalog
from ..server import PAGE, Json
from . import mutant


@mutant
class FirstPageOfPartitions(TinyCatalog):
    """Returns the partitions on the first page."""

    def partition_locations(self, record: TableRecord) -> Iterable[str]:
        return islice(super().partition_locations(record), PAGE)


@mutant
class NeverPartitioned(TinyCatalog):
    """Says of no entry that it has partitions."""

    def record(self, namespace: Path, row: Json) -> TableRecord:
        return replace(super().record(namespace, row), is_partitioned=False)


@mutant
class RefusedPartitionsAreNone(TinyCatalog):
    """Takes partitions that may not be read for none."""

    def partition_locations(self, record: TableRecord) -> Iterable[str]:
        try:
            yield from super().partition_locations(record)
        except PermissionDeniedError:
            return


@mutant
class FirstPageOfHiddenTables(TinyCatalog):
    """Returns the hidden tables on the first page."""

    def scan_hidden_tables(self) -> Iterable[TableRecord]:
        return islice(super().scan_hidden_tables(), PAGE)


@mutant
class HidesWithoutDeclaration(TinyCatalog):
    """Has scan_hidden_tables, and does not declare it: no case would be run."""

    @property
    def capabilities(self) -> Capabilities:
        return replace(super().capabilities, hides_tables=False)
