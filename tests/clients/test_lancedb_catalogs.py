"""LanceDB, unmodified, on each catalog: the main path, queries by the catalog, managed tables."""

from __future__ import annotations

from typing import Any

import lance
import lance_namespace as api
import lancedb
import pytest
from clients.catalogs import VECTOR, Database, ids_of, rows
from lance_namespace.errors import TableNotFoundError
from lancedb.index import FTS
from lancedb.rerankers import RRFReranker

from lance_bridge.managed.out_of_band import OutOfBand

from .test_lancedb_async import asynchronous

pytestmark = [pytest.mark.servers, pytest.mark.spec("clients.md#lancedb")]


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
