"""LanceDB, unmodified: every method of its asynchronous connection and table."""

from __future__ import annotations

import asyncio
import functools
import uuid
from collections.abc import Awaitable, Callable
from datetime import timedelta
from typing import Any

import lancedb
import pyarrow as pa
import pytest
from clients.catalogs import VECTOR, Database, ids_of, rows
from lance_namespace.errors import NamespaceNotEmptyError, TableNotFoundError
from lancedb._lancedb import LsmWriteSpec
from lancedb.index import FTS, BTree, IvfFlat
from lancedb.rerankers import RRFReranker

pytestmark = [
    pytest.mark.servers,
    pytest.mark.spec("clients.md#the-connection", "clients.md#the-table"),
]

COUNT = 50
Case = Callable[..., Awaitable[None]]


def asynchronous(case: Case) -> Callable[..., None]:
    """Run a test that is a coroutine."""

    @functools.wraps(case)
    def run(*arguments: Any, **named: Any) -> None:
        asyncio.run(case(*arguments, **named))  # type: ignore[arg-type] # it is a coroutine

    return run


def connect(database: Database, **more: str) -> Any:
    return lancedb.connect_namespace_async(database.impl, {**database.properties, **more})


async def new_table(database: Database) -> Any:
    """Create a table with rows 0 to 49."""
    db = connect(database)
    return await db.create_table("t", rows(COUNT), namespace_path=database.path)


@asynchronous
async def test_namespaces_are_created_described_listed_and_dropped(on_hive: Database) -> None:
    db = connect(on_hive)
    path = [f"{on_hive.path[-1]}_more"]
    await db.create_namespace(path, properties={"owner_team": "films"})
    assert await db.namespace_exists(path)
    assert (await db.describe_namespace(path)).properties["owner_team"] == "films"
    first = await db.list_namespaces(limit=1)
    rest = await db.list_namespaces(page_token=first.page_token)
    assert {on_hive.path[-1], path[-1]} <= {*first.namespaces, *rest.namespaces}
    await db.create_table("t", rows(1), namespace_path=path)
    with pytest.raises(NamespaceNotEmptyError):
        await db.drop_namespace(path)
    await db.drop_namespace(path, behavior="cascade")
    assert not await db.namespace_exists(path)


@asynchronous
async def test_tables_are_created_listed_renamed_and_dropped(on_hive: Database) -> None:
    db, path = connect(on_hive), on_hive.path
    for name in ("a", "b", "c", "d"):
        await db.create_table(name, rows(2), namespace_path=path)
    with pytest.raises(RuntimeError, match="Table already exists: "):
        await db.create_table("a", rows(1), namespace_path=path)
    again = await db.create_table("a", rows(1), mode="overwrite", namespace_path=path)
    assert await again.count_rows() == 1
    kept = await db.create_table("b", rows(1), exist_ok=True, namespace_path=path)
    assert await kept.count_rows() == 2
    with pytest.raises(TableNotFoundError):
        await db.open_table("missing", namespace_path=path)
    first = await db.list_tables(path, limit=3)
    rest = await db.list_tables(path, page_token=first.page_token)
    assert (first.tables, rest.tables) == (["a", "b", "c"], ["d"])
    with pytest.warns(DeprecationWarning, match="list_tables"):
        assert list(await db.table_names(namespace_path=path)) == ["a", "b", "c", "d"]
    await db.rename_table("a", "z", cur_namespace_path=path, new_namespace_path=path)
    assert await db.table_exists([*path, "z"])
    await db.drop_table("z", namespace_path=path)
    await (await db.drop_table_async("b", namespace_path=path)).wait()
    await db.drop_all_tables(namespace_path=path)
    assert (await db.list_tables(path)).tables == []
    assert repr(await db.namespace_client()).startswith("<HiveNamespace ")


@asynchronous
async def test_one_name_and_materialized_views_are_of_the_default_namespace(
    on_hive: Database,
) -> None:
    db = connect(on_hive, **{"default-namespace": on_hive.path[-1]})
    options = {"new_table_enable_stable_row_ids": "true"}
    await db.create_table("films", rows(4), storage_options=options)
    await db.create_materialized_view("late", "films", where="id > 1")
    view = await db.open_materialized_view("late")
    assert await view.table.count_rows() == 2
    await (await db.create_materialized_view_async("early", "films", where="id < 1")).wait()
    assert sorted(await db.list_materialized_views()) == ["early", "late"]
    await db.drop_materialized_view("late")
    await (await db.drop_materialized_view_async("early")).wait()
    assert (await db.list_tables()).tables == ["films"]


@asynchronous
async def test_what_lancedb_keeps_for_its_cloud_it_refuses(on_hive: Database) -> None:
    db = connect(on_hive)
    refused: dict[str, tuple[Any, ...]] = {
        "describe_query": (uuid.uuid4(),),
        "drop_database": (),
        "execute_query": ("SELECT 1",),
        "execute_query_async": ("SELECT 1",),
    }
    for name, arguments in refused.items():
        with pytest.raises(NotImplementedError):
            await getattr(db, name)(*arguments)


@asynchronous
async def test_a_table_says_what_it_is_and_is_read(on_hive: Database) -> None:
    table = await new_table(on_hive)
    assert (table.name, await table.version()) == ("t", 1)
    assert await table.schema() == rows(1).schema
    assert await table.embedding_functions() == {}
    assert (await table.uri()).endswith("/t.lance")
    assert await table.uses_v2_manifest_paths()
    initial = await table.initial_storage_options()
    assert await table.latest_storage_options() == (initial or {})
    assert (await table.stats())["num_rows"] == COUNT
    assert await table.to_arrow() == rows(COUNT)
    assert len(await table.to_pandas()) == COUNT
    assert (await table.to_lance()).count_rows() == COUNT
    assert (await table.head(2)).num_rows == 2
    assert ids_of(await table.take_offsets([1, 3]).to_list()) == [1, 3]
    assert ids_of(await table.take_row_ids([2]).to_list()) == [2]
    assert table.is_open()
    table.close()
    assert not table.is_open()


@pytest.mark.spec("clients.md#branches", "clients.md#tags")
@asynchronous
async def test_rows_are_added_merged_updated_and_deleted(on_hive: Database) -> None:
    table = await new_table(on_hive)
    await table.add(rows(1, COUNT))
    await table.update({"color": "purple"}, where="id = 1")
    assert (await table.delete("id = 3")).num_deleted_rows == 1
    upsert = table.merge_insert("id").when_matched_update_all().when_not_matched_insert_all()
    done = await upsert.execute(rows(2, COUNT))
    assert (done.num_updated_rows, done.num_inserted_rows) == (1, 1)
    assert await table.count_rows() == COUNT + 1
    assert ids_of(await table.query().where("color = 'purple'").to_list()) == [1]


@asynchronous
async def test_rows_are_found_by_vectors_text_and_both(on_hive: Database) -> None:
    table = await new_table(on_hive)
    await table.create_index("text", config=FTS())
    await table.create_index("vector", config=IvfFlat(num_partitions=1))
    await (await table.create_index_async("id", config=BTree())).wait()
    await table.wait_for_index(["id_idx"], timedelta(seconds=10))
    types = {each.name: each.index_type for each in await table.list_indices()}
    assert types == {"text_idx": "FTS", "vector_idx": "IvfFlat", "id_idx": "BTree"}
    assert (await table.index_stats("id_idx")).num_indexed_rows == COUNT
    await table.prewarm_index("id_idx")
    [token] = await table.tokenize("Red", column="text")
    assert token.text == "red"
    assert ids_of(await table.vector_search([7.0] * 8).limit(1).to_list()) == [7]
    search = await table.search("number42", query_type="fts")
    assert ids_of(await search.limit(5).to_list()) == [42]
    hybrid = table.query().nearest_to(VECTOR).nearest_to_text("number42")
    assert {0, 42} <= set(ids_of(await hybrid.rerank(RRFReranker()).limit(3).to_list()))
    await table.drop_index("id_idx")
    assert len(await table.list_indices()) == 2
    with pytest.raises(NotImplementedError, match="remote tables"):
        await table.prewarm_data()


@asynchronous
async def test_columns_are_added_changed_and_dropped(on_hive: Database) -> None:
    table = await new_table(on_hive)
    await table.add_columns({"twice": "id * 2"})
    await table.add_columns(computed={"thrice": "id * 3"})
    assert (await table.refresh_column("thrice")).rows_filled == COUNT
    await (await table.refresh_column_async("thrice")).wait()
    await table.alter_columns({"path": "twice", "rename": "double"})
    await table.drop_columns(["double"])
    await table.update_field_metadata({"path": "color", "metadata": {"pii": "no"}})
    await table.replace_field_metadata("id", {"unit": "films"})
    assert (await table.schema()).names[5:] == ["thrice"]
    assert (await table.schema()).field("id").metadata == {b"unit": b"films"}
    with pytest.raises(NotImplementedError, match="Cloud"):
        await table.function_errors()


@pytest.mark.spec("clients.md#branches", "clients.md#tags")
@asynchronous
async def test_versions_tags_and_branches_are_checked_out_and_restored(on_hive: Database) -> None:
    table = await new_table(on_hive)
    await table.delete("id >= 10")
    await table.tags.create("all", 1)
    await table.tags.update("all", 2)
    await table.tags.update("all", 1)
    assert list(await table.tags.list()) == ["all"]
    assert await table.tags.get_version("all") == 1
    await table.checkout("all")
    assert await table.count_rows() == COUNT
    await table.checkout_latest()
    assert [each["version"] for each in await table.list_versions()] == [1, 2]
    await table.restore(1)
    branch = await table.branches.create("dev")
    await branch.add(rows(1, COUNT))
    assert (await branch.count_rows(), await table.count_rows()) == (COUNT + 1, COUNT)
    assert (branch.current_branch(), table.current_branch()) == ("dev", None)
    assert await (await table.branches.checkout("dev")).count_rows() == COUNT + 1
    assert list(await table.branches.list()) == ["dev"]
    for refused in (table.branches.diff, table.branches.cherry_pick):
        with pytest.raises(NotImplementedError, match="Enterprise"):
            await refused("dev")
    await table.branches.delete("dev")
    await table.tags.delete("all")
    await table.add(rows(1))
    await table.optimize(cleanup_older_than=timedelta(0))
    assert len(await table.list_versions()) == 1
    await table.migrate_manifest_paths_v2()


@asynchronous
async def test_blobs_are_read_in_whole_in_part_and_as_files(on_hive: Database) -> None:
    marked = pa.field("film", pa.large_binary(), metadata={"lance-encoding:blob": "true"})
    data = pa.table([[1], [b"second"]], pa.schema([("id", pa.int64()), marked]))
    table = await connect(on_hive).create_table("blobs", data, namespace_path=on_hive.path)
    assert await table.blob_columns() == ["film"]
    found = await table.query().with_row_id().to_arrow()
    row_ids = found["_rowid"].to_pylist()
    assert (await table.fetch_blobs("film", row_ids)).to_pylist() == [b"second"]
    part = await table.fetch_blob_ranges("film", [(row_ids[0], 1, 3)])
    assert part.to_pylist() == [b"eco"]
    [file] = await table.fetch_blob_files("film", row_ids)
    assert file.read() == b"second"


@asynchronous
async def test_the_log_of_small_writes_is_lancedbs_own(on_hive: Database) -> None:
    schema = pa.schema([pa.field("id", pa.int64(), nullable=False)])
    db = connect(on_hive)
    table = await db.create_table("log", schema=schema, namespace_path=on_hive.path)
    await table.set_unenforced_primary_key("id")
    await table.set_lsm_write_spec(LsmWriteSpec.unsharded())
    assert (await table.get_lsm_write_spec()).spec_type == "unsharded"
    for name in ("checkpoint_lsm", "compact_lsm", "flush_lsm", "get_lsm_stats"):
        with pytest.raises(NotImplementedError, match="not supported on this table type"):
            await getattr(table, name)()
    await table.close_lsm_writers()
    await table.unset_lsm_write_spec()
    assert await table.get_lsm_write_spec() is None
