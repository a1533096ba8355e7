"""What is tried of every public method of LanceDB's connections, tables and catalogs."""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from datetime import timedelta
from typing import Any
from uuid import UUID

import lance_namespace as api
import lancedb.index
import pyarrow as pa
import pytest
from lancedb._lancedb import LsmWriteSpec
from lancedb.functions import udf

COUNT = 20


def rows(count: int, first: int = 0) -> pa.Table:
    """Rows with the ids from ``first``."""
    ids = range(first, first + count)
    return pa.table(
        {
            "id": pa.array(ids, pa.int64()),
            "title": [f"film number{i}" for i in ids],
            "vector": pa.array([[float(i), 0.0] for i in ids], pa.list_(pa.float32(), 2)),
        }
    )


async def done(value: Any) -> Any:
    """Return a value, or what an awaitable gives."""
    return await value if inspect.isawaitable(value) else value


async def value_of(owner: Any, name: str) -> Any:
    """Return a property, or the result of a method without arguments."""
    found = getattr(owner, name)
    return await done(found() if callable(found) else found)


@dataclass(frozen=True)
class Scene:
    """A connection, with a table ``t`` of 20 rows in a database of its own."""

    db: Any
    table: Any
    at: dict[str, Any]
    """Where the table is: arguments for the methods of the connection."""

    async def open(self, name: str) -> Any:
        return await done(self.db.open_table(name, **self.at))

    async def names(self) -> list[str]:
        return sorted(await done(self.db.table_names(**self.at)))

    async def ids(self, query: Any) -> list[int]:
        found = await done((await done(query)).to_list())
        return [row["id"] for row in found]

    async def count(self) -> int:
        return int(await done(self.table.count_rows()))


Trial = Callable[[Scene], Awaitable[None]]
CONNECTION: dict[str, Trial] = {}


def of(trials: dict[str, Trial], *names: str) -> Callable[[Trial], Trial]:
    def register(trial: Trial) -> Trial:
        trials.update(dict.fromkeys(names, trial))
        return trial

    return register


def only_call(
    trials: dict[str, Trial], owner: str, *names: str, args: tuple[Any, ...] = (), **options: Any
) -> None:
    """Add trials that check nothing, of what is refused: methods of a connection or a table."""
    for name in names:

        async def call(scene: Scene, name: str = name) -> None:
            found = getattr(getattr(scene, owner), name)
            await done(found(*args, **options) if callable(found) else found)

        trials[name] = call


# -- connections -----------------------------------------------------------------------------------


@of(CONNECTION, "create_table", "open_table", "table_names")
async def _tables_are_created(scene: Scene) -> None:
    await done(scene.db.create_table("n", rows(2), **scene.at))
    assert await done((await scene.open("n")).count_rows()) == 2
    assert await scene.names() == ["n", "t"]


@of(CONNECTION, "list_tables")
async def _tables_are_listed(scene: Scene) -> None:
    assert (await done(scene.db.list_tables(**scene.at))).tables == ["t"]


@of(CONNECTION, "table_exists")
async def _tables_exist(scene: Scene) -> None:
    path = scene.at.get("namespace_path", [])
    await done(scene.db.table_exists([*path, "t"]))


@of(CONNECTION, "namespace_exists")
async def _namespaces_exist(scene: Scene) -> None:
    await done(scene.db.namespace_exists(scene.at.get("namespace_path", [])))


@of(CONNECTION, "drop_table")
async def _a_table_is_dropped(scene: Scene) -> None:
    await done(scene.db.drop_table("t", **scene.at))
    assert await scene.names() == []


@of(CONNECTION, "drop_table_async")
async def _a_table_is_dropped_by_a_job(scene: Scene) -> None:
    job = await done(scene.db.drop_table_async("t", **scene.at))
    await done(job.wait())
    assert await scene.names() == []


@of(CONNECTION, "drop_all_tables")
async def _all_tables_are_dropped(scene: Scene) -> None:
    await done(scene.db.drop_all_tables(**scene.at))
    assert await scene.names() == []


@of(CONNECTION, "drop_database")
async def _the_database_is_dropped(scene: Scene) -> None:
    await done(scene.db.drop_database())
    assert await scene.names() == []


def _source(scene: Scene) -> str:
    """Return what a view is made of: a table, or a query where the server runs SQL."""
    return "t" if scene.at else "SELECT * FROM t"


@of(CONNECTION, "create_materialized_view")
async def _a_view_is_created(scene: Scene) -> None:
    await done(scene.db.create_materialized_view("v", _source(scene)))


@of(CONNECTION, "create_materialized_view_async")
async def _a_view_is_created_by_a_job(scene: Scene) -> None:
    job = await done(scene.db.create_materialized_view_async("v", _source(scene)))
    await done(job.wait())


@of(CONNECTION, "drop_materialized_view_async")
async def _a_view_is_dropped_by_a_job(scene: Scene) -> None:
    await done((await done(scene.db.drop_materialized_view_async("v"))).wait())


@of(CONNECTION, "rename_table")
async def _a_table_is_renamed(scene: Scene) -> None:
    at = scene.at.get("namespace_path")
    paths = {"cur_namespace_path": at, "new_namespace_path": at} if at else {}
    await done(scene.db.rename_table("t", "u", **paths))
    assert await scene.names() == ["u"]


@of(CONNECTION, "create_namespace", "drop_namespace")
async def _namespaces_are_created(scene: Scene) -> None:
    path = ["made_" + scene.at["namespace_path"][0]] if scene.at else ["made"]
    await done(scene.db.create_namespace(path))
    await done(scene.db.drop_namespace(path))


@of(CONNECTION, "describe_namespace")
async def _the_namespace_is_described(scene: Scene) -> None:
    await done(scene.db.describe_namespace(scene.at.get("namespace_path", [])))


@of(CONNECTION, "list_namespaces")
async def _namespaces_are_listed(scene: Scene) -> None:
    found = (await done(scene.db.list_namespaces())).namespaces
    assert set(scene.at.get("namespace_path", [])) <= set(found)


@of(CONNECTION, "namespace_client")
async def _the_namespace_client_lists_the_tables(scene: Scene) -> None:
    client = await done(scene.db.namespace_client())
    request = api.ListTablesRequest(id=scene.at.get("namespace_path", []))
    assert client.list_tables(request).tables == ["t"]


@of(CONNECTION, "uri")
async def _the_connection_has_a_uri(scene: Scene) -> None:
    assert isinstance(await value_of(scene.db, "uri"), str)


@of(CONNECTION, "is_open")
async def _the_connection_is_open(scene: Scene) -> None:
    assert await value_of(scene.db, "is_open")


@udf  # type: ignore[untyped-decorator]  # LanceDB's own has no types
def _double(x: int) -> int:
    return 2 * x


only_call(CONNECTION, "db", "clone_table", args=("copy", "/nonexistent"))
only_call(CONNECTION, "db", "alter_secret", "create_secret", args=("s", "x"))
only_call(CONNECTION, "db", "describe_secret", "drop_secret", args=("s",))
only_call(CONNECTION, "db", "cancel_job", "open_job", "pause_job", "resume_job", args=("j",))
only_call(CONNECTION, "db", "create_function", "create_function_async", args=(_double,))
only_call(CONNECTION, "db", "create_view", args=("v", "SELECT * FROM t"))
only_call(CONNECTION, "db", "describe_query", args=(UUID(int=1),))
only_call(CONNECTION, "db", "execute_query", "execute_query_async", args=("SELECT 1",))
_VIEWS = ("describe_view", "drop_view", "drop_view_async")
_MATERIALIZED_VIEWS = ("drop_materialized_view", "open_materialized_view")
only_call(CONNECTION, "db", *_VIEWS, *_MATERIALIZED_VIEWS, args=("v",))
_LISTS = ("functions", "jobs", "materialized_views", "secrets", "views")
only_call(CONNECTION, "db", *(f"list_{each}" for each in _LISTS))
only_call(CONNECTION, "db", "close", "get_read_consistency_interval", "serialize")
_FUNCTIONS = ("drop_function", "drop_function_async", "get_function")
only_call(CONNECTION, "db", *_FUNCTIONS, args=("f",), version="1")


# -- tables ----------------------------------------------------------------------------------------


TABLE: dict[str, Trial] = {}


@of(TABLE, "add", "count_rows", "version", "list_versions")
async def _rows_are_added(scene: Scene) -> None:
    before = await value_of(scene.table, "version")
    await done(scene.table.add(rows(3, COUNT)))
    assert await scene.count() == COUNT + 3
    assert await value_of(scene.table, "version") == before + 1
    assert len(await done(scene.table.list_versions())) == before + 1


@of(TABLE, "delete")
async def _rows_are_deleted(scene: Scene) -> None:
    assert (await done(scene.table.delete("id < 3"))).num_deleted_rows == 3
    assert await scene.count() == COUNT - 3


@of(TABLE, "update")
async def _rows_are_updated(scene: Scene) -> None:
    parameters = inspect.signature(scene.table.update).parameters
    name = "values" if "values" in parameters else "updates"
    result = await done(scene.table.update(where="id < 2", **{name: {"title": "x"}}))
    assert result.rows_updated == 2


@of(TABLE, "merge_insert")
async def _rows_are_merged(scene: Scene) -> None:
    merge = scene.table.merge_insert("id").when_matched_update_all().when_not_matched_insert_all()
    result = await done(merge.execute(rows(4, COUNT - 2)))
    assert (result.num_updated_rows, result.num_inserted_rows) == (2, 2)
    assert result.num_rows == 4


@of(TABLE, "search", "vector_search", "query")
async def _rows_are_searched(scene: Scene) -> None:
    assert await scene.ids((await done(scene.table.search([7.0, 0.0]))).limit(1)) == [7]
    if hasattr(scene.table, "vector_search"):
        assert await scene.ids(scene.table.vector_search([7.0, 0.0]).limit(1)) == [7]
        assert await scene.ids(scene.table.query().where("id = 3")) == [3]


@of(TABLE, "head")
async def _the_head_is_read(scene: Scene) -> None:
    assert (await done(scene.table.head(3))).num_rows == 3


@of(TABLE, "take_offsets", "take_row_ids")
async def _rows_are_taken(scene: Scene) -> None:
    assert sorted(await scene.ids(scene.table.take_offsets([1, 3]))) == [1, 3]
    assert await scene.ids(scene.table.take_row_ids([2])) == [2]


@of(TABLE, "schema", "name", "uri", "embedding_functions", "is_open")
async def _the_table_has_facts(scene: Scene) -> None:
    assert (await value_of(scene.table, "schema")).names == ["id", "title", "vector"]
    assert await value_of(scene.table, "name") == "t"
    assert str(await value_of(scene.table, "uri")).endswith("t.lance")
    for name in ("embedding_functions", "is_open"):
        if hasattr(type(scene.table), name):
            assert await value_of(scene.table, name) in ({}, True)


@of(TABLE, "id", "namespace")
async def _the_table_has_an_id(scene: Scene) -> None:
    assert scene.table.namespace == scene.at["namespace_path"]
    assert scene.table.id == "$".join([*scene.table.namespace, "t"])


@of(TABLE, "stats")
async def _the_table_has_statistics(scene: Scene) -> None:
    assert (await done(scene.table.stats()))["num_rows"] == COUNT


@of(TABLE, "checkout", "checkout_latest", "restore", "tags")
async def _versions_are_checked_out(scene: Scene) -> None:
    table = scene.table
    tags = await value_of(table, "tags")
    await done(tags.create("first", await value_of(table, "version")))
    await done(table.add(rows(3, COUNT)))
    await done(table.checkout("first"))
    assert await scene.count() == COUNT
    await done(table.checkout_latest())
    assert await scene.count() == COUNT + 3
    await done(table.restore("first"))
    assert await scene.count() == COUNT
    await done(tags.delete("first"))


@of(TABLE, "branches", "current_branch")
async def _branches_are_used(scene: Scene) -> None:
    branches = await value_of(scene.table, "branches")
    branch = await done(branches.create("trial"))
    await done(branch.add(rows(3, COUNT)))
    assert await value_of(branch, "current_branch") == "trial"
    assert await done(branch.count_rows()) == COUNT + 3
    assert await scene.count() == COUNT
    await done(branches.delete("trial"))


@of(TABLE, "create_index", "list_indices", "index_stats", "wait_for_index", "drop_index")
async def _indices_are_created(scene: Scene) -> None:
    table = scene.table
    await done(table.create_index("id", config=lancedb.index.BTree()))
    await done(table.wait_for_index(["id_idx"], timedelta(seconds=20)))
    assert [each.name for each in await done(table.list_indices())] == ["id_idx"]
    assert (await done(table.index_stats("id_idx"))).num_indexed_rows == COUNT
    await done(table.drop_index("id_idx"))
    assert list(await done(table.list_indices())) == []


@of(TABLE, "create_index_async")
async def _an_index_is_created_by_a_job(scene: Scene) -> None:
    index = lancedb.index.BTree()
    job = await done(scene.table.create_index_async("id", config=index))
    await done(job.wait())
    assert (await done(scene.table.index_stats("id_idx"))).num_indexed_rows == COUNT


@of(TABLE, "create_scalar_index")
async def _a_scalar_index_is_created(scene: Scene) -> None:
    await done(scene.table.create_scalar_index("id"))
    assert (await done(scene.table.index_stats("id_idx"))).num_indexed_rows == COUNT


@of(TABLE, "create_fts_index")
async def _text_is_searched(scene: Scene) -> None:
    if hasattr(scene.table, "create_fts_index"):
        await done(scene.table.create_fts_index("title"))
    else:
        await done(scene.table.create_index("title", config=lancedb.index.FTS()))
    found = (await done(scene.table.search("number7", query_type="fts"))).limit(2)
    assert await scene.ids(found) == [7]


@of(TABLE, "add_columns", "alter_columns", "drop_columns")
async def _columns_are_changed(scene: Scene) -> None:
    table = scene.table
    await done(table.add_columns({"twice": "id * 2"}))
    await done(table.add_columns(pa.schema([pa.field("at", pa.timestamp("ms", "UTC"))])))
    assert (await value_of(table, "schema")).field("at").type == pa.timestamp("ms", "UTC")
    await done(table.alter_columns({"path": "twice", "rename": "double"}))
    await done(table.drop_columns(["double", "at"]))
    assert (await value_of(table, "schema")).names == ["id", "title", "vector"]


@of(TABLE, "replace_field_metadata")
async def _the_metadata_of_a_column_is_replaced(scene: Scene) -> None:
    await done(scene.table.replace_field_metadata("id", {"unit": "m"}))
    assert (await value_of(scene.table, "schema")).field("id").metadata == {b"unit": b"m"}


@of(TABLE, "update_field_metadata")
async def _the_metadata_of_columns_is_changed(scene: Scene) -> None:
    await done(scene.table.update_field_metadata({"path": "id", "metadata": {"unit": "m"}}))
    assert (await value_of(scene.table, "schema")).field("id").metadata == {b"unit": b"m"}


_LSM = ("checkpoint_lsm", "close_lsm_writers", "compact_lsm", "flush_lsm", "get_lsm_stats")
_MIGRATIONS = ("migrate_manifest_paths_v2", "migrate_v2_manifest_paths", "uses_v2_manifest_paths")
_CLEANING = ("cleanup_old_versions", "compact_files", "optimize", "prewarm_data")
_STATED = ("blob_columns", "function_errors", "initial_storage_options", "latest_storage_options")
only_call(TABLE, "table", "close", *_LSM, *_MIGRATIONS, *_CLEANING, *_STATED)


def _all_rows_are_read(name: str, count: Callable[[Any], int]) -> Trial:
    async def read(scene: Scene) -> None:
        assert count(await done(getattr(scene.table, name)())) == COUNT

    return read


TABLE["to_arrow"] = _all_rows_are_read("to_arrow", lambda rows: rows.num_rows)
TABLE["to_pandas"] = _all_rows_are_read("to_pandas", len)
TABLE["to_polars"] = _all_rows_are_read("to_polars", lambda rows: rows.collect().height)
TABLE["to_lance"] = _all_rows_are_read("to_lance", lambda rows: rows.count_rows())


@of(TABLE, "infer_tokenizer_configs")
async def _tokenizers_are_inferred(scene: Scene) -> None:
    assert scene.table.infer_tokenizer_configs("default")


@of(TABLE, "tokenize")
async def _text_is_tokenized(scene: Scene) -> None:
    await done(scene.table.create_index("title", config=lancedb.index.FTS()))
    assert len(await done(scene.table.tokenize("one film", column="title"))) > 0


@of(TABLE, "merge")
async def _a_column_is_merged(scene: Scene) -> None:
    scene.table.merge(pa.table({"id": [0], "grade": ["a"]}), "id")
    assert scene.table.schema.names[-1] == "grade"


@of(TABLE, "prewarm_index")
async def _an_index_is_prewarmed(scene: Scene) -> None:
    await done(scene.table.create_index("id", config=lancedb.index.BTree()))
    await done(scene.table.prewarm_index("id_idx"))


@of(TABLE, "refresh_column")
async def _a_column_is_computed(scene: Scene) -> None:
    await done(scene.table.add_columns(computed={"thrice": "id * 3"}))
    assert (await done(scene.table.refresh_column("thrice"))).rows_filled == COUNT


@of(TABLE, "refresh_column_async")
async def _a_column_is_computed_by_a_job(scene: Scene) -> None:
    await done(scene.table.add_columns(computed={"thrice": "id * 3"}))
    await done((await done(scene.table.refresh_column_async("thrice"))).wait())


@of(TABLE, "set_lsm_write_spec", "get_lsm_write_spec", "unset_lsm_write_spec")
async def _the_write_spec_is_set(scene: Scene) -> None:
    await done(scene.table.set_lsm_write_spec(LsmWriteSpec.unsharded()))
    assert (await done(scene.table.get_lsm_write_spec())).spec_type == "unsharded"
    await done(scene.table.unset_lsm_write_spec())


async def _other_table(scene: Scene, field: pa.Field, values: list[Any]) -> Any:
    data = pa.table({field.name: pa.array(values, field.type)}, schema=pa.schema([field]))
    return await done(scene.db.create_table("other", data, **scene.at))


@of(TABLE, "set_unenforced_primary_key")
async def _a_primary_key_is_set(scene: Scene) -> None:
    table = await _other_table(scene, pa.field("id", pa.int64(), nullable=False), [1])
    await done(table.set_unenforced_primary_key("id"))


@of(TABLE, "fetch_blobs", "fetch_blob_files", "fetch_blob_ranges")
async def _blobs_are_fetched(scene: Scene) -> None:
    field = pa.field("film", pa.large_binary(), metadata={"lance-encoding:blob": "true"})
    table = await _other_table(scene, field, [b"first"])
    assert (await done(table.fetch_blobs("film", [0]))).to_pylist() == [b"first"]
    assert (await done(table.fetch_blob_ranges("film", [(0, 1, 3)]))).to_pylist() == [b"irs"]
    assert len(await done(table.fetch_blob_files("film", [0]))) == 1


# -- catalogs --------------------------------------------------------------------------------------


@dataclass(frozen=True)
class CatalogScene:
    """A catalog, the name of a database in it, and a name that no database has."""

    catalog: Any
    url: str
    existing: str
    free: str

    async def names(self) -> list[str]:
        return list((await done(self.catalog.list_databases())).databases)


async def _a_database_is_created(scene: CatalogScene) -> None:
    db = await done(scene.catalog.create_database(scene.free))
    assert await done((await done(db.create_table("t", rows(2)))).count_rows()) == 2
    with pytest.raises(ValueError, match="already exists"):
        await done(scene.catalog.create_database(scene.free))
    await done(scene.catalog.create_database(scene.free, exist_ok=True))
    assert {scene.free, scene.existing} <= set(await scene.names())
    await done(db.drop_table("t"))


async def _a_database_is_opened(scene: CatalogScene) -> None:
    db = await done(scene.catalog.connect_database(scene.existing))
    assert (await done(db.list_tables())).tables == []
    with pytest.raises(ValueError, match="not found"):
        await done(scene.catalog.connect_database(scene.free))


async def _databases_are_listed(scene: CatalogScene) -> None:
    first = await done(scene.catalog.list_databases(limit=1))
    assert len(first.databases) == 1
    rest = await done(scene.catalog.list_databases(page_token=first.page_token))
    assert scene.existing in [*first.databases, *rest.databases]


async def _a_database_is_dropped(scene: CatalogScene) -> None:
    await done(scene.catalog.drop_database(scene.existing))
    assert scene.existing not in await scene.names()
    await done(scene.catalog.drop_database(scene.existing, ignore_missing=True))


async def _the_catalog_has_a_uri(scene: CatalogScene) -> None:
    assert (await value_of(scene.catalog, "uri")).rstrip("/") == scene.url.rstrip("/")


CATALOG: dict[str, Callable[[CatalogScene], Awaitable[None]]] = {
    "create_database": _a_database_is_created,
    "connect_database": _a_database_is_opened,
    "list_databases": _databases_are_listed,
    "drop_database": _a_database_is_dropped,
    "uri": _the_catalog_has_a_uri,
}
