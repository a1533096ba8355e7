"""Options that the SQL catalog passes to the data source as JSON; internal, not for users."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Any

from lance_bridge.errors import invalid
from lance_bridge.records import TableRecord

from ..addresses import CatalogAddress, TableAddress

if TYPE_CHECKING:
    from pyspark.sql import DataFrame
    from pyspark.sql.types import StructType

FORMAT = "lance"
PREFIX = "lance_bridge."
CATALOG = "lance_bridge.secret.catalog"
"""{"name": …, "properties": {…}}; Spark redacts options with this word in their name."""
TABLE = "lance_bridge.table"
SCAN = "lance_bridge.scan"
WRITE = "lance_bridge.write"
ENTRY = "lance_bridge.secret.entry"
"""The entry of the table to write to, as loaded by the statement."""

APPEND = "append"
OVERWRITE = "overwrite"
REPLACE_FRAGMENTS = "replace_fragments"
STAGE = "stage"
MODES = (APPEND, OVERWRITE, REPLACE_FRAGMENTS, STAGE)


@dataclass(frozen=True)
class Aggregate:
    """A partial aggregate: its function, and its column (None to count rows)."""

    function: str
    column: str | None = None


@dataclass(frozen=True)
class SortKey:
    """A column that rows are sorted by."""

    column: str
    descending: bool = False
    nulls_first: bool = False


@dataclass(frozen=True)
class Scan:
    """What to read from a table, besides the columns."""

    version: int | None = None
    branch: str | None = None
    filter: str | None = None
    limit: int | None = None
    """The maximum number of rows of each task, or with an offset, of all tasks together."""
    offset: int | None = None
    """How many rows to skip, in storage order."""
    order: tuple[SortKey, ...] = ()
    """The keys that each task sorts by, to return its first `limit` rows."""
    fragments: tuple[int, ...] | None = None
    aggregate: tuple[Aggregate, ...] | None = None
    groups: tuple[str, ...] = ()
    """The columns that aggregates are grouped by."""
    parallelism: int | None = None
    """How many tasks can run concurrently, if known."""


@dataclass(frozen=True)
class Write:
    """How to write to a table."""

    mode: str = APPEND
    version: int | None = None
    """The version that was read: later changes of other writers must not be lost."""
    branch: str | None = None
    fragments: tuple[int, ...] = ()
    guard: bool = False
    """Whether the rows depend on the whole table, so that any concurrent change is a conflict."""
    stage: Mapping[str, Any] | None = None
    """The stage of a table that is being created, as returned by the service."""
    may_create: bool = True
    """Whether to create a missing table; False for a statement, which has resolved its table."""
    entry: TableRecord | None = field(default=None, repr=False)
    """The table's entry, if the statement has loaded it."""


def catalog_of(options: Mapping[str, str]) -> CatalogAddress | None:
    """Return the catalog that the SQL catalog names, or None."""
    if CATALOG not in options:
        return None
    fields = _json(options, CATALOG)
    return CatalogAddress(fields["name"], fields.get("properties") or {})


def address_of(options: Mapping[str, str]) -> TableAddress | None:
    """Return the table that the SQL catalog names, or None."""
    if TABLE not in options:
        return None
    return TableAddress(catalog_of(options), tuple(_json(options, TABLE)))


def scan_of(options: Mapping[str, str]) -> Scan | None:
    """Return the scan that the SQL catalog requests, or None."""
    if SCAN not in options:
        return None
    fields = _json(options, SCAN)
    aggregate = fields.pop("aggregate", None)
    fragments = fields.pop("fragments", None)
    groups = fields.pop("groups", None) or ()
    order = fields.pop("order", None) or ()
    return Scan(
        **fields,
        groups=tuple(groups),
        order=tuple(SortKey(**each) for each in order),
        fragments=None if fragments is None else tuple(fragments),
        aggregate=None if aggregate is None else tuple(Aggregate(**each) for each in aggregate),
    )


def write_of(options: Mapping[str, str]) -> Write | None:
    """Return the write that the SQL catalog requests, or None."""
    if WRITE not in options:
        return None
    fields = _json(options, WRITE)
    fragments = tuple(fields.get("fragments") or ())
    entry = entry_from_json(_json(options, ENTRY)) if ENTRY in options else None
    write = Write(**{**fields, "fragments": fragments, "may_create": False, "entry": entry})
    if write.mode not in MODES:
        raise invalid(f"Mode {write.mode!r} must be one of {', '.join(MODES)}")
    return write


def entry_to_json(record: TableRecord) -> dict[str, Any]:
    """Return an entry as JSON for `entry_from_json`."""
    return {**asdict(record), "columns": ()}


def entry_from_json(fields: Mapping[str, Any]) -> TableRecord:
    """Return the entry that `entry_to_json` wrote."""
    link = fields["link_path"]
    paths = {"path": tuple(fields["path"]), "link_path": None if link is None else tuple(link)}
    others = tuple(fields["other_locations"])
    return TableRecord(**{**fields, **paths, "other_locations": others, "columns": ()})


def _json(options: Mapping[str, str], key: str) -> Any:
    try:
        return json.loads(options[key])
    except (KeyError, ValueError) as error:
        raise invalid(f"Option '{key}' is for the SQL catalog alone, and must be JSON") from error


def load(
    spark: Any,
    address: TableAddress,
    options: Mapping[str, str],
    schema: StructType | None = None,
) -> DataFrame:
    """Return a table as a DataFrame of the data source."""
    reader = spark.read.format(FORMAT).options(**address_options(address), **options)
    frame: DataFrame = (reader if schema is None else reader.schema(schema)).load()
    return frame


def address_options(address: TableAddress) -> dict[str, str]:
    """Return the options of the data source that name a table."""
    if address.catalog is None:
        storage = {f"storage.{key}": value for key, value in address.storage.items()}
        return {"location": address.location, **storage}
    catalog = {
        "name": address.catalog.name,
        "properties": dict(address.catalog.properties),
    }
    return {
        CATALOG: json.dumps(catalog),
        TABLE: json.dumps(list(address.path)),
    }
