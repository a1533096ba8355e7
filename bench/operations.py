"""The operations that are measured: of a catalog, and inside a table."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from typing import Any

import lance
import pyarrow as pa

from bench.catalogs import Catalog
from bench.raw_clients import NAMESPACE, RawClient
from bench.runner import Bar, Operation, Way, request

OWN_TIME_AND_CALLS = (Bar("own_ms", "<", 3.0), Bar("calls", "=", 1))
"""Milliseconds on top of pylance's call and of the one call to the catalog; calls on the wire."""
TABLE_ROWS = 1000
_FEW, _DIMENSIONS = 100, 32
_COLUMNS = ["id", "price"]
_FILTER = "price > 10.0 AND id < 500"
_WORDS = ("lamp", "chair", "shelf", "table", "stool")


def catalog_operations(catalog: Catalog, namespace: Any, raw: RawClient) -> list[Operation]:
    """Return the operations in a possible order for each round; a turn is a number."""
    contents, names = catalog.contents, catalog.contents.lance_names

    def ours(method: str, *path: str, **fields: Any) -> Any:
        return request(namespace, method, id=list(path), **fields)

    def name_of(turn: int) -> str:
        return names[turn * 37 % len(names)]

    def operation(
        name: str,
        ours: Callable[[int], Any],
        theirs: Callable[[int], Any],
        is_right: Callable[[Any, int], bool],
        repeats: int = 1,
    ) -> Operation:
        bars = catalog.raw_calls[name.removesuffix(" limit 10")].bars
        ways = {"ours": ours, "raw": theirs}
        return Operation(name, ways, lambda found, n: is_right(found["ours"], n), bars, repeats)

    return [
        operation(
            "list_tables",
            lambda _: ours("list_tables", NAMESPACE),
            lambda _: raw.list_tables(),
            lambda found, _: bool(found.tables == names),
        ),
        operation(
            "list_tables limit 10",
            lambda _: ours("list_tables", NAMESPACE, limit=10),
            lambda _: raw.list_tables(),
            lambda found, _: bool(found.tables == names[:10]),
        ),
        operation(
            "list_namespaces",
            lambda _: ours("list_namespaces"),
            lambda _: raw.list_namespaces(),
            lambda found, _: (
                len(found.namespaces) == contents.namespaces and NAMESPACE in found.namespaces
            ),
        ),
        operation(
            "describe_table",
            lambda n: ours("describe_table", NAMESPACE, name_of(n)),
            lambda n: raw.location_of(name_of(n)),
            lambda found, n: catalog.is_at(name_of(n), found.location),
            # It is short, and so more easily disturbed.
            repeats=5,
        ),
        operation(
            "declare_table",
            lambda n: ours("declare_table", NAMESPACE, f"ours_{n}"),
            lambda n: raw.create_table(f"raw_{n}", contents.location(f"raw_{n}")),
            lambda found, n: catalog.is_at(f"ours_{n}", found.location),
        ),
        operation(
            "deregister_table",
            lambda n: ours("deregister_table", NAMESPACE, f"ours_{n}"),
            lambda n: raw.drop_table(f"raw_{n}"),
            lambda found, n: catalog.is_at(f"ours_{n}", found.location),
        ),
    ]


@cache
def _stream(rows: int, start: int = 0) -> bytes:
    """Return rows with ids from ``start`` on as an Arrow IPC stream: id, price, title, vector."""
    ids = range(start, start + rows)
    vectors = pa.array([each for n in ids for each in _vector(n)], pa.float32())
    table = pa.table(
        {
            "id": pa.array(ids, pa.int64()),
            "price": pa.array([n % 97 / 7 for n in ids], pa.float64()),
            "title": [f"{_WORDS[n % 5]} {_WORDS[n % 3]} number{n}" for n in ids],
            "vector": pa.FixedSizeListArray.from_arrays(vectors, _DIMENSIONS),
        }
    )
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, table.schema) as writer:
        writer.write_table(table)
    return bytes(sink.getvalue())


def _vector(number: int) -> list[float]:
    return [float((7 * number + 3 * d) % 101) for d in range(_DIMENSIONS)]


def _reader(rows: int, start: int = 0) -> pa.RecordBatchReader:
    return pa.ipc.open_stream(_stream(rows, start))


@dataclass(frozen=True)
class Both:
    """One operation by the namespace, which gets the `TablePair`, and by pylance.

    ``pylance`` gets the dataset, opened for it at ``version``. ``is_same`` compares our answer with
    pylance's and with that dataset; without it, what was done shows in the tables at the end.
    """

    ours: Way
    pylance: Callable[[Any], Any]
    is_same: Callable[[Any, Any, Any], bool] = lambda *_: True
    version: int | None = None

    def named(self, name: str) -> Operation:
        """Return it with the raw call to the catalog as its third way."""

        def open_and_do(pair: Any) -> tuple[Any, Any]:
            dataset = lance.dataset(pair.path, version=self.version)
            return self.pylance(dataset), dataset

        ways = {
            "ours": self.ours,
            "pylance": open_and_do,
            "call": lambda pair: pair.client.location_of(pair.name),
        }

        def is_right(found: Any, _: Any) -> bool:
            return self.is_same(found["ours"], *found["pylance"])

        return Operation(name, ways, is_right, OWN_TIME_AND_CALLS)


def table_operations() -> list[Operation]:
    """Return all operations of a round, in order. The first creates the tables, without bars."""
    ways = {
        "ours": _ours("create_table", _stream(TABLE_ROWS)),
        "pylance": lambda pair: lance.write_dataset(_reader(TABLE_ROWS), pair.path),
        "call": lambda pair: pair.create_entry(),
    }
    create = Operation("create_table", ways, lambda a, _: a["ours"].version == a["pylance"].version)
    return [create, *(both.named(name) for name, both in _TABLE.items())]


def _ours(method: str, data: bytes | None = None, **fields: Any) -> Way:
    return lambda pair: pair.request(method, data, **fields)


def _merge(start: int, condition: str | None = None) -> Both:
    """Return a merge of a few rows, which updates the matching ones where a condition holds."""
    matched = "when_matched_update_all_filt" if condition else "when_matched_update_all"
    fields: dict[str, Any] = {matched: condition or True, "when_not_matched_insert_all": True}

    def pylance(dataset: Any) -> Any:
        found = dataset.merge_insert("id").when_matched_update_all(condition)
        return found.when_not_matched_insert_all().execute(_reader(_FEW, start))

    def is_same(ours: Any, raw: Any, _: Any) -> bool:
        found = (ours.num_updated_rows, ours.num_inserted_rows)
        return found == (raw["num_updated_rows"], raw["num_inserted_rows"])

    return Both(
        _ours("merge_insert_into_table", _stream(_FEW, start), on=["id"], **fields),
        pylance,
        is_same,
    )


def _query(**fields: Any) -> dict[str, Any]:
    columns = {"column_names": _COLUMNS}
    return {"k": 10, "vector": {"single_vector": []}, "columns": columns, **fields}


def _nearest() -> Both:
    """Return a search by a vector, by an index if there is one."""
    wanted = _vector(77)
    nearest = {"column": "vector", "q": pa.array(wanted, pa.float32()), "k": 10}
    return Both(
        _ours("query_table", **_query(vector={"single_vector": wanted})),
        lambda ds: ds.to_table(columns=[*_COLUMNS, "_distance"], nearest=nearest),
        _same_rows,
    )


def _restore(pair: Any) -> Any:
    found = pair.request("restore_table", version=2)
    pair.restored_by = found.transaction_id
    return found


def _transaction(pair: Any, name: str | None) -> Any:
    return request(pair.namespace, "describe_transaction", id=[NAMESPACE, pair.name, name])


def _equal(field: str) -> Callable[[Any, Any, Any], bool]:
    return lambda ours, raw, _: bool(getattr(ours, field) == raw)


def _same_version(ours: Any, _: Any, dataset: Any) -> bool:
    return bool(ours.version == dataset.version)


def _same_rows(ours: Any, raw: Any, _: Any) -> bool:
    found = pa.ipc.open_file(ours.data).read_all()
    return bool(found.num_rows == 10 and found["id"].to_pylist() == raw["id"].to_pylist())


def _same_plan(ours: str, raw: str, _: Any) -> bool:
    """Compare how the plans begin: what follows contains paths and times."""
    return ours.replace(",", ":").split(":", 1)[0] == raw.replace(",", ":").split(":", 1)[0] != ""


_FILTERED: dict[str, Any] = {"columns": _COLUMNS, "filter": _FILTER, "limit": 10}
_IVF: dict[str, Any] = {"index_type": "IVF_FLAT", "name": "near", "num_partitions": 2}
_WORD = {"query": "lamp", "columns": ["title"]}
_TABLE = {
    "insert, append": Both(
        _ours("insert_into_table", _stream(_FEW, TABLE_ROWS)),
        lambda ds: ds.insert(_reader(_FEW, TABLE_ROWS)),
        _same_version,
    ),
    "merge": _merge(TABLE_ROWS + _FEW // 2),
    "merge, with a filter": _merge(TABLE_ROWS + _FEW, "source.price > target.price"),
    "update": Both(
        _ours("update_table", updates=[["price", "price * 2"]], predicate="id < 10"),
        lambda ds: ds.update({"price": "price * 2"}, where="id < 10"),
        lambda ours, raw, _: bool(ours.updated_rows == raw["num_rows_updated"] == 10),
    ),
    "delete": Both(
        _ours("delete_from_table", predicate="id < 5"),
        lambda ds: ds.delete("id < 5"),
        _same_version,
    ),
    "count": Both(_ours("count_table_rows"), lambda ds: ds.count_rows(), _equal("count")),
    "count, with a predicate": Both(
        _ours("count_table_rows", predicate=_FILTER),
        lambda ds: ds.count_rows(_FILTER),
        _equal("count"),
    ),
    "query, filter": Both(
        _ours("query_table", **_query(filter=_FILTER)),
        lambda ds: ds.to_table(**_FILTERED),
        _same_rows,
    ),
    "query, vector": _nearest(),
    "explain a query": Both(
        _ours("explain_table_query_plan", query=_query(filter=_FILTER)),
        lambda ds: ds.scanner(**_FILTERED).explain_plan(),
        _same_plan,
    ),
    "analyze a query": Both(
        _ours("analyze_table_query_plan", **_query(filter=_FILTER)),
        lambda ds: ds.scanner(**_FILTERED).analyze_plan(),
        _same_plan,
    ),
    "add columns": Both(
        _ours(
            "alter_table_add_columns", new_columns=[{"name": "gross", "expression": "price * 1.2"}]
        ),
        lambda ds: ds.add_columns({"gross": "price * 1.2"}),
        _same_version,
    ),
    "alter columns": Both(
        _ours("alter_table_alter_columns", alterations=[{"path": "gross", "rename": "total"}]),
        lambda ds: ds.alter_columns({"path": "gross", "name": "total"}),
        _same_version,
    ),
    "drop columns": Both(
        _ours("alter_table_drop_columns", columns=["total"]),
        lambda ds: ds.drop_columns(["total"]),
        _same_version,
    ),
    "schema metadata": Both(
        _ours("update_table_schema_metadata", metadata={"owner": "bench"}),
        lambda ds: ds.update_schema_metadata({"owner": "bench"}, replace=True),
        _equal("metadata"),
    ),
    "field metadata": Both(
        _ours("update_field_metadata", updates=[{"path": "price", "metadata": {"unit": "EUR"}}]),
        lambda ds: ds.update_field_metadata({"price": {"unit": "EUR"}}),
        _same_version,
    ),
    "create index, scalar": Both(
        _ours("create_table_scalar_index", column="id", index_type="BTREE", name="by_id"),
        lambda ds: ds.create_scalar_index("id", "BTREE", name="by_id"),
    ),
    "create index, vector": Both(
        _ours("create_table_index", column="vector", **_IVF),
        lambda ds: ds.create_index("vector", **_IVF),
    ),
    "create index, full text": Both(
        _ours("create_table_scalar_index", column="title", index_type="FTS", name="words"),
        lambda ds: ds.create_scalar_index("title", "INVERTED", name="words"),
    ),
    "list indices": Both(
        _ours("list_table_indices"),
        lambda ds: ds.describe_indices(),
        lambda ours, raw, _: {e.index_name for e in ours.indexes} == {e.name for e in raw},
    ),
    "index statistics": Both(
        _ours("describe_table_index_stats", index_name="by_id"),
        lambda ds: ds.stats.index_stats("by_id")["num_indexed_rows"],
        _equal("num_indexed_rows"),
    ),
    "query, vector, indexed": _nearest(),
    "query, full text": Both(
        _ours("query_table", **_query(full_text_query={"string_query": _WORD})),
        lambda ds: ds.to_table(columns=[*_COLUMNS, "_score"], full_text_query=_WORD, limit=10),
        lambda ours, raw, _: pa.ipc.open_file(ours.data).read_all().num_rows == raw.num_rows == 10,
    ),
    "drop index": Both(
        _ours("drop_table_index", index_name="by_id"), lambda ds: ds.drop_index("by_id")
    ),
    "list versions": Both(
        _ours("list_table_versions"),
        lambda ds: ds.versions(),
        lambda ours, raw, _: [e.version for e in ours.versions] == [e["version"] for e in raw],
    ),
    "describe version": Both(
        _ours("describe_table_version", version=2),
        lambda ds: ds,
        lambda ours, raw, _: bool(ours.version.version == raw.version),
        version=2,
    ),
    "restore": Both(
        _restore,
        lambda ds: ds.restore(),
        lambda ours, _, ds: bool(ours.transaction_id and ds.count_rows() == TABLE_ROWS + _FEW),
        version=2,
    ),
    "table statistics": Both(
        _ours("get_table_stats"),
        lambda ds: (ds.stats.dataset_stats(), ds.stats.data_stats()),
        lambda ours, raw, _: bool(ours.fragment_stats.num_fragments == raw[0]["num_fragments"]),
    ),
    "transaction, by version": Both(
        lambda pair: _transaction(pair, "2"),
        lambda ds: ds.read_transaction(2),
        lambda ours, raw, _: bool(ours.status == "Succeeded" and raw.read_version == 1),
    ),
    "transaction, by id": Both(
        lambda pair: _transaction(pair, pair.restored_by),
        lambda ds: ds.read_transaction(ds.version),
        lambda ours, raw, _: bool(ours.status == "Succeeded" and raw is not None),
    ),
    "create tag": Both(
        _ours("create_table_tag", tag="first", version=1),
        lambda ds: ds.tags.create("first", 1),
    ),
    "get tag": Both(
        _ours("get_table_tag_version", tag="first"),
        lambda ds: ds.tags.get_version("first"),
        _equal("version"),
    ),
    "list tags": Both(
        _ours("list_table_tags"),
        lambda ds: ds.tags.list(),
        lambda ours, raw, _: list(ours.tags) == list(raw) == ["first"],
    ),
    "update tag": Both(
        _ours("update_table_tag", tag="first", version=2),
        lambda ds: ds.tags.update("first", 2),
    ),
    "delete tag": Both(_ours("delete_table_tag", tag="first"), lambda ds: ds.tags.delete("first")),
    "create branch": Both(
        _ours("create_table_branch", name="draft"),
        lambda ds: ds.create_branch("draft", ds.version),
    ),
    "list branches": Both(
        _ours("list_table_branches"),
        lambda ds: ds.branches.list(),
        lambda ours, raw, _: list(ours.branches) == list(raw) == ["draft"],
    ),
    "delete branch": Both(
        _ours("delete_table_branch", name="draft"), lambda ds: ds.branches.delete("draft")
    ),
    "insert, overwrite": Both(
        _ours("insert_into_table", _stream(TABLE_ROWS), mode="Overwrite"),
        lambda ds: ds.insert(_reader(TABLE_ROWS), mode="overwrite"),
        _same_version,
    ),
}
"""What is measured after the tables are created, in a possible order."""
