"""LanceDB, unmodified: every method of its table, on a table of a real metastore."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path
from typing import Any

import lancedb
import lancedb.index
import pyarrow as pa
import pytest
from clients.catalogs import VECTOR, Database, ids_of, rows
from lancedb._lancedb import LsmWriteSpec
from lancedb.rerankers import RRFReranker

pytestmark = [pytest.mark.servers, pytest.mark.spec("clients.md#the-table")]

COUNT = 300
Table = Any


@pytest.fixture
def db(on_hive: Database) -> Any:
    return lancedb.connect_namespace(on_hive.impl, on_hive.properties)


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
