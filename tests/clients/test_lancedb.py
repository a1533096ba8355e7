"""LanceDB, unmodified: every method of its connection and table, and managed tables."""

from __future__ import annotations

import json
import re
import uuid
from datetime import timedelta
from pathlib import Path
from typing import Any

import lance
import lance_namespace as api
import lancedb
import lancedb.index
import pyarrow as pa
import pytest
from lance_namespace.errors import NamespaceNotEmptyError, TableNotFoundError
from lancedb._lancedb import LsmWriteSpec
from lancedb.index import FTS
from lancedb.rerankers import RRFReranker

import lance_bridge_hive
from lance_bridge.managed.out_of_band import OutOfBand

from .catalogs import VECTOR, Backend, Database, ids_of, rows
from .test_lancedb_async import asynchronous

pytestmark = [
    pytest.mark.servers,
    pytest.mark.spec("clients.md#lancedb", "clients.md#the-connection", "clients.md#the-table"),
]

Connection = Any
SPEC = Path(__file__).parents[2] / "specs" / "clients.md"


@pytest.fixture
def db(on_hive: Database) -> Connection:
    """A connection by the catalog's name, as LanceDB's users make it."""
    return lancedb.connect_namespace(on_hive.impl, on_hive.properties)


@pytest.mark.spec("clients.md#the-table")
def test_a_connection_is_made_by_name_by_class_and_around_a_namespace(on_hive: Database) -> None:
    by_name = lancedb.connect_namespace("hive", on_hive.properties)
    by_class = lancedb.connect_namespace(on_hive.backend.class_path, on_hive.properties)
    with on_hive.backend.connect() as namespace:
        around = lancedb.LanceNamespaceDBConnection(namespace)
        by_name.create_table("t", rows(3), namespace_path=on_hive.path)
        for connection in (by_class, around):
            assert connection.open_table("t", namespace_path=on_hive.path).count_rows() == 3
        assert around.namespace_client() is namespace
    assert isinstance(by_name.namespace_client(), lance_bridge_hive.HiveNamespace)
    assert by_name.uri == "namespace://hive"


def test_a_connection_is_made_again_from_its_text(db: Connection, on_hive: Database) -> None:
    text = json.loads(db.serialize())
    again = lancedb.connect_namespace(
        text["namespace_client_impl"], text["namespace_client_properties"]
    )
    assert again.namespace_exists(on_hive.path)


def test_namespaces_are_created_described_listed_and_dropped(
    db: Connection, on_hive: Database
) -> None:
    path = [f"{on_hive.path[-1]}_more"]
    assert not db.namespace_exists(path)
    db.create_namespace(path, properties={"owner_team": "films"})
    assert db.namespace_exists(path)
    assert db.describe_namespace(path).properties["owner_team"] == "films"
    db.create_namespace(path, mode="exist_ok")
    with pytest.raises(RuntimeError, match="Namespace already exists: "):
        db.create_namespace(path)
    found: list[str] = []
    token = None
    while token or not found:
        page = db.list_namespaces(page_token=token, limit=1)
        assert len(page.namespaces) <= 1
        found += page.namespaces
        token = page.page_token
    assert {on_hive.path[-1], path[-1]} <= set(found)
    assert found == db.list_namespaces().namespaces
    db.drop_namespace(path)
    assert not db.namespace_exists(path)
    with pytest.raises(RuntimeError, match="Namespace not found: "):
        db.drop_namespace(path)
    db.drop_namespace(path, mode="skip")


def test_a_namespace_with_tables_is_dropped_by_cascade_only(
    db: Connection, on_hive: Database
) -> None:
    db.create_table("t", rows(1), namespace_path=on_hive.path)
    with pytest.raises(NamespaceNotEmptyError):
        db.drop_namespace(on_hive.path)
    assert db.open_table("t", namespace_path=on_hive.path).count_rows() == 1
    db.drop_namespace(on_hive.path, behavior="cascade")
    assert not db.namespace_exists(on_hive.path)


@pytest.mark.spec("clients.md#lancedb", "clients.md#the-table")
def test_a_table_is_created_in_every_mode(db: Connection, on_hive: Database) -> None:
    path = {"namespace_path": on_hive.path}
    assert db.create_table("t", rows(3), **path).count_rows() == 3
    with pytest.raises(RuntimeError, match="Table already exists: "):
        db.create_table("t", rows(5), **path)
    assert db.create_table("t", rows(5), exist_ok=True, **path).count_rows() == 3
    assert db.create_table("t", rows(5), mode="overwrite", **path).count_rows() == 5
    empty = db.create_table("empty", schema=rows(1).schema, **path)
    assert (empty.count_rows(), empty.schema) == (0, rows(1).schema)
    from_rows = db.create_table("plain", [{"id": 1, "vector": [0.0, 1.0]}], **path)
    assert from_rows.search([0.0, 1.0]).to_list()[0]["id"] == 1


@pytest.mark.spec("clients.md#lancedb")
def test_a_missing_table_is_lancedbs_own_error(db: Connection, on_hive: Database) -> None:
    with pytest.raises(TableNotFoundError, match="Table not found: "):
        db.open_table("missing", namespace_path=on_hive.path)
    with pytest.raises(RuntimeError, match="Table not found: "):
        db.drop_table("missing", namespace_path=on_hive.path)
    with pytest.raises(RuntimeError, match="Namespace not found: "):
        db.open_table("t", namespace_path=["missing"])


def test_tables_are_listed_renamed_and_dropped(db: Connection, on_hive: Database) -> None:
    path = on_hive.path
    for name in ("a", "b", "c", "d"):
        db.create_table(name, rows(2), namespace_path=path)
    first = db.list_tables(path, limit=3)
    rest = db.list_tables(path, page_token=first.page_token, limit=3)
    assert (first.tables, rest.tables, rest.page_token) == (["a", "b", "c"], ["d"], None)
    with pytest.warns(DeprecationWarning, match="list_tables"):
        assert list(db.table_names(namespace_path=path)) == ["a", "b", "c", "d"]
    db.rename_table("a", "z", cur_namespace_path=path, new_namespace_path=path)
    db.rename_table("b", "y", cur_namespace_path=path)
    assert db.table_exists([*path, "z"])
    assert not db.table_exists([*path, "a"])
    assert db.open_table("z", namespace_path=path).count_rows() == 2
    db.drop_table("z", namespace_path=path)
    db.drop_table_async("y", namespace_path=path).wait()
    assert db.list_tables(path).tables == ["c", "d"]
    db.drop_all_tables(namespace_path=path)
    assert db.list_tables(path).tables == []


@pytest.mark.spec("clients.md#lancedb")
def test_one_name_is_a_table_of_the_default_namespace(on_hive: Database) -> None:
    [name] = on_hive.path
    db = lancedb.connect_namespace("hive", {**on_hive.properties, "default-namespace": name})
    assert db.create_table("films", rows(3)).count_rows() == 3
    assert db.open_table("films").count_rows() == 3
    assert db["films"].search([0.0] * 8).limit(1).to_list()[0]["id"] == 0
    assert db.list_tables().tables == ["films"]
    assert db.table_exists([name, "films"])
    db.rename_table("films", "movies")
    with pytest.raises(TableNotFoundError, match="Table not found: films"):
        db.open_table("films")
    db.drop_table("movies")
    assert db.list_tables(on_hive.path).tables == []


@pytest.mark.spec("clients.md#the-table")
def test_materialized_views_are_tables_of_the_default_namespace(on_hive: Database) -> None:
    [name] = on_hive.path
    db = lancedb.connect_namespace("hive", {**on_hive.properties, "default-namespace": name})
    options = {"new_table_enable_stable_row_ids": "true"}
    source = db.create_table("films", rows(4), storage_options=options)
    view = db.create_materialized_view("late", "films", where="id > 1", select=["id"])
    assert view.table.count_rows() == 2
    source.add(rows(2, 4))
    view.refresh()
    assert db.open_materialized_view("late").table.count_rows() == 4
    db.create_materialized_view_async("early", "films", where="id < 2").wait()
    assert sorted(db.list_materialized_views()) == ["early", "late"]
    db.drop_materialized_view("late")
    db.drop_materialized_view_async("early").wait()
    assert db.list_tables().tables == ["films"]


def test_what_lancedb_keeps_for_its_cloud_it_refuses_before_any_call(db: Connection) -> None:
    refused: dict[tuple[Any, ...], list[str]] = {
        (): ["drop_database", "list_functions", "list_jobs", "list_secrets", "list_views"],
        (None,): ["create_function", "create_function_async"],
        (uuid.uuid4(),): ["describe_query"],
        ("job",): ["cancel_job", "open_job", "pause_job", "resume_job"],
        ("secret",): ["describe_secret", "drop_secret"],
        ("secret", "value"): ["alter_secret", "create_secret"],
        ("view",): ["describe_view", "drop_view", "drop_view_async"],
        ("view", "SELECT 1"): ["create_view"],
        ("SELECT 1",): ["execute_query", "execute_query_async"],
    }
    for arguments, names in refused.items():
        for name in names:
            with pytest.raises(NotImplementedError):
                getattr(db, name)(*arguments)
    for name in ("get_function", "drop_function", "drop_function_async"):
        with pytest.raises(NotImplementedError):
            getattr(db, name)("f", version="1")


def test_the_lines_to_paste_run(hive: Backend) -> None:
    section = SPEC.read_text(encoding="utf-8").partition("\n## LanceDB\n")[2].partition("\n## ")[0]
    [snippet] = re.findall(r"```python\n(.*?)```", section, re.DOTALL)
    known: dict[str, Any] = {}
    exec(snippet.replace("thrift://metastore:9083", hive.properties["uri"]), known)
    found = known["table"].search([1.0, 0.0]).limit(1).to_list()
    assert [row["title"] for row in found] == ["M"]
    known["db"].drop_namespace(["films"], behavior="cascade")


# -- on each catalog -------------------------------------------------------------------------------


def test_the_main_path_works_on_every_catalog(database: Database) -> None:
    path = {"namespace_path": database.path}
    db = lancedb.connect_namespace(database.impl, database.properties)
    table = db.create_table("t", rows(20), **path)
    with pytest.raises(RuntimeError, match="Table already exists: "):
        db.create_table("t", rows(1), **path)
    with pytest.raises(TableNotFoundError):
        db.open_table("missing", **path)
    table.add(rows(10, 20))
    upsert = table.merge_insert("id").when_not_matched_insert_all()
    assert upsert.execute(rows(2, 29)).num_inserted_rows == 1
    table.delete("id = 30")
    table.create_index("text", config=FTS())
    hybrid = table.search(query_type="hybrid").vector(VECTOR).text("number17")
    assert {0, 17} <= set(ids_of(hybrid.rerank(RRFReranker()).limit(3).to_list()))
    table.tags.create("first", 1)
    table.checkout("first")
    assert table.count_rows() == 20
    table.restore()
    assert db.list_tables(database.path).tables == ["t"]
    db.rename_table("t", "u", cur_namespace_path=database.path)
    assert db.open_table("u", **path).count_rows() == 20
    db.drop_table("u", **path)
    assert not db.table_exists(database.id("u"))
    with pytest.raises(RuntimeError, match="Namespace already exists: "):
        db.create_namespace(database.path)
    db.drop_namespace(database.path)
    assert not db.namespace_exists(database.path)


PUSHED: dict[str, Any] = {"namespace_client_pushdown_operations": ["QueryTable"]}


def test_queries_are_run_by_the_catalog_where_asked(database: Database) -> None:
    db = lancedb.connect_namespace(database.impl, database.properties, **PUSHED)
    table = db.create_table("t", rows(30), namespace_path=database.path)
    table.create_index("text", config=FTS())
    assert table.to_arrow().num_rows == 30
    assert ids_of(table.search([7.0] * 8).limit(1).to_list()) == [7]
    assert ids_of(table.search().where("id < 3").to_list()) == [0, 1, 2]
    assert ids_of(table.search("number12", query_type="fts").to_list()) == [12]
    hybrid = table.search(query_type="hybrid").vector(VECTOR).text("number12")
    assert {0, 12} <= set(ids_of(hybrid.rerank(RRFReranker()).limit(3).to_list()))


@asynchronous
async def test_asynchronous_queries_are_run_by_the_catalog_where_asked(on_hive: Database) -> None:
    db = lancedb.connect_namespace_async("hive", on_hive.properties, **PUSHED)
    table = await db.create_table("t", rows(30), namespace_path=on_hive.path)
    await table.create_index("text", config=FTS())
    assert ids_of(await table.vector_search([7.0] * 8).limit(1).to_list()) == [7]
    assert ids_of(await table.query().where("id < 2").to_list()) == [0, 1]
    search = await table.search("number12", query_type="fts")
    assert ids_of(await search.to_list()) == [12]


# -- managed tables --------------------------------------------------------------------------------


def describe(database: Database) -> tuple[int, OutOfBand, str]:
    """Return the catalog's latest version of `t`, what was written past it, and its location."""
    with database.backend.connect() as namespace:
        request = api.DescribeTableRequest(id=database.id("t"), load_detailed_metadata=True)
        table = namespace.describe_table(request)
        assert table.managed_versioning
        past = namespace.list_out_of_band_versions(database.id("t"))
        return table.version or 0, past, table.location or ""


@pytest.mark.spec("clients.md#which-writers-commit-through-the-catalog")
def test_lancedbs_commits_to_a_managed_table_go_through_the_catalog(managed: Database) -> None:
    db = lancedb.connect_namespace(managed.impl, managed.properties)
    table = db.create_table("t", rows(30), namespace_path=managed.path)
    table.add(rows(5, 30))
    table.update(where="id = 1", values={"color": "purple"})
    table.delete("id = 2")
    table.merge_insert("id").when_not_matched_insert_all().execute(rows(3, 33))
    table.create_index("text", config=FTS())
    table.add_columns({"twice": "id * 2"})
    table.restore(table.version - 1)
    table.optimize()
    version, past, _ = describe(managed)
    assert (version, past) == (table.version, OutOfBand((), ()))
    with managed.backend.connect() as namespace:
        assert namespace.count_table_rows(api.CountTableRowsRequest(id=managed.id("t"))).count == 35
    with pytest.raises(RuntimeError, match="managed by its catalog"):
        table.branches.create("dev")


def test_a_write_past_the_catalog_is_not_seen_and_loses_no_commit(managed: Database) -> None:
    db = lancedb.connect_namespace(managed.impl, managed.properties)
    table = db.create_table("t", rows(3), namespace_path=managed.path)
    _, _, location = describe(managed)
    lance.write_dataset(rows(1, 1000), location, mode="append")
    with pytest.raises(RuntimeError, match="unknown"):
        table.add(rows(1, 100))
    assert db.open_table("t", namespace_path=managed.path).count_rows() == 3
    table.add(rows(1, 101))
    opened = db.open_table("t", namespace_path=managed.path)
    assert sorted(ids_of(opened.to_arrow().to_pylist())) == [0, 1, 2, 101]
    version, past, _ = describe(managed)
    assert (version, past.versions) == (opened.version, ())


COUNT = 300
Table = Any


@pytest.fixture
def table(db: Any, on_hive: Database) -> Table:
    """A table with rows 0 to 299."""
    return db.create_table("t", rows(COUNT), namespace_path=on_hive.path)


def test_a_table_says_what_it_is(table: Table, on_hive: Database) -> None:
    assert table.name == "t"
    assert table.namespace == on_hive.path
    assert table.id == "$".join(on_hive.id("t"))
    assert table.uri.endswith("/t.lance")
    assert table.version == 1
    assert table.schema == rows(1).schema
    assert table.embedding_functions == {}
    assert table.uses_v2_manifest_paths()
    assert table.latest_storage_options() == (table.initial_storage_options() or {})
    assert table.stats()["num_rows"] == COUNT


def test_a_table_is_read_as_arrow_pandas_and_a_dataset(table: Table) -> None:
    assert table.to_arrow() == rows(COUNT)
    assert len(table.to_pandas()) == COUNT
    assert table.to_lance().count_rows() == COUNT
    assert table.head(2).num_rows == 2
    assert table.count_rows("id < 5") == 5
    assert ids_of(table.take_offsets([1, 3]).to_list()) == [1, 3]
    assert ids_of(table.take_row_ids([2]).to_list()) == [2]


@pytest.mark.spec("clients.md#branches", "clients.md#tags")
def test_rows_are_added_merged_updated_and_deleted(table: Table) -> None:
    assert table.add(rows(2, COUNT)).version == 2
    assert table.update(where="id = 1", values={"color": "purple"}).rows_updated == 1
    assert table.update(where="id = 2", values_sql={"id": "id + 1000"}).rows_updated == 1
    assert table.delete("id = 3").num_deleted_rows == 1
    upsert = table.merge_insert("id").when_matched_update_all().when_not_matched_insert_all()
    done = upsert.execute(rows(3, COUNT + 1))
    assert (done.num_updated_rows, done.num_inserted_rows) == (1, 2)
    assert table.count_rows() == COUNT + 3
    assert table.search().where("color = 'purple'").to_list()[0]["id"] == 1
    assert table.add(rows(4), mode="overwrite").version == table.version
    assert table.count_rows() == 4


def test_vectors_are_found_by_every_index_of_vectors(table: Table) -> None:
    def nearest() -> list[int]:
        return ids_of(table.search([7.0] * 8).limit(1).to_list())

    assert nearest() == [7]
    for name in VECTOR_INDICES:
        config = getattr(lancedb.index, name)(num_partitions=1)
        table.create_index("vector", config=config, replace=True)
        [index] = table.list_indices()
        assert index.index_type.lower().endswith(name.lower().removeprefix("ivf"))
        found = table.search([7.0] * 8).limit(20).refine_factor(20).to_list()
        assert 7 in ids_of(found)
    table.create_index(num_partitions=1, num_sub_vectors=2)
    assert 7 in ids_of(table.search([7.0] * 8).limit(20).to_list())
    table.drop_index("vector_idx")
    assert list(table.list_indices()) == []


VECTOR_INDICES = (
    "HnswFlat", "HnswPq", "HnswSq", "IvfFlat", "IvfHnswFlat", "IvfHnswPq", "IvfHnswSq", "IvfPq",
    "IvfRq", "IvfSq",
)  # fmt: skip
SCALAR_INDICES = {"BTree": "id", "Bitmap": "color", "LabelList": "labels", "Fm": "text"}


def test_these_are_all_the_indices_that_lancedb_has() -> None:
    kinds = {*VECTOR_INDICES, *SCALAR_INDICES, "FTS"}
    assert kinds == set(lancedb.index.__all__) - {"IndexConfig"}


def test_scalar_indices_of_every_type_are_built_and_used(table: Table) -> None:
    for name, column in SCALAR_INDICES.items():
        table.create_index(column, config=getattr(lancedb.index, name)())
    table.create_scalar_index("id", index_type="BITMAP", name="id_bits")
    table.create_index_async("id", config=lancedb.index.BTree(), name="id_later").wait()
    types = {each.name: each.index_type for each in table.list_indices()}
    assert set(types.values()) == {*SCALAR_INDICES}
    assert {"id_bits", "id_later"} <= set(types)
    table.wait_for_index(["color_idx"], timedelta(seconds=10))
    assert table.index_stats("color_idx").num_indexed_rows == COUNT
    table.prewarm_index("color_idx")
    assert table.search().where("color = 'red'").to_arrow().num_rows == COUNT / 3
    with pytest.raises(NotImplementedError, match="remote tables"):
        table.prewarm_data()


def test_text_is_found_alone_and_with_vectors(table: Table) -> None:
    table.create_fts_index("text")
    [token, *_] = table.tokenize("Red cars", column="text")
    assert token.text == "red"
    assert table.infer_tokenizer_configs("default")
    found = table.search("number42", query_type="fts").limit(5).to_list()
    assert ids_of(found) == [42]
    hybrid = table.search(query_type="hybrid").vector(VECTOR).text("number42")
    best = hybrid.rerank(RRFReranker()).limit(3).to_list()
    assert {0, 42} <= set(ids_of(best))


def test_columns_are_added_changed_and_dropped(table: Table) -> None:
    table.add_columns({"twice": "id * 2"})
    table.add_columns(pa.field("note", pa.string()))
    table.add_columns(computed={"thrice": "id * 3"})
    assert table.refresh_column("thrice").rows_filled == COUNT
    table.add(rows(1, COUNT))
    table.refresh_column_async("thrice").wait()
    table.merge(pa.table({"id": [0, 1], "grade": ["a", "b"]}), "id")
    table.alter_columns({"path": "twice", "rename": "double"})
    table.drop_columns(["note"])
    last = table.search().where(f"id = {COUNT}").to_list()[0]
    assert last["thrice"] == 3 * COUNT
    assert table.search().where("id = 1").to_list()[0]["grade"] == "b"
    assert table.schema.names[5:] == ["double", "thrice", "grade"]
    table.replace_field_metadata("id", {"unit": "films"})
    table.update_field_metadata({"path": "color", "metadata": {"pii": "no"}})
    assert table.schema.field("id").metadata == {b"unit": b"films"}
    assert table.schema.field("color").metadata == {b"pii": b"no"}
    with pytest.raises(NotImplementedError, match="Cloud"):
        table.function_errors()


def test_a_table_with_computed_columns_leaves_no_file_when_it_is_dropped(
    table: Table, db: Any, on_hive: Database
) -> None:
    table.add_columns(computed={"thrice": "id * 3"})
    table.refresh_column("thrice")
    location = Path(table.uri)
    assert (location / "_computed").is_dir()
    db.drop_table("t", namespace_path=on_hive.path)
    assert not location.exists()


@pytest.mark.spec("clients.md#branches", "clients.md#tags")
def test_versions_and_tags_are_checked_out_and_restored(
    table: Table, db: Any, on_hive: Database
) -> None:
    table.delete("id >= 10")
    table.tags.create("all", 1)
    table.tags.update("all", 2)
    table.tags.update("all", 1)
    assert table.tags.list()["all"]["version"] == table.tags.get_version("all") == 1
    table.checkout("all")
    assert table.count_rows() == COUNT
    table.checkout_latest()
    assert table.count_rows() == 10
    table.tags.delete("all")
    assert [each["version"] for each in table.list_versions()] == [1, 2]
    assert db.open_table("t", namespace_path=on_hive.path, version=1).count_rows() == COUNT
    table.restore(1)
    assert (table.version, table.count_rows()) == (3, COUNT)


@pytest.mark.spec("clients.md#branches")
def test_branches_are_written_to_and_dropped(table: Table, db: Any, on_hive: Database) -> None:
    branch = table.branches.create("dev")
    branch.add(rows(1, COUNT))
    assert (branch.current_branch(), table.current_branch()) == ("dev", None)
    assert list(table.branches.list()) == ["dev"]
    assert table.branches.checkout("dev").count_rows() == COUNT + 1
    opened = db.open_table("t", namespace_path=on_hive.path, branch="dev")
    assert opened.count_rows() == COUNT + 1
    for refused in (table.branches.diff, table.branches.cherry_pick):
        with pytest.raises(NotImplementedError, match="Enterprise"):
            refused("dev")
    table.branches.delete("dev")
    assert table.count_rows() == COUNT


def test_files_are_compacted_and_cleaned_up(table: Table) -> None:
    for number in range(3):
        table.add(rows(1, COUNT + number))
    assert table.compact_files().fragments_removed == 4
    table.add(rows(1))
    table.optimize(cleanup_older_than=timedelta(0))
    assert table.cleanup_old_versions(timedelta(0)).old_versions == 0
    assert len(table.list_versions()) == 1
    assert table.count_rows() == COUNT + 4


def test_blobs_are_read_in_whole_in_part_and_as_files(db: Any, on_hive: Database) -> None:
    marked = pa.field("film", pa.large_binary(), metadata={"lance-encoding:blob": "true"})
    data = pa.table([[1, 2], [b"first", b"second"]], pa.schema([("id", pa.int64()), marked]))
    table = db.create_table("blobs", data, namespace_path=on_hive.path)
    assert table.blob_columns() == ["film"]
    row_ids = table.search().with_row_id(True).to_arrow()["_rowid"].to_pylist()
    assert table.fetch_blobs("film", row_ids).to_pylist() == [b"first", b"second"]
    assert table.fetch_blob_ranges("film", [(row_ids[1], 1, 3)]).to_pylist() == [b"eco"]
    assert [file.read() for file in table.fetch_blob_files("film", row_ids)] == [
        b"first",
        b"second",
    ]


def test_the_log_of_small_writes_is_lancedbs_own(db: Any, on_hive: Database) -> None:
    schema = pa.schema([pa.field("id", pa.int64(), nullable=False), ("x", pa.int64())])
    table = db.create_table("log", schema=schema, namespace_path=on_hive.path)
    table.set_unenforced_primary_key("id")
    table.set_lsm_write_spec(LsmWriteSpec.unsharded())
    assert table.get_lsm_write_spec().spec_type == "unsharded"
    for name in ("checkpoint_lsm", "compact_lsm", "flush_lsm", "get_lsm_stats"):
        with pytest.raises(NotImplementedError, match="not supported on this table type"):
            getattr(table, name)()
    table.close_lsm_writers()
    table.unset_lsm_write_spec()
    assert table.get_lsm_write_spec() is None


def test_two_methods_of_lancedb_fail_wherever_a_table_is(table: Table, tmp_path: Any) -> None:
    local = lancedb.connect(tmp_path).create_table("t", rows(1))
    for each in (table, local):
        with pytest.raises(AttributeError, match="migrate_v2_manifest_paths"):
            each.migrate_v2_manifest_paths()
