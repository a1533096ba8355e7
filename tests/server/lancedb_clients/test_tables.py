"""Databases, schemas, indices and searches, as LanceDB's client sees them through a gateway."""

from __future__ import annotations

import asyncio
import base64
import datetime
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import lance
import lance_namespace as api
import lancedb
import numpy as np
import pyarrow as pa
import pytest
from lance_namespace.errors import InvalidInputError, UnsupportedOperationError
from lancedb import index, query
from lancedb.remote.errors import HttpError
from server.gateways import serve_namespace
from server.lancedb_clients.test_operations import SPEC
from server.lancedb_clients.trials import rows
from starlette.requests import HTTPConnection

import lance_bridge
from lance_bridge_federated import FederatedNamespace
from lance_bridge_hive import HiveNamespace
from lance_bridge_server.lancedb import DatabasePaths, database_of, pages_by_name, translate_request
from lance_bridge_server.lancedb.requests import new_columns
from lance_bridge_server.lancedb.type_names import type_from_json
from lance_bridge_server.queries import calling

pytestmark = [
    pytest.mark.servers,
    pytest.mark.filterwarnings("ignore"),
    pytest.mark.spec(
        "server.md#databases", "server.md#lancedb", "server.md#schemas", "server.md#what-is-refused"
    ),
]

COUNT = 400
NEAR_7 = [7.0, 1.0, 0.0, 0.0]
Table = Any
UNITS = ("s", "ms", "us", "ns")
TYPES: dict[str, pa.DataType] = {
    **{str(each): each for each in (
        pa.null(), pa.bool_(), pa.int8(), pa.int16(), pa.int32(), pa.int64(), pa.uint8(),
        pa.uint16(), pa.uint32(), pa.uint64(), pa.float16(), pa.float32(), pa.float64(),
        pa.string(), pa.large_string(), pa.binary(), pa.large_binary(), pa.binary(4),
        pa.date32(), pa.date64(), pa.decimal128(10, 2), pa.decimal128(38, -2),
        pa.decimal256(60, 5), pa.time32("s"), pa.time32("ms"), pa.time64("us"), pa.time64("ns"),
    )},
    **{f"timestamp {unit}": pa.timestamp(unit) for unit in UNITS},
    **{f"timestamp {unit} with zone": pa.timestamp(unit, "Europe/Paris") for unit in UNITS},
    **{f"duration {unit}": pa.duration(unit) for unit in UNITS},
    "offset": pa.timestamp("us", "+02:00"),
    "dictionary": pa.dictionary(pa.int8(), pa.string()),
    "large dictionary": pa.dictionary(pa.uint32(), pa.large_string()),
    "list": pa.list_(pa.timestamp("ms", "UTC")),
    "large list": pa.large_list(pa.field("element", pa.time32("s"), nullable=False)),
    "vector": pa.list_(pa.float32(), 4),
    "vector of halves": pa.list_(pa.float16(), 4),
    "struct": pa.struct([pa.field("a", pa.decimal128(9, 3)),
                         pa.field("b", pa.list_(pa.struct([("c", pa.timestamp("ns", "UTC"))])))]),
}  # fmt: skip


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


def test_an_option_of_source_code_is_refused() -> None:
    body = {"index_type": "FTS", "column": "c", "split_identifiers": True}
    with pytest.raises(UnsupportedOperationError, match="split_identifiers is not supported"):
        translate_request("create_table_index", body)


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

    with serve_namespace(lake) as url:
        options = {"api_key": "k", "host_override": url}
        table = lancedb.connect("db://lake", **options).create_table(
            "t", [{"id": each} for each in range(20)]
        )
        assert len(table.search().where("id > 1").to_list()) == 18
        assert len(asyncio.run(read(**options))) == 18


LARGE = pa.table({"id": range(500_000), "r": np.random.default_rng(7).random(500_000)})
"""Rows of 8 MB: small ones are bytes for every catalog."""


@pytest.mark.spec("server.md#requests")
@pytest.mark.parametrize("is_root", [True, False])
def test_large_rows_are_written_to_a_directory(tmp_path: Path, *, is_root: bool) -> None:
    """The namespace of a directory takes rows as bytes, and not as a file that is received."""
    lake = lance_bridge.connect("dir", {"root": str(tmp_path)})
    served = lake if is_root else FederatedNamespace({"lake": lake})
    if is_root:
        lake.create_namespace(api.CreateNamespaceRequest(id=["lake"]))
    with serve_namespace(served) as url:
        db = lancedb.connect("db://lake", api_key="k", host_override=url)
        table = db.create_table("t", LARGE)
        assert table.count_rows() == LARGE.num_rows
        table.add(LARGE)
        table.merge_insert("id").when_matched_update_all().execute(LARGE.slice(0, 300_000))
        assert table.count_rows() == 2 * LARGE.num_rows
        rest = lance_bridge.connect("rest", {"uri": url})
        made = lance.write_dataset(LARGE, namespace_client=rest, table_id=["lake", "p"])
        assert made.to_table().equals(LARGE)


@pytest.mark.spec("server.md#requests")
def test_more_rows_than_a_server_holds_are_refused_only_by_what_holds_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(calling, "_MOST_BYTES", 4 << 20)
    lake = FederatedNamespace({"lake": lance_bridge.connect("dir", {"root": str(tmp_path)})})
    with serve_namespace(lake) as url:
        db = lancedb.connect("db://lake", api_key="k", host_override=url)
        table = db.create_table("t", LARGE)
        table.add(LARGE)
        merge = table.merge_insert("id").when_matched_update_all()
        with pytest.raises(HttpError, match="at most 4 MiB of rows at once"):
            merge.execute(LARGE)
        merge.execute(LARGE.slice(0, 100_000))
        assert table.count_rows() == 2 * LARGE.num_rows


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
        with pytest.raises(HttpError, match=rf"the file \S+/t\.lance/{part}/\S+ is missing"):
            query.to_list()
    finally:
        elsewhere.rename(files)
    assert query.to_list() == [{"title": "film number7"}]


# -- databases -------------------------------------------------------------------------------------


def _make(hive: HiveNamespace, name: str, *tables: str) -> None:
    hive.create_namespace(api.CreateNamespaceRequest(id=[name]))
    for table in tables:
        hive.declare_table(api.DeclareTableRequest(id=[name, table]))


@pytest.mark.parametrize("name", ["", ".", "a..b", ".a", "a."])
def test_an_empty_name_in_a_database_is_refused(name: str) -> None:
    with pytest.raises(InvalidInputError, match="empty name"):
        DatabasePaths()(name)


def test_the_path_after_the_database_is_below_it() -> None:
    headers = {"x-lancedb-database": "prod", "x-lancedb-database-prefix": "films/old"}
    assert database_of(_request(headers), DatabasePaths()) == ["prod", "films", "old"]
    headers["x-lancedb-database-prefix"] = "films//old"
    with pytest.raises(InvalidInputError, match="empty name"):
        database_of(_request(headers), DatabasePaths())
    assert database_of(_request({}), DatabasePaths()) is None


def _request(headers: dict[str, str]) -> HTTPConnection:
    raw = [(name.encode(), value.encode()) for name, value in headers.items()]
    return HTTPConnection({"type": "http", "headers": raw, "query_string": b""})


def test_pages_by_name_read_all_pages_of_the_namespace() -> None:
    def list_page(request: api.ListTablesRequest) -> api.ListTablesResponse:
        assert request.limit is None
        pages = {None: (["d", "b"], "2"), "2": (["a"], "3"), "3": (["c"], None)}
        names, token = pages[request.page_token]
        return api.ListTablesResponse(tables=names, page_token=token)

    page = pages_by_name(list_page)
    with pytest.raises(InvalidInputError, match="limit must be 1 or more"):
        page(api.ListTablesRequest(limit=0))
    answer = page(api.ListTablesRequest(limit=2, page_token="a"))
    assert (answer.tables, answer.page_token) == (["b", "c"], "c")
    answer = page(api.ListTablesRequest(limit=2, page_token="c"))
    assert (answer.tables, answer.page_token) == (["d"], None)


def test_a_catalogs_databases_are_below_the_prefix(hive: HiveNamespace) -> None:
    with serve_namespace(
        FederatedNamespace({"prod": hive}), databases=DatabasePaths(prefix=["prod"])
    ) as url:
        catalog = lancedb.connect_catalog(url, api_key="k")
        catalog.create_database("prefixed").create_table("t", rows(3))
        assert hive.list_tables(api.ListTablesRequest(id=["prefixed"])).tables == ["t"]
        assert "prefixed" in catalog.list_databases().databases
        db = lancedb.connect("db://prefixed", api_key="k", host_override=url)
        assert db.open_table("t").count_rows() == 3
        db.drop_table("t")
        catalog.drop_database("prefixed")
    assert "prefixed" not in hive.list_namespaces(api.ListNamespacesRequest(id=[])).namespaces


def test_a_namespace_client_of_lancedb_speaks_the_specification(
    hive: HiveNamespace, url: str
) -> None:
    _make(hive, "spoken")
    db = lancedb.connect("db://spoken", api_key="k", host_override=url)
    db.create_table("t", rows(1))
    client = db.namespace_client()
    request = api.DescribeTableRequest(id=["t"], load_detailed_metadata=True)
    described = client.describe_table(request)
    assert [each.type.type for each in described.var_schema.fields[:2]] == ["int64", "utf8"]
    assert client.list_all_tables(api.ListTablesRequest()).tables == ["t"]


def test_a_declared_table_says_that_it_has_no_data(hive: HiveNamespace, url: str) -> None:
    _make(hive, "declared", "t")
    db = lancedb.connect("db://declared", api_key="k", host_override=url)
    with pytest.raises(Exception, match="declared, but has no data yet"):
        db.open_table("t")
    assert db.create_table("t", rows(2)).count_rows() == 2


@pytest.mark.spec("server.md#lancedb")
def test_the_lines_for_python_run(url: str, capsys: pytest.CaptureFixture[str]) -> None:
    [lines] = re.findall(r"```python\n(.*?)```", SPEC.read_text(encoding="utf-8"), re.DOTALL)
    exec(lines.replace("https://gateway.example.com", url).replace("…", "k"), {})
    assert "Alien" in capsys.readouterr().out


# -- schemas ---------------------------------------------------------------------------------------


@pytest.fixture
def db(url: str, hive: HiveNamespace, request: pytest.FixtureRequest) -> Any:
    name = f"schema_{abs(hash(request.node.name)):x}"
    hive.create_namespace(api.CreateNamespaceRequest(id=[name]))
    return lancedb.connect(f"db://{name}", api_key="k", host_override=url)


def test_every_type_comes_back_whole(db: Any) -> None:
    schema = pa.schema(
        [
            pa.field(f"c{i}", kind, metadata={"number": str(i)})
            for i, kind in enumerate(TYPES.values())
        ],
        metadata={"owner": "films"},
    )
    assert db.create_table("t", schema.empty_table()).schema.equals(schema, check_metadata=True)


def test_a_column_of_blobs_is_of_bytes(db: Any, hive: HiveNamespace) -> None:
    field = pa.field("film", pa.large_binary(), metadata={"lance-encoding:blob": "true"})
    data = pa.table({"film": pa.array([b"x"], field.type)}, pa.schema([field]))
    name = db.db_name
    lance.write_dataset(
        data, namespace_client=hive, table_id=[name, "t"], data_storage_version="2.1"
    )
    assert db.open_table("t").schema.field("film").equals(field, check_metadata=True)


def test_the_schema_is_that_of_the_version(db: Any) -> None:
    table = db.create_table("t", pa.table({"id": [1]}))
    table.add_columns({"at": "arrow_cast(NULL, 'Timestamp(Second, None)')"})
    assert table.schema.field("at").type == pa.timestamp("s")
    table.checkout(1)
    assert table.schema.names == ["id"]


def test_a_table_of_pylances_directory_has_its_schema(tmp_path: Path) -> None:
    """A directory that is no catalog of a federation responds to a query with a file of Arrow."""
    lake = lance_bridge.connect("dir", {"root": str(tmp_path)})
    lake.create_namespace(api.CreateNamespaceRequest(id=["lake"]))
    kinds = (pa.timestamp("ms", "UTC"), pa.decimal128(10, 2), pa.duration("ns"))
    row = pa.table({str(kind): pa.array([None], kind) for kind in kinds})
    with serve_namespace(lake) as url:
        db = lancedb.connect("db://lake", api_key="k", host_override=url)
        assert db.create_table("t", row).schema == row.schema


def test_columns_of_nulls_are_added_by_their_schema(db: Any) -> None:
    table = db.create_table("t", pa.table({"id": [1]}))
    kinds = list(TYPES.values())
    fields = [pa.field(f"c{i}", kind) for i, kind in enumerate(kinds)]
    table.add_columns(pa.schema(fields))
    assert [table.schema.field(f"c{i}").type for i in range(len(kinds))] == kinds
    assert len(kinds) > 30


@pytest.mark.parametrize(
    ("field", "expression"),
    [
        (pa.field("s", pa.struct([("a", pa.int64())])), None),
        (pa.field("n", pa.int32(), metadata={"unit": "m"}), None),
        (pa.field("l", pa.list_(pa.binary(4))), None),
        (pa.field("d", pa.dictionary(pa.int8(), pa.binary(2))), None),
        (pa.field("n", pa.int32()), "arrow_cast(NULL, 'Int32')"),
        (pa.field("v", pa.list_(pa.float32(), 2)), "arrow_cast(NULL, 'FixedSizeList(2, Float32)')"),
    ],
    ids=str,
)
def test_other_catalogs_get_expressions_if_they_can_make_the_columns(
    field: pa.Field, expression: str | None
) -> None:
    fields = new_columns(pa.schema([field]).serialize().to_pybytes())
    assert [each["expression"] for each in fields["new_columns"]] == (
        [expression] if expression else []
    )
    schema = pa.ipc.read_schema(pa.py_buffer(base64.b64decode(fields["arrow_schema"])))
    assert schema.field(0).equals(field, check_metadata=True)


def test_a_body_that_is_no_schema_is_refused() -> None:
    with pytest.raises(InvalidInputError, match="not an Arrow schema"):
        new_columns(b"not a schema")


def test_a_column_is_changed_to_another_type(db: Any) -> None:
    at = datetime.datetime(2026, 1, 1)
    data = pa.table({"at": pa.array([at], pa.timestamp("s")), "n": pa.array([1], pa.int32())})
    table = db.create_table("t", data)
    table.alter_columns(
        {"path": "at", "data_type": pa.timestamp("ms")}, {"path": "n", "data_type": pa.int64()}
    )
    assert table.schema.types == [pa.timestamp("ms"), pa.int64()]


@pytest.mark.parametrize(
    ("lance", "specified"),
    [
        ({"type": "string"}, {"type": "utf8"}),
        ({"type": "timestamp:us:-"}, {"type": "timestamp[us]"}),
        ({"type": "timestamp:ns:+02:00"}, {"type": "timestamp[ns, tz=+02:00]"}),
        (
            {"type": "dict:string:int32:false"},
            {"type": "dictionary<values=utf8, indices=int32, ordered=0>"},
        ),
        (
            {"type": "dict:timestamp:us:-:uint8:false"},
            {"type": "dictionary<values=timestamp[us], indices=uint8, ordered=0>"},
        ),
        ({"type": "decimal:128:10:-2"}, {"type": "decimal128", "length": 9998}),
        (
            {"type": "list", "fields": [{"name": "i", "type": {"type": "float"}}]},
            {"type": "list", "fields": [{"name": "i", "type": {"type": "float32"}}]},
        ),
    ],
)
def test_a_type_of_lance_becomes_that_of_the_specification(
    lance: dict[str, Any], specified: dict[str, Any]
) -> None:
    assert type_from_json(lance) == specified
