"""Indices with their options, and searches, as LanceDB's client sends them."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import lance_namespace as api
import lancedb
import pyarrow as pa
import pytest
from lancedb import index, query
from lancedb.remote.errors import RetryError
from server.lancedb_clients.trials import rows
from server.serving import serving_namespace

import lance_bridge
from lance_bridge_federated import FederatedNamespace
from lance_bridge_hive import HiveNamespace

pytestmark = [
    pytest.mark.servers,
    pytest.mark.filterwarnings("ignore"),
    pytest.mark.spec("server.md#lancedb", "server.md#what-is-refused"),
]

COUNT = 400
NEAR_7 = [7.0, 1.0, 0.0, 0.0]
Table = Any


@pytest.fixture(scope="module")
def table(url: str, hive: HiveNamespace) -> Table:
    hive.create_namespace(api.CreateNamespaceRequest(id=["searched"]))
    ids = range(COUNT)
    data = {
        "id": pa.array(ids, pa.int64()),
        "title": [f"film number{i}" for i in ids],
        "even": [i % 2 == 0 for i in ids],
        "tags": [["a", "b"]] * COUNT,
        "vector": pa.array([[float(i), 1.0, 0, 0] for i in ids], pa.list_(pa.float32(), 4)),
    }
    db = lancedb.connect("db://searched", api_key="k", host_override=url)
    table = db.create_table("t", pa.table(data))
    table.create_index("title", config=index.FTS(with_position=True))
    return table


INDICES: dict[str, tuple[str, Any]] = {
    "IVF_FLAT": ("vector", index.IvfFlat(num_partitions=2, distance_type="cosine")),
    "IVF_PQ": ("vector", index.IvfPq(num_partitions=2, num_sub_vectors=2, distance_type="dot")),
    "IVF_SQ": ("vector", index.IvfSq(num_partitions=2, distance_type="cosine")),
    "IVF_HNSW_SQ": ("vector", index.HnswSq(num_partitions=1, distance_type="cosine")),
    "IVF_HNSW_FLAT": ("vector", index.HnswFlat(num_partitions=1, distance_type="cosine")),
    "BTREE": ("id", index.BTree()),
    "BITMAP": ("id", index.Bitmap()),
    "LABEL_LIST": ("tags", index.LabelList()),
}


@pytest.mark.parametrize("name", INDICES)
def test_an_index_has_the_type_and_the_distance_that_were_asked_for(
    table: Table, name: str
) -> None:
    column, config = INDICES[name]
    table.create_index(column, config=config, name="tried")
    stats = table.index_stats("tried")
    table.drop_index("tried")
    assert stats.index_type == name
    assert stats.distance_type == getattr(config, "distance_type", None)


def test_an_option_that_the_specification_lacks_is_refused(table: Table) -> None:
    config = index.FTS(base_tokenizer="ngram", ngram_min_length=2)
    with pytest.raises(Exception, match="min_ngram_length is not supported"):
        table.create_index("title", config=config, name="tried")


_MATCH = query.MatchQuery("number7", "title")
TEXTS: dict[str, Any] = {
    "words": "number7",
    "match": _MATCH,
    "fuzzy": query.MatchQuery("numbr7", "title", fuzziness=1),
    "phrase": query.PhraseQuery("film number7", "title"),
    "columns": query.MultiMatchQuery("number7", ["title"]),
    "boost": query.BoostQuery(_MATCH, query.MatchQuery("number8", "title")),
    "boolean": query.BooleanQuery(
        [(query.Occur.MUST, query.MultiMatchQuery("number7", ["title"]))]
    ),
}


@pytest.mark.parametrize("name", TEXTS)
def test_full_text_queries_find_the_row(table: Table, name: str) -> None:
    found = table.search(TEXTS[name], query_type="fts").limit(1).to_list()
    assert [row["id"] for row in found] == [7]


def _vectors(table: Table) -> Any:
    return table.search(NEAR_7)


SEARCHES: dict[str, tuple[Callable[[Table], Any], list[int]]] = {
    "vector": (_vectors, [7]),
    "filtered before": (lambda t: _vectors(t).where("id > 8", prefilter=True), [9]),
    "filtered after": (lambda t: _vectors(t).where("id > 8", prefilter=False), []),
    "by cosine": (lambda t: t.search([0.0, 1, 0, 0]).distance_type("cosine"), [0]),
    "without the index": (lambda t: _vectors(t).bypass_vector_index(), [7]),
    "with options": (
        lambda t: _vectors(t).nprobes(4).refine_factor(2).ef(10).distance_range(0, 5),
        [7],
    ),
    "from an offset": (lambda t: _vectors(t).where("id <= 7").offset(1), [6]),
    "hybrid": (lambda t: t.search(query_type="hybrid").vector(NEAR_7).text("number7"), [7]),
}


@pytest.mark.parametrize("name", SEARCHES)
def test_searches_find_the_row(table: Table, name: str) -> None:
    search, ids = SEARCHES[name]
    assert [row["id"] for row in search(table).limit(1).to_list()] == ids


ORDER = [{"column_name": "even"}, {"column_name": "id", "ascending": False, "nulls_first": True}]


@pytest.mark.spec("server.md#sorting-and-replacing-indices")
def test_rows_come_in_the_order_that_is_asked_for(table: Table) -> None:
    first = table.search().order_by(ORDER).where("id < 10").select(["id"]).limit(6).to_list()
    assert [row["id"] for row in first] == [9, 7, 5, 3, 1, 8]
    found = _vectors(table).order_by(ORDER).limit(3).to_list()
    assert [row["id"] for row in found] == [7, 8, 6]
    assert "SortExec" in table.search().order_by(ORDER).explain_plan()
    assert "SortExec" in table.search().order_by(ORDER).analyze_plan()


@pytest.mark.spec("server.md#sorting-and-replacing-indices")
def test_an_index_is_replaced_unless_the_client_says_no(table: Table) -> None:
    for config in (index.Bitmap(), index.BTree()):
        table.create_index("id", config=config)
        assert table.index_stats("id_idx").index_type == type(config).__name__.upper()
    with pytest.raises(Exception, match="already has an index 'id_idx'"):
        table.create_index("id", config=index.Bitmap(), replace=False)
    with pytest.raises(Exception, match="already has an index 'id_idx'"):
        table.create_index("tags", config=index.LabelList(), name="id_idx")
    assert table.index_stats("id_idx").index_type == "BTREE"
    table.drop_index("id_idx")


def test_several_vectors_are_one_request(table: Table) -> None:
    found = table.search([NEAR_7, [9.0, 1, 0, 0]]).limit(1).to_list()
    assert sorted((row["query_index"], row["id"]) for row in found) == [(0, 7), (1, 9)]


def test_unindexed_rows_are_left_out_of_a_fast_search(table: Table) -> None:
    table.create_index("vector", config=index.IvfFlat(num_partitions=1), name="fast")
    table.add([{"id": COUNT, "title": "x", "even": True, "tags": [], "vector": [-50.0, 0, 0, 0]}])
    near = [-50.0, 0.0, 0.0, 0.0]
    assert table.search(near).limit(1).to_list()[0]["id"] == COUNT
    assert table.search(near).fast_search().limit(1).to_list()[0]["id"] == 0


def test_all_rows_of_a_directorys_table_are_returned_without_a_limit(tmp_path: Path) -> None:
    lake = FederatedNamespace({"lake": lance_bridge.connect("dir", {"root": str(tmp_path)})})

    async def read(**options: str) -> list[Any]:
        db = await lancedb.connect_async("db://lake", **options)
        found: list[Any] = await (await db.open_table("t")).query().where("id > 1").to_list()
        return found

    with serving_namespace(lake) as url:
        options = {"api_key": "k", "host_override": url}
        table = lancedb.connect("db://lake", **options).create_table(
            "t", [{"id": each} for each in range(20)]
        )
        assert len(table.search().where("id > 1").to_list()) == 18
        assert len(asyncio.run(read(**options))) == 18


# -- caches ----------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def indexed(url: str, hive: HiveNamespace) -> Any:
    """A table with an index of its ids."""
    hive.create_namespace(api.CreateNamespaceRequest(id=["prewarmed"]))
    once = {"retry_config": {"retries": 0}}
    options: Any = {"host_override": url, "client_config": once}
    db = lancedb.connect("db://prewarmed", api_key="k", **options)
    made = db.create_table("t", rows(400))
    made.create_index("id", config=index.BTree())
    return made


@pytest.fixture
def directory(indexed: Any, hive: HiveNamespace) -> Path:  # noqa: ARG001 - it must exist
    found = hive.describe_table(api.DescribeTableRequest(id=["prewarmed", "t"])).location
    assert found is not None
    return Path(found.removeprefix("file:"))


@pytest.mark.parametrize("part", ["_indices", "data"])
def test_each_request_reads_the_files_again(indexed: Any, directory: Path, part: str) -> None:
    query = indexed.search().where("id = 7").select(["title"])
    assert "ScalarIndexQuery" in query.explain_plan()
    assert query.to_list() == [{"title": "film number7"}]
    files, elsewhere = directory / part, directory / f"{part}-elsewhere"
    files.rename(elsewhere)
    try:
        with pytest.raises(RetryError) as caught:
            query.to_list()
        assert re.search(rf"Not found: \S+/t\.lance/{part}/", str(caught.value.__cause__))
    finally:
        elsewhere.rename(files)
    assert query.to_list() == [{"title": "film number7"}]
