"""The tables that a view's query reads: their versions, DataFrames, and appended fragments."""

from __future__ import annotations

import json
import re
import uuid
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial, reduce
from typing import TYPE_CHECKING, Any

import lance
import pyarrow as pa
from lance.fragment import FragmentMetadata
from lance_namespace.errors import LanceNamespaceError

from lance_bridge.config import named_catalogs
from lance_bridge.dataset import columns_in, field_ids
from lance_bridge.dotted_names import parts_of, quoted
from lance_bridge.errors import LANCE_ERRORS, invalid
from lance_bridge.requests import Ref
from lance_bridge.transaction_versions import keeps_rows, transaction_at

from ..addresses import TableAddress, address_of, catalogs_of
from ..lookup import create_table, find_table
from ..schemas import new_schema, spark_schema
from ..source.options import FORMAT, SCAN_OPTION, load
from ..source.writer import NO_FRAGMENT, Target, fragments_of
from .tasks import (
    RESULTS_DDL,
    Phases,
    commit,
    phases,
    spark_failures,
    unpack,
    write_rows,
)

if TYPE_CHECKING:
    from ..spark_tables import SparkTable

# -- sources ---------------------------------------------------------------------------------------


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
        transaction = _transaction(self.dataset, version)
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
    if first == FORMAT and len(rest) == 1 and "/" in rest[0]:
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
    scans = [
        json.dumps({"version": each.version, "fragments": each.fragments})
        for each in parts or [Part(source.version)]
    ]
    frames = (load(spark, source.table.address, {SCAN_OPTION: each}, schema) for each in scans)
    return reduce(lambda one, other: one.union(other), frames)


def appended_since(source: Source, since: int) -> list[Part] | None:
    """Return the fragments appended after a version, or None if there were other changes.

    They are read at the version that added them, so that later compactions do not matter.
    """
    if source.version < since:
        return None
    found: list[Part] = []
    before = _open(source, since)
    for version in range(since + 1, source.version + 1):
        transaction, now = _transaction(source.dataset, version), _open(source, version)
        if transaction is None or before is None or now is None or before.schema != now.schema:
            return None
        if not isinstance(transaction.operation, lance.LanceOperation.Rewrite):
            old, fragments = _fragments(before), _fragments(now)
            if any(fragments.get(number) != each for number, each in old.items()):
                return None
            new = tuple(number for number in fragments if number not in old)
            found += [Part(version, new)] if new else []
        before = now
    return found


def _open(source: Source, version: int) -> lance.LanceDataset | None:
    """Return a source at a version, or None if the version was cleaned up."""
    try:
        return source.table.open(Ref(version=version))
    except LanceNamespaceError:
        return None


def _fragments(dataset: lance.LanceDataset) -> dict[int, FragmentMetadata]:
    return {each.fragment_id: each.metadata for each in dataset.get_fragments()}


def _transaction(dataset: lance.LanceDataset, version: int) -> lance.Transaction | None:
    """Return a version's transaction, or None if its file is missing."""
    try:
        return transaction_at(dataset, version)
    except LANCE_ERRORS:
        return None


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


# -- views -----------------------------------------------------------------------------------------

DEFINITION = "lance_bridge.view"
"""The key of the query in the schema's metadata."""

SOURCES = "lance_bridge.view.sources"
"""The transaction property with the source versions that a refresh read, and their transactions."""


@dataclass(frozen=True)
class Refreshed:
    """The result of a refresh.

    Attributes:
        is_full: Whether all rows were computed, and not only those of new fragments.
        sources: The versions of the sources, by the name in the query.
        transaction_id: The transaction of the last refresh that wrote rows; None before the first.
    """

    version: int
    is_full: bool = False
    sources: Mapping[str, int] | None = None
    transaction_id: str | None = None


@dataclass(frozen=True)
class Definition:
    """The definition of a view."""

    query: str
    by_row: bool

    @classmethod
    def of(cls, table: SparkTable, schema: pa.Schema) -> Definition:
        """Return a view's definition. Raise InvalidInput (13) if the table is not a view."""
        text = (schema.metadata or {}).get(DEFINITION.encode())
        if text is None:
            raise invalid(
                f"Table '{table.address.name}' is not a materialized view: create one with "
                "create_materialized_view"
            )
        text = json.loads(text)
        return cls(text["query"], text["by_row"])

    def add_to(self, schema: pa.Schema) -> pa.Schema:
        """Return a schema with the definition in its metadata."""
        text = json.dumps({"query": self.query, "by_row": self.by_row})
        return schema.with_metadata({**(schema.metadata or {}), DEFINITION: text})


def create_materialized_view(
    spark: Any,
    table: str,
    query: str,
    *,
    with_data: bool = True,
    max_rows_per_fragment: int | None = None,
) -> Refreshed:
    """Create a table with the rows of a query, which `refresh_materialized_view` updates.

    Args:
        table: ``catalog.db.table``, or a location; it must not exist yet.
        query: A Spark SQL query. Its Lance tables are named ``catalog.db.table`` or
            ``lance.`/a/path` ``, and need no SQL catalog. All other tables are Spark's.
        with_data: Whether to compute the rows now; otherwise the view is empty.
        max_rows_per_fragment: The maximum number of rows in a file.

    Raises:
        TableAlreadyExistsError: (5)
        TableNotFoundError: (4) a source does not exist.
        InvalidInputError: (13) Spark cannot parse or resolve the query, or Lance cannot store a
            type.
        ServiceUnavailableError: (17) the rows could not be computed. The view exists and is empty.
    """
    with phases(f"create view {table}", 4 if with_data else 1) as progress:
        progress.begin("plan")
        address = address_of(spark, table)
        create(spark, address, query)
        if not with_data:
            return Refreshed(int(find_table(address).open().version))
        return refresh(spark, address, full=True, rows=max_rows_per_fragment, progress=progress)


def create(spark: Any, address: TableAddress, query: str, schema: pa.Schema | None = None) -> None:
    """Create the view's table, empty, with the query's schema or the given one."""
    what = f"Materialized view '{address.name}' was not created"
    sources = find_sources(spark, query)
    with spark_failures(what), query_over(spark, query, sources) as frame:
        made_schema = _schema(frame.schema, sources)
    by_row = len(sources) == 1 and may_be_by_row(query) and _is_by_row(spark, query, sources, what)
    names = made_schema.names
    if schema is not None and schema.names != names:
        raise invalid(f"{what}: its schema has columns {schema.names}, the query {names}")
    create_table(address, Definition(query, by_row).add_to(schema or made_schema))


def _is_by_row(spark: Any, query: str, sources: list[Source], what: str) -> bool:
    """Return whether the query has no rows for an empty source; an aggregate has one."""
    with spark_failures(what), query_over(spark, query, sources, []) as frame:
        return not frame.take(1)


def _schema(made: Any, sources: list[Source]) -> pa.Schema:
    """Return a query's schema, in which columns with a source's name keep its vector lengths."""
    lists = {f.name for f in made.fields if f.dataType.typeName() == "array"}
    lengths = {n: size for each in sources for n, size in each.vectors.items() if n in lists}
    return pa.schema([f.with_nullable(True) for f in new_schema(made, lengths)])


def refresh_materialized_view(
    spark: Any, table: str, *, full: bool = False, max_rows_per_fragment: int | None = None
) -> Refreshed:
    """Update a view in one commit: readers see either the old rows or the new ones.

    If the query is only columns and a filter of one table, and that table only had appends since
    the last refresh, only the appended rows are computed. Otherwise all rows are.

    Args:
        full: Whether to compute all rows in any case.
        max_rows_per_fragment: The maximum number of rows in a file.

    Raises:
        TableNotFoundError: (4) the view or a source does not exist.
        InvalidInputError: (13) it is not a view, or its query no longer fits its sources.
        ConcurrentModificationError: (14) it was refreshed or changed concurrently.
        ServiceUnavailableError: (17) the view is unchanged.
    """
    with phases(f"refresh view {table}", 3) as progress:
        address = address_of(spark, table)
        return refresh(spark, address, full=full, rows=max_rows_per_fragment, progress=progress)


def refresh(
    spark: Any,
    address: TableAddress,
    *,
    full: bool = False,
    rows: int | None = None,
    source_version: int | None = None,
    progress: Phases,
) -> Refreshed:
    """Refresh a view as `refresh_materialized_view` does, optionally at a version of its source."""
    if rows is not None and rows < 1:
        raise invalid(f"max_rows_per_fragment must be 1 or more, not {rows}")
    progress.begin("plan")
    table = find_table(address)
    dataset = table.open(write=True)
    definition = Definition.of(table, dataset.schema)
    sources = find_sources(spark, definition.query)
    if source_version is not None:
        if len(sources) != 1:
            raise invalid(f"src_version needs a view of one table: this one has {len(sources)}")
        wanted = {sources[0].name: source_version}
        sources = find_sources(spark, definition.query, wanted)
    versions = {each.name: each.version for each in sources}
    read_versions = {each.name: (each.version, each.made_by(each.version)) for each in sources}
    known = _last_refresh(dataset)
    parts = None if full or not definition.by_row else _new_parts(sources, known and known[0])
    if known is not None and parts == [] and _version_in(known[0], sources) == sources[0].version:
        return Refreshed(int(dataset.version), sources=versions, transaction_id=known[1])
    job = _Job(spark, table, dataset, definition.query, sources, parts, rows)
    progress.begin("compute")
    fragments = job.write()
    progress.begin("commit")
    operation = job.operation(fragments)
    transaction = lance.Transaction(
        read_version=int(dataset.version),
        operation=operation,
        uuid=str(uuid.uuid4()),
        transaction_properties={SOURCES: json.dumps(read_versions)},
    )
    version = commit(table, dataset, transaction, "the view was not refreshed")
    return Refreshed(version, parts is None, versions, str(transaction.uuid))


ReadVersions = Mapping[str, tuple[int, str | None]]
"""Versions of sources and the identifiers of their transactions, by the name in the query."""


def _last_refresh(dataset: lance.LanceDataset) -> tuple[ReadVersions, str] | None:
    """Return the source versions and the transaction of the last refresh, or None if unknown."""
    for version in range(int(dataset.version), 0, -1):
        transaction = _transaction(dataset, version)
        if transaction is None:
            return None
        text = (transaction.transaction_properties or {}).get(SOURCES)
        if text is not None:
            read_versions = {name: (int(n), by) for name, (n, by) in json.loads(text).items()}
            return read_versions, str(transaction.uuid)
        if not keeps_rows(transaction.operation):
            return None
    return None


def _new_parts(sources: list[Source], known: ReadVersions | None) -> list[Part] | None:
    version = None if known is None else _version_in(known, sources)
    return None if version is None else appended_since(sources[0], version)


def _version_in(known: ReadVersions, sources: list[Source]) -> int | None:
    """Return the last read version of the only source, or None if the table was recreated."""
    if len(sources) != 1 or sources[0].name not in known:
        return None
    version, made_by = known[sources[0].name]
    is_same = made_by is not None and sources[0].made_by(version) == made_by
    return version if is_same else None


@dataclass(frozen=True)
class _Job:
    """A job that computes a view's rows: all, or those from parts of its only source."""

    spark: Any
    table: SparkTable
    dataset: lance.LanceDataset
    query: str
    sources: list[Source]
    parts: list[Part] | None
    rows: int | None

    def write(self) -> list[Any]:
        """Write the rows in tasks, and return the fragments."""
        what = f"Materialized view '{self.table.address.name}' was not refreshed"
        if self.parts is not None and not self.parts:
            return []
        access = self.table.access(self.dataset, write=True)
        with (
            spark_failures(what),
            query_over(self.spark, self.query, self.sources, self.parts) as frame,
        ):
            schema: pa.Schema = self.dataset.schema
            if frame.columns != schema.names:
                raise invalid(f"{what}: the query now has columns {frame.columns}")
            limit = {} if self.rows is None else {"max_rows_per_file": self.rows}
            target = Target.appending(access, schema, limit)
            answers = frame.mapInArrow(partial(write_rows, target), RESULTS_DDL).collect()
        written = fragments_of([unpack(row) for row in answers])
        return [FragmentMetadata.from_json(each) for each in written]

    def operation(self, fragments: list[Any]) -> Any:
        """Return the operation that replaces the view's rows with the fragments, or appends them.

        It always names a fragment, so that two refreshes of the same version conflict. An overwrite
        would drop the indices.
        """
        there = [each.metadata for each in self.dataset.get_fragments()]
        gone = there if self.parts is None else []
        return lance.LanceOperation.Update(
            removed_fragment_ids=[each.id for each in gone] if there else [NO_FRAGMENT],
            updated_fragments=[] if gone else there[:1],
            new_fragments=fragments,
            # No index covers the new rows.
            fields_for_preserving_frag_bitmap=field_ids(self.dataset, self.dataset.schema.names),
        )
