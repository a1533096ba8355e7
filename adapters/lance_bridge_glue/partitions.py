"""Partitions of tables: each may have a location of its own."""

from __future__ import annotations

from collections.abc import Iterable

from botocore.exceptions import ClientError

from lance_bridge.catalog import Catalog, TableRecord
from lance_bridge.errors import display

from .calls import Calls
from .errors import ABSENT, is_a, translated

_TEMPLATE = "storage.location.template"
"""Where Athena finds the partitions of a table that it projects: none of them are in Glue."""


class Partitions(Catalog):
    """The part of a catalog that core asks before it deletes files."""

    _calls: Calls

    def partition_locations(self, record: TableRecord) -> Iterable[str]:
        """Return the locations of partitions, in 1 call for each 100; of a link, none."""
        if record.link_to:
            return
        template = record.properties.get(_TEMPLATE, "")
        if template:
            yield template.split("${", 1)[0].rpartition("/")[0]
        database, table = record.path
        with translated(f"read the partitions of '{display(record.path)}'"):
            try:
                for each in self._calls.read_all(
                    "get_partitions",
                    "Partitions",
                    DatabaseName=database,
                    TableName=table,
                    ExcludeColumnSchema=True,
                ):
                    location = (each.get("StorageDescriptor") or {}).get("Location")
                    if location:
                        yield location
            except ClientError as error:
                if not is_a(error, ABSENT):
                    raise
