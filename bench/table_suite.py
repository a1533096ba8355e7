"""Operations inside a table, compared with pylance on a table opened by its path.

Starts a Hive Metastore. Each round makes two tables of the same rows and does every operation on
both. What is left of our time after pylance's and that of one raw call to the catalog is our own.
The calls on the wire are counted by a proxy. Tables that differ at the end of a round are a wrong
answer. Missed bars are reported only. Some operations are also done on a table whose versions the
catalog manages.
"""

from __future__ import annotations

import argparse
import shutil
import statistics
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass
from functools import cache, partial
from operator import attrgetter
from pathlib import Path
from typing import Any

import lance
import pyarrow as pa

from bench import catalogs
from bench.catalogs import NAMESPACE, Catalog
from bench.runner import (
    Figures,
    Operation,
    Row,
    Way,
    at_least,
    count_calls,
    make_row,
    operation_rows,
    request,
    show_progress,
    take_turns,
)
from lance_bridge.locations import for_lance
from lance_bridge.testing.calls import ipc

TABLE_ROWS = 1000
_BARS = {"own_ms": "< 3"}
"""Milliseconds on top of pylance's call and of the calls to the catalog."""
_COMMITS = (
    "insert, append", "merge", "update", "delete", "add columns", "alter columns", "drop columns",
    "schema metadata", "field metadata", "create index, scalar", "create index, vector",
    "create index, full text", "drop index", "restore", "insert, overwrite",
)  # fmt: skip
"""Operations that read the entry again after their commit."""
_MANAGED = {
    "insert, append": 4, "merge": 4, "update": 4, "delete": 4, "count": 1, "query, filter": 1,
}  # fmt: skip
"""Operations on a table whose versions the catalog manages, with their calls to it."""
_FEW, _DIMENSIONS = 100, 32
_COLUMNS = ["id", "price"]
_FILTER = "price > 10.0 AND id < 500"
_FILTERED: dict[str, Any] = {"columns": _COLUMNS, "filter": _FILTER, "limit": 10}
_WORDS = ("lamp", "chair", "shelf", "table", "stool")
_WORD = {"query": "lamp", "columns": ["title"]}
_IVF: dict[str, Any] = {"index_type": "IVF_FLAT", "name": "near", "num_partitions": 2}
_RESTORED = 2
"""The version that is described, and restored."""
_REHEARSALS = 2


def add_options(parser: argparse.ArgumentParser, _: str) -> None:
    """Add the options of the suite."""
    parser.add_argument("--rounds", type=at_least(1), default=40, help="of all operations")


def measure(options: argparse.Namespace) -> Row:
    """Time all operations on a direct connection, then count their calls through a proxy."""
    show_progress("starting the catalog …")
    unlike: list[str] = []
    # The raw client at its fastest, because its time is subtracted from ours.
    with (
        catalogs.hive("2.3", 2, 2, kind=catalogs.AcceleratedHive) as catalog,
        catalog.open_client() as client,
    ):
        catalog.fill()
        show_progress(f"measuring on {catalog.title} …")
        make = partial(make_pair, catalog, client, unlike)
        plain = _measure(catalog, table_operations(), make, options.rounds)
        managed = _measure(catalog, managed_operations(), make, options.rounds)
    return {
        "catalog": catalog.title,
        "rows": TABLE_ROWS,
        "operations": plain,
        "operations_on_a_managed_table": managed,
        "tables_at_the_end": [make_row({"unlike": len(unlike)}, {}, len(unlike))],
    }


def _measure(
    catalog: Catalog, operations: list[Operation], make: Callable[..., Any], rounds: int
) -> list[Row]:
    with closing(catalog.connect()) as namespace:
        figures = take_turns(operations, rounds, _REHEARSALS, partial(make, namespace))
    with catalog.counted() as (wire, counted):
        count_calls(operations, wire, figures, 1, partial(make, counted))
    return operation_rows(operations, figures)


@dataclass(frozen=True)
class TablePair:
    """The two tables of a round: one of a namespace, and one at a path, which pylance opens."""

    namespace: Any
    catalog: Catalog
    client: Any
    name: str

    @property
    def path(self) -> str:
        """Where the other table is."""
        return for_lance(self.catalog.location(f"raw_{self.name}"))

    def request(self, method: str, data: bytes | None = None, **fields: Any) -> Any:
        """Do an operation of the namespace, by default on its table."""
        return request(self.namespace, method, data, **{"id": [NAMESPACE, self.name], **fields})


@contextmanager
def make_pair(
    catalog: Catalog, client: Any, unlike: list[str], namespace: Any, number: int
) -> Iterator[TablePair]:
    """Yield the pair of a round, which the first operation creates; remove it at the end.

    The name of the table is added to ``unlike`` if the two differ then.
    """
    pair = TablePair(namespace, catalog, client, f"inside_{number}")
    yield pair
    path = for_lance(catalog.location(pair.name))
    if Path(pair.path).exists():
        if _history(path) != _history(pair.path):
            unlike.append(pair.name)
        shutil.rmtree(pair.path)
    pair.request("deregister_table")
    shutil.rmtree(path)


def _history(path: str) -> list[object]:
    """Return the state of a table after each operation, and its tags and branches at the end."""
    dataset = lance.dataset(path)
    versions = [dataset.checkout_version(each["version"]) for each in dataset.versions()]
    references: list[object] = [sorted(dataset.tags.list()), sorted(dataset.branches.list())]
    return references + [
        (each.count_rows(), each.schema, sorted(index.name for index in each.describe_indices()))
        for each in versions
    ]


# -- operations ----------------------------------------------------------------------------------


def table_operations() -> list[Operation]:
    """Return all operations, in a possible order for each round, whose turn is a `TablePair`.

    By the same name, one table has our request, and the other pylance's call. What operations
    without a comparable value did shows in the tables at the end.
    """
    create: dict[str, Way] = {
        "ours": _ours("create_table", _version, _stream(TABLE_ROWS)),
        "pylance": lambda pair: lance.write_dataset(_reader(TABLE_ROWS), pair.path).version,
    }
    ours = [_operation(name, 2 if name in _COMMITS else 1) for name in _OURS]
    return [Operation("create_table", create, _is_same), *ours]


def managed_operations() -> list[Operation]:
    """Return the same for a table whose versions the catalog manages."""
    create, *_ = table_operations()
    ways = {**create.ways, "ours": _create_managed}
    ours = [_operation(name, calls) for name, calls in _MANAGED.items()]
    return [Operation("create_table", ways, _is_same), *ours]


def _create_managed(pair: TablePair) -> Any:
    properties = {"managed_by": "impl"}
    return pair.request("create_table", _stream(TABLE_ROWS), properties=properties).version


def _operation(name: str, calls: int) -> Operation:
    """Return an operation with the raw call to the catalog as its third way."""
    pylance = _PYLANCE[name]
    version = _RESTORED if name in ("describe version", "restore") else None
    ways: dict[str, Way] = {
        "ours": _OURS[name],
        "pylance": lambda pair: pylance(lance.dataset(pair.path, version=version)),
        "call": lambda pair: pair.catalog.raw("describe_table", pair.client, pair.name),
    }
    bars = {**_BARS, "calls": f"= {calls}"}
    return Operation(name, ways, _is_same, bars, more=lambda found: _own_time(found, calls))


def _is_same(found: Any, _: Any) -> bool:
    """Return whether the values are the same, if ours has one; zero or an empty one is wrong."""
    return found["ours"] is None or bool(found["ours"] and found["ours"] == found["pylance"])


def _own_time(found: Figures, calls: int) -> Row:
    """Return the median of what is left of our time."""
    seconds = zip(*found.seconds.values(), strict=True)
    own = [ours - raw - calls * call for ours, raw, call in seconds]
    return {"own_ms": round(statistics.median(own) * 1000, 3)}


# -- rows ------------------------------------------------------------------------------------------


@cache
def _stream(rows: int, start: int = 0) -> bytes:
    """Return rows with ids from ``start`` on as an Arrow IPC stream: id, price, title, vector."""
    ids = range(start, start + rows)
    vectors = pa.array([each for n in ids for each in _vector(n)], pa.float32())
    columns = {
        "id": pa.array(ids, pa.int64()),
        "price": pa.array([n % 97 / 7 for n in ids], pa.float64()),
        "title": [f"{_WORDS[n % 5]} {_WORDS[n % 3]} number{n}" for n in ids],
        "vector": pa.FixedSizeListArray.from_arrays(vectors, _DIMENSIONS),
    }
    return ipc(pa.table(columns))


def _vector(number: int) -> list[float]:
    return [float((7 * number + 3 * d) % 101) for d in range(_DIMENSIONS)]


def _reader(rows: int, start: int = 0) -> pa.RecordBatchReader:
    return pa.ipc.open_stream(_stream(rows, start))


# -- our requests ----------------------------------------------------------------------------------


def _ours(
    method: str, value: Callable[[Any], Any] | None = None, data: bytes | None = None, **fields: Any
) -> Way:
    """Return a request; the answer is that value of the response, which pylance's must equal."""

    def do(pair: Any) -> Any:
        found = pair.request(method, data, **fields)
        return value(found) if value else None

    return do


def _query(**fields: Any) -> dict[str, Any]:
    columns = {"column_names": _COLUMNS}
    return {"k": 10, "vector": {"single_vector": []}, "columns": columns, **fields}


def _ids(found: Any) -> list[int]:
    return list(pa.ipc.open_file(found.data).read_all()["id"].to_pylist())


def _start_of(plan: str) -> str:
    """Return how a plan begins: what follows contains paths and times."""
    return plan.replace(",", ":").split(":", 1)[0]


_version = attrgetter("version")
_OURS: dict[str, Way] = {
    "insert, append": _ours("insert_into_table", data=_stream(_FEW, TABLE_ROWS)),
    "merge": _ours(
        "merge_insert_into_table",
        attrgetter("num_updated_rows", "num_inserted_rows"),
        _stream(_FEW, TABLE_ROWS + _FEW // 2),
        on=["id"],
        when_matched_update_all=True,
        when_not_matched_insert_all=True,
    ),
    "update": _ours(
        "update_table",
        attrgetter("updated_rows"),
        updates=[["price", "price * 2"]],
        predicate="id < 10",
    ),
    "delete": _ours("delete_from_table", predicate="id < 5"),
    "count": _ours("count_table_rows", attrgetter("count"), predicate=_FILTER),
    "query, filter": _ours("query_table", _ids, **_query(filter=_FILTER)),
    "explain a query": _ours("explain_table_query_plan", _start_of, query=_query(filter=_FILTER)),
    "analyze a query": _ours("analyze_table_query_plan", _start_of, **_query(filter=_FILTER)),
    "add columns": _ours(
        "alter_table_add_columns", new_columns=[{"name": "gross", "expression": "price * 1.2"}]
    ),
    "alter columns": _ours(
        "alter_table_alter_columns", alterations=[{"path": "gross", "rename": "total"}]
    ),
    "drop columns": _ours("alter_table_drop_columns", columns=["total"]),
    "schema metadata": _ours(
        "update_table_schema_metadata", attrgetter("metadata"), metadata={"owner": "bench"}
    ),
    "field metadata": _ours(
        "update_field_metadata", updates=[{"path": "price", "metadata": {"unit": "EUR"}}]
    ),
    "create index, scalar": _ours(
        "create_table_scalar_index", column="id", index_type="BTREE", name="by_id"
    ),
    "create index, vector": _ours("create_table_index", column="vector", **_IVF),
    "create index, full text": _ours(
        "create_table_scalar_index", column="title", index_type="FTS", name="words"
    ),
    "list indices": _ours(
        "list_table_indices", lambda found: {each.index_name for each in found.indexes}
    ),
    "index statistics": _ours(
        "describe_table_index_stats", attrgetter("num_indexed_rows"), index_name="by_id"
    ),
    "query, vector": _ours("query_table", _ids, **_query(vector={"single_vector": _vector(77)})),
    "query, full text": _ours(
        "query_table",
        lambda found: len(_ids(found)),
        **_query(full_text_query={"string_query": _WORD}),
    ),
    "drop index": _ours("drop_table_index", index_name="by_id"),
    "list versions": _ours(
        "list_table_versions", lambda found: [each.version for each in found.versions]
    ),
    "describe version": _ours(
        "describe_table_version", attrgetter("version.version"), version=_RESTORED
    ),
    "restore": _ours("restore_table", version=_RESTORED),
    "table statistics": _ours("get_table_stats", attrgetter("fragment_stats.num_fragments")),
    "create tag": _ours("create_table_tag", tag="first", version=1),
    "get tag": _ours("get_table_tag_version", _version, tag="first"),
    "list tags": _ours("list_table_tags", lambda found: list(found.tags)),
    "update tag": _ours("update_table_tag", tag="first", version=2),
    "delete tag": _ours("delete_table_tag", tag="first"),
    "create branch": _ours("create_table_branch", name="draft"),
    "list branches": _ours("list_table_branches", lambda found: list(found.branches)),
    "delete branch": _ours("delete_table_branch", name="draft"),
    "insert, overwrite": _ours("insert_into_table", data=_stream(TABLE_ROWS), mode="Overwrite"),
    "transaction": lambda pair: (
        pair.request("describe_transaction", id=[NAMESPACE, pair.name, "2"]).status
    ),
}

# -- pylance's calls, which get the opened dataset -------------------------------------------------


def _merge_by_pylance(dataset: Any) -> Any:
    merge = dataset.merge_insert("id").when_matched_update_all().when_not_matched_insert_all()
    done = merge.execute(_reader(_FEW, TABLE_ROWS + _FEW // 2))
    return done["num_updated_rows"], done["num_inserted_rows"]


def _nearest_by_pylance(dataset: Any) -> Any:
    nearest = {"column": "vector", "q": pa.array(_vector(77), pa.float32()), "k": 10}
    return dataset.to_table(columns=[*_COLUMNS, "_distance"], nearest=nearest)["id"].to_pylist()


def _words_by_pylance(dataset: Any) -> int:
    columns = [*_COLUMNS, "_score"]
    return int(dataset.to_table(columns=columns, full_text_query=_WORD, limit=10).num_rows)


def _statistics_by_pylance(dataset: Any) -> Any:
    dataset.stats.data_stats()
    return dataset.stats.dataset_stats()["num_fragments"]


_PYLANCE: dict[str, Callable[[Any], Any]] = {
    "insert, append": lambda ds: ds.insert(_reader(_FEW, TABLE_ROWS)),
    "merge": _merge_by_pylance,
    "update": lambda ds: ds.update({"price": "price * 2"}, where="id < 10")["num_rows_updated"],
    "delete": lambda ds: ds.delete("id < 5"),
    "count": lambda ds: ds.count_rows(_FILTER),
    "query, filter": lambda ds: ds.to_table(**_FILTERED)["id"].to_pylist(),
    "explain a query": lambda ds: _start_of(ds.scanner(**_FILTERED).explain_plan()),
    "analyze a query": lambda ds: _start_of(ds.scanner(**_FILTERED).analyze_plan()),
    "add columns": lambda ds: ds.add_columns({"gross": "price * 1.2"}),
    "alter columns": lambda ds: ds.alter_columns({"path": "gross", "name": "total"}),
    "drop columns": lambda ds: ds.drop_columns(["total"]),
    "schema metadata": lambda ds: ds.update_schema_metadata({"owner": "bench"}, replace=True),
    "field metadata": lambda ds: ds.update_field_metadata({"price": {"unit": "EUR"}}),
    "create index, scalar": lambda ds: ds.create_scalar_index("id", "BTREE", name="by_id"),
    "create index, vector": lambda ds: ds.create_index("vector", **_IVF),
    "create index, full text": lambda ds: ds.create_scalar_index("title", "INVERTED", name="words"),
    "list indices": lambda ds: {each.name for each in ds.describe_indices()},
    "index statistics": lambda ds: ds.stats.index_stats("by_id")["num_indexed_rows"],
    "query, vector": _nearest_by_pylance,
    "query, full text": _words_by_pylance,
    "drop index": lambda ds: ds.drop_index("by_id"),
    "list versions": lambda ds: [each["version"] for each in ds.versions()],
    "describe version": lambda ds: ds.version,
    "restore": lambda ds: ds.restore(),
    "table statistics": _statistics_by_pylance,
    "create tag": lambda ds: ds.tags.create("first", 1),
    "get tag": lambda ds: ds.tags.get_version("first"),
    "list tags": lambda ds: list(ds.tags.list()),
    "update tag": lambda ds: ds.tags.update("first", 2),
    "delete tag": lambda ds: ds.tags.delete("first"),
    "create branch": lambda ds: ds.create_branch("draft", ds.version),
    "list branches": lambda ds: list(ds.branches.list()),
    "delete branch": lambda ds: ds.branches.delete("draft"),
    "insert, overwrite": lambda ds: ds.insert(_reader(TABLE_ROWS), mode="overwrite"),
    "transaction": lambda ds: ds.read_transaction(2) and "Succeeded",
}
