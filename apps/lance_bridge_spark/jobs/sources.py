"""The tables that a view's query reads: their versions, DataFrames, and appended fragments."""

from __future__ import annotations

import json
import re
import uuid
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import lance
import pyarrow as pa
from lance_namespace.errors import LanceNamespaceError

from lance_bridge.config import named_catalogs
from lance_bridge.dataset import columns_in
from lance_bridge.errors import LANCE_ERRORS
from lance_bridge.lance_datasets import transaction_at
from lance_bridge.names import parts_of, quoted
from lance_bridge.requests import Ref

from ..addresses import TableAddress, address_of, catalogs_of
from ..lookup import find_table
from ..source import requests
from ..source.types import spark_schema
from .commits import transactions

if TYPE_CHECKING:
    from ..spark_tables import SparkTable


@dataclass(frozen=True)
class Source:
    """A Lance table in a query, and the version to read."""

    name: str
    table: SparkTable
    dataset: lance.LanceDataset

    @property
    def version(self) -> int:
        return int(self.dataset.version)

    def made_by(self, version: int) -> str | None:
        """Return the identifier of a version's transaction, or None if its file is missing.

        It distinguishes a recreated table, whose version numbers repeat, from the old one.
        """
        try:
            transaction = transaction_at(self.dataset, version)
        except LANCE_ERRORS:
            return None
        return None if transaction is None else str(transaction.uuid)

    @property
    def vectors(self) -> dict[str, int]:
        """The lengths of its vector columns, which Spark's arrays do not have."""
        fields: Sequence[pa.Field] = self.dataset.schema
        return {f.name: f.type.list_size for f in fields if pa.types.is_fixed_size_list(f.type)}


@dataclass(frozen=True)
class Part:
    """Fragments of a version."""

    version: int
    fragments: tuple[int, ...] | None = None


def find_sources(spark: Any, query: str, versions: Mapping[str, int] | None = None) -> list[Source]:
    """Return the Lance tables that a query names, at a given version or the latest.

    These are the tables of catalogs of the session or the configuration file, and
    ``lance.`/a/path` ``. All other tables are Spark's.
    """
    found: dict[str, Source] = {}
    for mention in table_references(query):
        address = _address(spark, mention.name)
        if address is not None and mention.name not in found:
            table = find_table(address)
            dataset = table.open(Ref(version=(versions or {}).get(mention.name)))
            found[mention.name] = Source(mention.name, table, dataset)
    return list(found.values())


def _address(spark: Any, name: str) -> TableAddress | None:
    first, *rest = parts_of(name)
    if first == requests.FORMAT and len(rest) == 1 and "/" in rest[0]:
        return TableAddress(location=rest[0])
    if first in catalogs_of(spark) or first in named_catalogs():
        return address_of(spark, name)
    return None


@contextmanager
def query_over(
    spark: Any, query: str, sources: Sequence[Source], parts: Sequence[Part] | None = None
) -> Iterator[Any]:
    """Run a query over given versions of its sources, or over parts of its only source.

    This works without the SQL catalog: temporary views replace our tables while it is planned.
    """
    found: list[TableReference] = table_references(query)
    names: dict[str, str] = {}
    try:
        for source in sources:
            names[source.name] = f"lance_bridge_{uuid.uuid4().hex}"
            frame = _load_source(spark, query, source, parts)
            frame.createOrReplaceTempView(names[source.name])
        yield spark.sql(replace_tables(query, found, names))
    finally:
        for name in names.values():
            spark.catalog.dropTempView(name)


def _load_source(spark: Any, query: str, source: Source, parts: Sequence[Part] | None) -> Any:
    columns = read_columns(query, source.dataset.schema.names)
    columns = columns or tuple(source.dataset.schema.names[:1])
    schema = spark_schema(pa.schema([source.dataset.schema.field(name) for name in columns]))
    if parts is not None and not parts:
        return spark.createDataFrame([], schema)
    frames = [
        _read(spark, source.table.address, schema, part) for part in parts or [Part(source.version)]
    ]
    whole = frames[0]
    for frame in frames[1:]:
        whole = whole.union(frame)
    return whole


def _read(spark: Any, address: TableAddress, schema: Any, part: Part) -> Any:
    scan = {"version": part.version, "fragments": part.fragments}
    return requests.load(spark, address, {requests.SCAN: json.dumps(scan)}, schema)


def appended_since(source: Source, since: int) -> list[Part] | None:
    """Return the fragments appended after a version, or None if there were other changes.

    They are read at the version that added them, so that later compactions do not matter.
    """
    if source.version < since:
        return None
    found: list[Part] = []
    before = _open_state(source, since)
    for version, transaction in transactions(source.dataset, since):
        if version > source.version:
            break
        now = _open_state(source, version)
        if transaction is None or before is None or now is None or before.schema != now.schema:
            return None
        if not isinstance(transaction.operation, lance.LanceOperation.Rewrite):
            if any(now.fragments.get(number) != each for number, each in before.fragments.items()):
                return None
            new = tuple(number for number in now.fragments if number not in before.fragments)
            found += [Part(version, new)] if new else []
        before = now
    return found


@dataclass(frozen=True)
class _State:
    """The schema and fragments of a table at a version."""

    schema: pa.Schema
    fragments: dict[int, Any]


def _open_state(source: Source, version: int) -> _State | None:
    """Return the state of a source at a version, or None if the version was cleaned up."""
    try:
        dataset = source.table.open(Ref(version=version))
    except LanceNamespaceError:
        return None
    fragments = {each.fragment_id: each.metadata for each in dataset.get_fragments()}
    return _State(dataset.schema, fragments)


_STAR = re.compile(r"(?:^|[(,.]|\bselect|\bdistinct|\ball)\s*\*", re.IGNORECASE)
_QUOTED = re.compile(
    r"(`(?:[^`]|``)*`)|'(?:[^'\\]|\\.)*'|\"(?:[^\"\\]|\\.)*\"|--[^\n]*|/\*.*?\*/", re.DOTALL
)
_PART = r"(?:`(?:[^`]|``)+`|[A-Za-z_0-9]+)"
_SOURCE = re.compile(rf"\b(?:from|join)\s+({_PART}(?:\s*\.\s*{_PART})+)", re.IGNORECASE)
_ALIAS = re.compile(r"\s*(?:as\b|(`|[A-Za-z_0-9]+))", re.IGNORECASE)
_AFTER_A_TABLE = re.compile(
    r"where|group|having|order|sort|cluster|distribute|limit|offset|union|intersect|except|minus|"
    r"join|inner|left|right|full|cross|natural|anti|semi|on|using|lateral|pivot|unpivot|window|"
    r"tablesample|version|timestamp|for",
    re.IGNORECASE,
)
_MULTI_ROW_CLAUSES = re.compile(
    r"\b(?:distinct|join|group|having|order|sort|cluster|distribute|limit|offset|union|intersect|"
    r"except|minus|over|with|lateral|pivot|unpivot|tablesample|window|values|version|timestamp|"
    r"table)\b|\|>|;",
    re.IGNORECASE,
)
_NONDETERMINISTIC = re.compile(
    r"\b(?:current_\w+|now|curdate|localtimestamp|unix_timestamp|rand|randn|random|randstr|uniform|"
    r"shuffle|uuid|monotonically_increasing_id|spark_partition_id)\b",
    re.IGNORECASE,
)
"""Functions that can return a different value for the same row each time."""
_ROW_QUERY = re.compile(
    rf"\s*select\b.+?\bfrom\s+{_PART}(?:\s*\.\s*{_PART})+"
    rf"(?:\s+(?:as\s+)?(?!where\b){_PART})?\s*(?:\bwhere\b.*)?",
    re.IGNORECASE | re.DOTALL,
)


def blank_literals(sql: str) -> str:
    """Return SQL with string literals and comments replaced by blanks of the same length."""
    return _QUOTED.sub(lambda match: match[1] or " " * len(match[0]), sql)


def read_columns(sql: str, names: list[str]) -> tuple[str, ...]:
    """Return the columns that SQL may read; all if it contains a star for columns."""
    if _STAR.search(blank_literals(sql)):
        return tuple(names)
    found = set(columns_in(sql, names))
    return tuple(name for name in names if name in found)


@dataclass(frozen=True)
class TableReference:
    """A qualified table name in a query, and its position there."""

    name: str
    start: int
    end: int


def table_references(query: str) -> list[TableReference]:
    """Return the qualified table names after FROM or JOIN."""
    return [
        TableReference(
            quoted(parts_of(re.sub(r"\s*\.\s*", ".", match[1]))), match.start(1), match.end(1)
        )
        for match in _SOURCE.finditer(blank_literals(query))
    ]


def replace_tables(query: str, found: list[TableReference], names: dict[str, str]) -> str:
    """Return a query with tables replaced by views, which have the tables' names as aliases."""
    for each in reversed(found):
        if each.name not in names:
            continue
        named = names[each.name]
        if not _has_alias(query, each.end):
            named += f" AS {quoted(parts_of(each.name)[-1:])}"
        query = query[: each.start] + named + query[each.end :]
    return query


def _has_alias(query: str, end: int) -> bool:
    match = _ALIAS.match(blank_literals(query), end)
    return match is not None and (match[1] is None or not _AFTER_A_TABLE.fullmatch(match[1]))


def may_be_by_row(query: str) -> bool:
    """Return whether a query may map one table's rows one by one: columns and a filter.

    An aggregate has the same form; running it on no rows distinguishes the two.
    """
    text = blank_literals(query)
    words = re.findall(r"\b(?:select|from|where)\b", text.lower())
    is_plain = words in (["select", "from"], ["select", "from", "where"])
    is_other = _MULTI_ROW_CLAUSES.search(text) or _NONDETERMINISTIC.search(text)
    return is_plain and not is_other and _ROW_QUERY.fullmatch(text) is not None
