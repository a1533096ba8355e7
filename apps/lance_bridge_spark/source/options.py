"""The options of the data source: names, values and errors.

Most are for users. Spark passes their names in lower case, so they are matched case-insensitively.
The SQL catalog passes the others as JSON; they are internal.
"""

from __future__ import annotations

import difflib
import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from datetime import datetime
from typing import TYPE_CHECKING, Any

import lance
from lance_namespace import QueryTableRequest
from lance_namespace_urllib3_client.models import (
    QueryTableRequestFullTextQuery,
    QueryTableRequestVector,
    StringFtsQuery,
)

from lance_bridge.config import STORAGE_PREFIX
from lance_bridge.dataset import parse_full_text, parse_nearest
from lance_bridge.dotted_names import parts_of
from lance_bridge.errors import invalid
from lance_bridge.records import TableRecord

from ..addresses import CatalogAddress, TableAddress, find_catalog, with_session_catalog
from ..time_travel import with_zone
from . import foreign_options

if TYPE_CHECKING:
    from pyspark.sql import DataFrame
    from pyspark.sql.types import StructType

    from ..spark_tables import SparkTable

# -- options of the SQL catalog --------------------------------------------------------------------

FORMAT = "lance"
SQL_PREFIX = "lance_bridge."
CATALOG_OPTION = "lance_bridge.secret.catalog"
"""{"name": …, "properties": {…}}; Spark redacts options with this word in their name."""
TABLE_OPTION = "lance_bridge.table"
SCAN_OPTION = "lance_bridge.scan"
WRITE_OPTION = "lance_bridge.write"
ENTRY_OPTION = "lance_bridge.secret.entry"
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


def address_of(options: Mapping[str, str]) -> TableAddress | None:
    """Return the table that the SQL catalog names, or None."""
    if TABLE_OPTION not in options:
        return None
    fields = _json(options, CATALOG_OPTION)
    catalog = CatalogAddress(fields["name"], fields.get("properties") or {})
    return TableAddress(catalog, tuple(_json(options, TABLE_OPTION)))


def scan_of(options: Mapping[str, str]) -> Scan | None:
    """Return the scan that the SQL catalog requests, or None."""
    if SCAN_OPTION not in options:
        return None
    fields = _json(options, SCAN_OPTION)
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
    if WRITE_OPTION not in options:
        return None
    fields = _json(options, WRITE_OPTION)
    fragments = tuple(fields.get("fragments") or ())
    entry = entry_from_json(_json(options, ENTRY_OPTION)) if ENTRY_OPTION in options else None
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
    catalog = {"name": address.catalog.name, "properties": dict(address.catalog.properties)}
    return {CATALOG_OPTION: json.dumps(catalog), TABLE_OPTION: json.dumps(list(address.path))}


# -- options of users ------------------------------------------------------------------------------

VECTOR_PREFIX = "vector."
TASK_BYTES = 128 * 1024 * 1024

_ADDRESS = ("path", "table", "location", "catalog", "impl")
_READ = (
    "columns", "filter", "limit", "version", "tag", "branch", "timestamp", "with_row_id",
    "batch_size", "rows_per_task", "bytes_per_task",
)  # fmt: skip
_SEARCH = (
    "nearest.column", "nearest.query", "nearest.k", "nearest.metric", "nearest.nprobes",
    "nearest.refine", "nearest.prefilter", "full_text.query", "full_text.columns", "full_text.k",
)  # fmt: skip
_WRITE = ("data_storage_version", "max_rows_per_file", "max_bytes_per_file", "overwrite_schema")
_STREAM = ("start_version", "max_rows_per_batch", "max_fragments_per_batch", "on_change")
_SPARKS = (
    "checkpointlocation", "queryname", "truncate", "partitionoverwritemode",
    foreign_options.MERGE_SCHEMA,
)  # fmt: skip
"""Options of Spark, which it passes to the source together with the others."""
KNOWN = (*_ADDRESS, *_READ, *_SEARCH, *_WRITE, *_STREAM)
_PREFIXES = (STORAGE_PREFIX, VECTOR_PREFIX, SQL_PREFIX)


def whole_number(what: str, text: str, least: int = 1, most: int = 2**63 - 1) -> int:
    """Return an option or a property as a whole number. Raise InvalidInput (13) otherwise."""
    is_number = text.isascii() and text.isdigit() and len(text) <= len(str(most))
    if not is_number or not least <= int(text) <= most:
        raise invalid(f"{what} must be a whole number from {least} to {most}, not {text[:60]!r}")
    return int(text)


def vectors_in(properties: Mapping[str, str]) -> dict[str, int]:
    """Return the lengths of vectors that a new table's properties declare, by column.

    The property ``'vector.v' = '16'`` makes column ``v`` vectors of 16 elements.
    """
    return {
        key.removeprefix(VECTOR_PREFIX): whole_number(f"Property '{key}'", value)
        for key, value in properties.items()
        if key.startswith(VECTOR_PREFIX)
    }


@dataclass(frozen=True)
class ReadOptions:
    """Options that say what to read, and how to split it into tasks and batches."""

    columns: tuple[str, ...] | None = None
    filter: str | None = None
    limit: int | None = None
    version: int | None = None
    tag: str | None = None
    branch: str | None = None
    timestamp: datetime | None = None
    with_row_id: bool = False
    batch_size: int | None = None
    rows_per_task: int | None = None
    bytes_per_task: int = TASK_BYTES


@dataclass(frozen=True)
class WriteOptions:
    """Options of a write."""

    branch: str | None = None
    data_storage_version: str | None = None
    max_rows_per_file: int | None = None
    max_bytes_per_file: int | None = None
    overwrite_schema: bool = False
    vectors: Mapping[str, int] = field(default_factory=dict)
    """Dimensions by column name in lower case."""

    def for_lance(self) -> dict[str, Any]:
        """Return the arguments for `lance.fragment.write_fragments`."""
        given = {
            "data_storage_version": self.data_storage_version,
            "max_rows_per_file": self.max_rows_per_file,
            "max_bytes_per_file": self.max_bytes_per_file,
        }
        return {key: value for key, value in given.items() if value is not None}


class Options:
    """The options of one read or write. Unknown ones are refused."""

    def __init__(
        self,
        options: Mapping[str, str],
        catalogs: Mapping[str, CatalogAddress] | None = None,
        zone: str | None = None,
    ) -> None:
        """Check the names of the options.

        Args:
            catalogs: The session's catalogs, by name.
            zone: The session's time zone, if known.

        Raises:
            InvalidInputError: (13) an option is unknown.
        """
        lowered = {key.lower(): value for key, value in options.items()}
        self._given, self._names = foreign_options.translate(lowered)
        self._catalogs = catalogs or {}
        self._zone = zone
        if "impl" not in self._given:
            # With `impl`, the other options are its properties, which it checks itself.
            for key in self._given:
                self._require_known(key)

    @staticmethod
    def _require_known(key: str) -> None:
        if key in KNOWN or key in _SPARKS or key.startswith(_PREFIXES):
            return
        near = difflib.get_close_matches(key, KNOWN, n=1)
        hint = f"did you mean '{near[0]}'?" if near else f"known options: {', '.join(KNOWN)}"
        raise invalid(
            f"The data source 'lance' has no option '{key}': {hint} "
            f"(besides {STORAGE_PREFIX}<option> and {VECTOR_PREFIX}<column>)"
        )

    def text(self, key: str) -> str | None:
        """Return an option, or None if it is not given."""
        return self._given.get(key)

    def _name_of(self, key: str) -> str:
        """Return the name under which an option was given."""
        return self._names.get(key, key)

    def has(self, prefix: str) -> bool:
        """Return whether an option with this prefix is given."""
        return any(key.startswith(prefix) for key in self._given)

    # -- the table ---------------------------------------------------------------------------------

    def address(self) -> TableAddress:
        """Return the address of the table.

        Raises:
            InvalidInputError: (13) no table is named, or its catalog is unknown.
        """
        asked = address_of(self._given)
        if asked is not None:
            return asked
        name = self._name()
        catalog = self._catalog()
        if catalog is not None:
            return TableAddress(catalog, tuple(parts_of(name)))
        if self.text("location") is not None or "/" in name:
            return TableAddress(location=name, storage=self._storage())
        first, *path = with_session_catalog(parts_of(name), self._catalogs)
        if not path:
            raise invalid(
                f"'{name}' names no table: give a location with a slash, catalog.namespace.table, "
                "or the option 'catalog' or 'impl'"
            )
        return TableAddress(self._find_catalog(first), tuple(path))

    def _name(self) -> str:
        given = [key for key in ("path", "table", "location") if self.text(key)]
        if len(given) == 1:
            return self._given[given[0]]
        if given:
            raise invalid(f"The table is named by {' and '.join(given)}: give one of them")
        raise invalid(
            "No table is named: load or save it by its name or its location, or give the option "
            "'table' or 'location'"
        )

    def _catalog(self) -> CatalogAddress | None:
        name, impl = self.text("catalog"), self.text("impl")
        if name is not None and impl is not None:
            raise invalid("Option 'catalog' cannot be used together with 'impl'")
        if impl is not None:
            return CatalogAddress(impl, {"impl": impl, **self._properties()})
        return None if name is None else self._find_catalog(name)

    def _properties(self) -> dict[str, str]:
        own = {*KNOWN, *_SPARKS}
        prefixes = (VECTOR_PREFIX, SQL_PREFIX)
        return {
            key: value
            for key, value in self._given.items()
            if key not in own and not key.startswith(prefixes)
        }

    def _find_catalog(self, name: str) -> CatalogAddress:
        return find_catalog(name, self._catalogs)

    def _storage(self) -> dict[str, str]:
        return {
            key.removeprefix(STORAGE_PREFIX): value
            for key, value in self._given.items()
            if key.startswith(STORAGE_PREFIX)
        }

    # -- reading and writing -----------------------------------------------------------------------

    def reading(self) -> ReadOptions:
        """Return the options of a read.

        Raises:
            InvalidInputError: (13)
        """
        read = ReadOptions(
            columns=self.names("columns"),
            filter=self.text("filter"),
            limit=self.number("limit", least=0),
            version=self.number("version"),
            tag=self.text("tag"),
            branch=self.text("branch"),
            timestamp=self._time("timestamp"),
            with_row_id=self.flag("with_row_id"),
            batch_size=self.number("batch_size"),
            rows_per_task=self.number("rows_per_task"),
            bytes_per_task=self.number("bytes_per_task") or TASK_BYTES,
        )
        chosen = [k for k in ("version", "tag", "timestamp") if getattr(read, k) is not None]
        if len(chosen) > 1:
            raise invalid(f"Options {' and '.join(chosen)} each choose a version: give one of them")
        if read.tag is not None and read.branch is not None:
            raise invalid("Option 'tag' cannot be used together with 'branch'")
        return read

    def writing(self) -> WriteOptions:
        """Return the options of a write.

        Raises:
            InvalidInputError: (13)
        """
        if self.flag(foreign_options.MERGE_SCHEMA):
            foreign_options.refuse_schema_merge()
        vectors = [key for key in self._given if key.startswith(VECTOR_PREFIX)]
        return WriteOptions(
            branch=self.text("branch"),
            data_storage_version=self.text("data_storage_version"),
            max_rows_per_file=self.number("max_rows_per_file"),
            max_bytes_per_file=self.number("max_bytes_per_file"),
            overwrite_schema=self.flag("overwrite_schema"),
            vectors={k.removeprefix(VECTOR_PREFIX): self.number(k) or 0 for k in vectors},
        )

    def number(self, key: str, least: int = 1) -> int | None:
        """Return a whole number, or None. Raise InvalidInput (13) for anything else."""
        text = self.text(key)
        return None if text is None else whole_number(f"Option '{self._name_of(key)}'", text, least)

    def flag(self, key: str) -> bool:
        """Return True or False. Raise InvalidInput (13) for anything else."""
        text = (self.text(key) or "false").lower()
        if text not in ("true", "false"):
            raise invalid(f"Option '{self._name_of(key)}' must be true or false, not {text!r}")
        return text == "true"

    def names(self, key: str) -> tuple[str, ...] | None:
        """Return names from a JSON list or a comma-separated list, or None."""
        text = self.text(key)
        if text is None:
            return None
        if text.lstrip().startswith("["):
            found = self.json(key)
            if not isinstance(found, list) or not all(isinstance(each, str) for each in found):
                raise invalid(f"Option '{key}' must be a JSON list of names, not {text[:100]!r}")
            return tuple(found)
        return tuple(each.strip() for each in text.split(",") if each.strip())

    def json(self, key: str) -> Any:
        """Return an option's parsed JSON. Raise InvalidInput (13) if it is invalid."""
        try:
            return json.loads(self._given[key])
        except ValueError as error:
            raise invalid(f"Option '{key}' is not JSON: {self._given[key][:100]!r}") from error

    def _time(self, key: str) -> datetime | None:
        text = self.text(key)
        if text is None:
            return None
        try:
            # Python 3.10 does not parse the Z.
            time = datetime.fromisoformat(text.strip().replace("Z", "+00:00"))
        except ValueError:
            raise invalid(
                f"Option '{self._name_of(key)}' must be a time such as "
                f"2026-01-31T12:00:00+00:00, not {text!r}"
            ) from None
        if time.tzinfo is None and self._zone is None:
            raise invalid(
                f"Option '{self._name_of(key)}' needs a zone, as in {time.isoformat()}+00:00: the "
                "data source knows the session's time zone after lance_bridge_spark.register(spark)"
            )
        return with_zone(time, self._zone or "")


# -- searches --------------------------------------------------------------------------------------

DISTANCE, _SCORE = "_distance", "_score"
"""Lance's names of the columns of a search."""
_NEAREST = "nearest."
_FULL_TEXT = "full_text."


@dataclass(frozen=True)
class Search:
    """A search with the arguments of pylance's scanner. Pickles."""

    column: str
    """The column that the search adds."""
    options: dict[str, Any] = field(repr=False)
    rows: int | None = None
    """The maximum number of rows to find, if the scanner needs a limit."""
    searched: tuple[str, ...] = ()
    """The columns to search; empty for all that have a full-text index."""

    @property
    def by_vector(self) -> bool:
        """Whether it is a search for the nearest vectors."""
        return self.column == DISTANCE

    @property
    def most_rows(self) -> int | None:
        """The maximum number of rows that it finds, if known."""
        return self.options["nearest"].get("k") if self.by_vector else self.rows


def search_of(options: Options, table: SparkTable, dataset: lance.LanceDataset) -> Search | None:
    """Return the search that the options request, or None.

    Raises:
        InvalidInputError: (13) options contradict each other or do not fit the table.
        TableColumnNotFoundError: (12) the column to search does not exist.
    """
    by_vector = options.text("nearest.query") is not None
    by_text = options.text("full_text.query") is not None
    for prefix, asked in ((_NEAREST, by_vector), (_FULL_TEXT, by_text)):
        if not asked and options.has(prefix):
            raise invalid(f"Options {prefix}… need '{prefix}query'")
    if by_vector and by_text:
        raise invalid("Option 'nearest.query' cannot be used together with 'full_text.query'")
    if by_vector:
        return _by_vector(options, table, dataset)
    return _by_text(options, table, dataset) if by_text else None


def _by_vector(options: Options, table: SparkTable, dataset: lance.LanceDataset) -> Search:
    request = QueryTableRequest(
        id=list(table.path),
        k=options.number("nearest.k") or 0,
        vector=_vector(options.json("nearest.query")),
        vector_column=options.text("nearest.column"),
        distance_type=options.text("nearest.metric"),
        nprobes=options.number("nearest.nprobes"),
        refine_factor=options.number("nearest.refine"),
    )
    found = parse_nearest(dataset, table, request)
    if found is None:
        raise invalid("Option 'nearest.query' is an empty vector")
    prefilter = options.text("nearest.prefilter") is None or options.flag("nearest.prefilter")
    given = {"nearest": found.options, "prefilter": prefilter}
    return Search(DISTANCE, given, searched=(found.options["column"],))


def _vector(given: Any) -> QueryTableRequestVector:
    if isinstance(given, list) and given and all(_is_number(each) for each in given):
        return QueryTableRequestVector(single_vector=given)
    raise invalid(
        "Option 'nearest.query' must be a JSON list of numbers, such as [0.5, 1], not "
        f"{json.dumps(given)[:100]}"
    )


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _by_text(options: Options, table: SparkTable, dataset: lance.LanceDataset) -> Search:
    columns = options.names("full_text.columns")
    query = StringFtsQuery(
        query=options.text("full_text.query") or "", columns=list(columns) if columns else None
    )
    found = parse_full_text(dataset, table, QueryTableRequestFullTextQuery(string_query=query))
    given = {"full_text_query": found, "prefilter": True}
    return Search(_SCORE, given, options.number("full_text.k"), tuple(columns or ()))
