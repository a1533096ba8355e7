"""The options of the data source for users: their names, and how to parse them.

Spark passes their names in lower case, so they are matched case-insensitively.
"""

from __future__ import annotations

import difflib
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime, timezone
from typing import TYPE_CHECKING, Any

import lance
from lance_namespace import QueryTableRequest
from lance_namespace_urllib3_client.models import (
    QueryTableRequestFullTextQuery,
    QueryTableRequestVector,
    StringFtsQuery,
)

from lance_bridge.config import STORAGE_PREFIX, named_catalogs
from lance_bridge.dataset import parse_full_text, parse_nearest
from lance_bridge.errors import invalid
from lance_bridge.names import parts_of

from ..addresses import CATALOG_SETTINGS, CatalogAddress, TableAddress
from . import requests

if TYPE_CHECKING:
    from ..spark_tables import SparkTable

VECTOR_PREFIX = "vector."
BATCH_ROWS = 8192
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
_SPARKS = ("checkpointlocation", "queryname", "truncate", "partitionoverwritemode")
"""Spark's own options, which it passes to the source together with the others."""
_EVOLUTION = "mergeschema"
"""An option of other formats."""
KNOWN = (*_ADDRESS, *_READ, *_SEARCH, *_WRITE, *_STREAM)
_PREFIXES = (STORAGE_PREFIX, VECTOR_PREFIX, requests.PREFIX)


def whole_number(what: str, text: str, least: int = 1, most: int = 2**63 - 1) -> int:
    """Return an option or a property as a whole number. Raise InvalidInput (13) otherwise."""
    is_number = text.isascii() and text.isdigit() and len(text) <= len(str(most))
    if not is_number or not least <= int(text) <= most:
        raise invalid(f"{what} must be a whole number from {least} to {most}, not {text[:60]!r}")
    return int(text)


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
        self, options: Mapping[str, str], catalogs: Mapping[str, CatalogAddress] | None = None
    ) -> None:
        """Check the names of the options.

        Args:
            catalogs: The session's catalogs, by name.

        Raises:
            InvalidInputError: (13) an option is unknown.
        """
        self._given = {key.lower(): value for key, value in options.items()}
        self._catalogs = catalogs or {}
        if "impl" not in self._given:
            # With `impl`, the other options are its properties, which it checks itself.
            for key in self._given:
                self._require_known(key)

    @staticmethod
    def _require_known(key: str) -> None:
        if key in KNOWN or key in _SPARKS or key.startswith(_PREFIXES):
            return
        if key == _EVOLUTION:
            raise invalid(
                "The data source 'lance' has no option 'mergeSchema': add columns with ALTER "
                "TABLE, or write with INSERT or MERGE WITH SCHEMA EVOLUTION of SQL"
            )
        near = difflib.get_close_matches(key, KNOWN, n=1)
        hint = f"did you mean '{near[0]}'?" if near else f"known options: {', '.join(KNOWN)}"
        raise invalid(
            f"The data source 'lance' has no option '{key}': {hint} "
            f"(besides {STORAGE_PREFIX}<option> and {VECTOR_PREFIX}<column>)"
        )

    def text(self, key: str) -> str | None:
        """Return an option, or None if it is not given."""
        return self._given.get(key)

    def has(self, prefix: str) -> bool:
        """Return whether an option with this prefix is given."""
        return any(key.startswith(prefix) for key in self._given)

    # -- the table ---------------------------------------------------------------------------------

    def address(self) -> TableAddress:
        """Return the address of the table.

        Raises:
            InvalidInputError: (13) no table is named, or its catalog is unknown.
        """
        asked = requests.address_of(self._given)
        if asked is not None:
            return asked
        name = self._name()
        catalog = self._catalog()
        if catalog is not None:
            return TableAddress(catalog, tuple(parts_of(name)))
        if self.text("location") is not None or "/" in name:
            return TableAddress(location=name, storage=self._storage())
        first, *path = parts_of(name)
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
        prefixes = (VECTOR_PREFIX, requests.PREFIX)
        return {
            key: value
            for key, value in self._given.items()
            if key not in own and not key.startswith(prefixes)
        }

    def _find_catalog(self, name: str) -> CatalogAddress:
        if name in self._catalogs:
            return self._catalogs[name]
        configured = named_catalogs()
        if name in configured:
            return CatalogAddress(name)
        known = ", ".join(sorted({*self._catalogs, *configured})) or "none"
        raise invalid(
            f"There is no catalog '{name}': set {CATALOG_SETTINGS}{name}.impl and its properties "
            "and call lance_bridge_spark.register(spark), or add it to the configuration file; "
            f"known catalogs: {known}"
        )

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
        return None if text is None else whole_number(f"Option '{key}'", text, least)

    def flag(self, key: str) -> bool:
        """Return True or False. Raise InvalidInput (13) for anything else."""
        text = (self.text(key) or "false").lower()
        if text not in ("true", "false"):
            raise invalid(f"Option '{key}' must be true or false, not {text!r}")
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
                f"Option '{key}' must be a time such as 2026-01-31T12:00:00+00:00 (UTC without a "
                f"zone), not {text!r}"
            ) from None
        return time if time.tzinfo else time.replace(tzinfo=timezone.utc)


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
