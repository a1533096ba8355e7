"""Namespace operations that a Spark session makes possible, and materialized views."""

from __future__ import annotations

import base64
import shutil
from collections.abc import Iterator
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import lance
import lance_namespace as api
import pyarrow as pa
import pytest
from core.memory_catalog import CAPABILITIES, DATASET, SERVERS, TABLE, MemoryNamespace, MemoryServer
from lance_namespace import errors
from pyspark.sql import SparkSession

from core import managed_tables, table_data
from lance_bridge import engine
from lance_bridge.catalog import NamespaceRecord
from lance_bridge_spark import (
    backfill,
    clean_up,
    compact,
    create_index,
    create_materialized_view,
    refresh_materialized_view,
)
from lance_bridge_spark.jobs.engine import SparkEngine
from lance_bridge_spark.jobs.views import (
    may_be_by_row,
    read_columns,
    replace_tables,
    table_references,
)

from .tables import append, make

pytestmark = [
    pytest.mark.servers,
    pytest.mark.spec(
        "operations.md#unsupported-operations",
        "spark.md#namespace-operations-by-spark",
        "spark.md#create_materialized_view",
        "spark.md#refresh_materialized_view",
    ),
]

VIEW = [*DATASET, "View"]
SCHEMA = pa.schema([pa.field("n", pa.int64())])
CATALOG = "mem"


@pytest.fixture
def ns(spark: SparkSession, tmp_path: Path) -> Iterator[MemoryNamespace]:
    """A namespace whose catalog the session knows as ``mem``."""
    uri = str(tmp_path)
    server = SERVERS[uri] = MemoryServer(replace(CAPABILITIES, no_alter="", no_rename=""))
    for depth in range(1, len(DATASET) + 1):
        path = tuple(DATASET[:depth])
        server.namespaces[path] = NamespaceRecord(path)
    properties = {"uri": uri, "root": str(tmp_path / "lake")}
    kind = f"{MemoryNamespace.__module__}.{MemoryNamespace.__qualname__}"
    for key, value in {"impl": kind, **properties}.items():
        spark.conf.set(f"spark.sql.catalog.{CATALOG}.{key}", value)
    yield MemoryNamespace(**properties)
    for key in ("impl", *properties):
        spark.conf.unset(f"spark.sql.catalog.{CATALOG}.{key}")
    del SERVERS[uri]


@pytest.fixture
def worker(spark: SparkSession) -> Iterator[None]:
    """The session as the engine of the process."""
    engine.use(SparkEngine(spark))
    yield
    engine.use(None)


def encoded(schema: pa.Schema) -> str:
    return base64.b64encode(schema.serialize().to_pybytes()).decode()


def create_view(ns: MemoryNamespace, query: str, **more: Any) -> Any:
    given = {"kind": "query", "output_schema": encoded(SCHEMA), "source_query": query, **more}
    return ns.create_materialized_view(api.CreateMaterializedViewRequest(id=VIEW, **given))


def refresh(ns: MemoryNamespace, **more: Any) -> str:
    request = api.RefreshMaterializedViewRequest(id=VIEW, **more)
    return str(ns.refresh_materialized_view(request).job_id)


def numbers(ns: MemoryNamespace) -> list[int]:
    found = lance.dataset(namespace_client=ns, table_id=VIEW).to_table()
    return sorted(found.column("n").to_pylist())


# -- views by the namespace ------------------------------------------------------------------------


@pytest.mark.usefixtures("worker")
def test_a_view_is_created_and_refreshed_through_the_namespace(
    ns: MemoryNamespace, tmp_path: Path
) -> None:
    source = make(tmp_path / "source", fragments=2, rows=5)
    query = f"SELECT id + 1 AS n FROM lance.`{source}`"
    made = create_view(ns, query)
    assert (made.version, made.job_id, numbers(ns)) == (1, None, [])

    job = refresh(ns)
    assert numbers(ns) == list(range(1, 11))
    described = ns.describe_transaction(api.DescribeTransactionRequest(id=[*VIEW, job]))
    assert described.status == "Succeeded"
    append(source, 5, 100)
    assert refresh(ns) != job
    assert numbers(ns) == [*range(1, 11), *range(101, 106)]
    refresh(ns, src_version=1, max_rows_per_fragment=2)
    assert numbers(ns) == list(range(1, 6))
    fragments = lance.dataset(namespace_client=ns, table_id=VIEW).get_fragments()
    assert max(each.count_rows() for each in fragments) == 2


@pytest.mark.usefixtures("worker")
def test_a_view_can_have_its_rows_from_the_beginning(ns: MemoryNamespace, tmp_path: Path) -> None:
    source = make(tmp_path / "source", fragments=1, rows=5)
    made = create_view(ns, f"SELECT id AS n FROM lance.`{source}`", with_no_data=False)
    assert made.version == 1
    assert made.job_id
    assert numbers(ns) == list(range(5))


@pytest.mark.usefixtures("worker")
def test_what_a_view_cannot_be_is_refused_by_name(ns: MemoryNamespace, tmp_path: Path) -> None:
    source = make(tmp_path / "source", fragments=1, rows=5)
    query = f"SELECT id AS n FROM lance.`{source}`"
    udtf = {"kind": "udtf", "udtf": "x", "udtf_sha": "x", "udtf_name": "x", "udtf_version": "1"}
    refused: list[tuple[dict[str, Any], type[Exception], str]] = [
        ({"kind": "udtf"}, errors.UnsupportedOperationError, "kind 'udtf'"),
        ({"auto_refresh": True}, errors.UnsupportedOperationError, "auto_refresh"),
        ({"udtf_spec": udtf}, errors.InvalidInputError, "udtf_spec"),
        ({"output_schema": "no base64"}, errors.InvalidInputError, "output_schema"),
        ({"output_schema": encoded(pa.schema([]))}, errors.InvalidInputError, "schema"),
        ({"query": "SELECT"}, errors.InvalidInputError, "was not created"),
    ]
    for given, error, said in refused:
        with pytest.raises(error, match=said):
            create_view(ns, **{"query": query, **given})
    assert VIEW[-1] not in [path[-1] for path in SERVERS[str(tmp_path)].tables]


@pytest.mark.usefixtures("worker")
@pytest.mark.parametrize(
    ("name", "value", "error"),
    [
        ("concurrency", 1, errors.UnsupportedOperationError),
        ("intra_applier_concurrency", 1, errors.UnsupportedOperationError),
        ("source_task_size", 1, errors.UnsupportedOperationError),
        ("cluster", "c", errors.UnsupportedOperationError),
        ("manifest", "m", errors.UnsupportedOperationError),
        ("output_limit", 1, errors.InvalidInputError),
        ("src_version", 0, errors.InvalidInputError),
        ("max_rows_per_fragment", 0, errors.InvalidInputError),
    ],
)
def test_a_refresh_refuses_by_name_what_it_does_not_do(
    ns: MemoryNamespace, name: str, value: Any, error: type[Exception]
) -> None:
    with pytest.raises(error, match=name):
        refresh(ns, **{name: value})


def test_every_field_of_the_requests_is_honoured_or_refused() -> None:
    common = {"identity", "context", "id"}
    view = {"kind", "source_query", "output_schema", "udtf_spec", "with_no_data", "auto_refresh"}
    assert set(api.CreateMaterializedViewRequest.model_fields) == common | view
    refused = {"concurrency", "intra_applier_concurrency", "source_task_size", "cluster"}
    refused |= {"manifest", "output_limit"}
    honoured = {"src_version", "max_rows_per_fragment"}
    assert set(api.RefreshMaterializedViewRequest.model_fields) == common | refused | honoured


# -- computed columns ------------------------------------------------------------------------------


@pytest.mark.spec("operations.md#altertablebackfillcolumns")
@pytest.mark.usefixtures("worker")
def test_a_computed_column_is_filled_by_the_engine_with_its_options(ns: MemoryNamespace) -> None:
    table_data.make(ns)
    table_data.add(ns, {"name": "twice", "computed": "id * 2"})
    job = table_data.backfill(ns, "twice", where="id < 5", concurrency=1, checkpoint_size=2)
    ids = table_data.values(ns, "id")
    assert table_data.values(ns, "twice") == [2 * i if i < 5 else None for i in ids]
    assert table_data.last_transaction(ns) == job
    with pytest.raises(errors.UnsupportedOperationError, match="num_frags"):
        table_data.backfill(ns, "twice", num_frags=1)
    with pytest.raises(errors.InvalidInputError, match="concurrency must be 1 or more"):
        table_data.backfill(ns, "twice", concurrency=0)
    table_data.add(ns, {"name": "bad", "computed": "10 / (id - 5)"})
    with pytest.raises(errors.InvalidInputError, match="Divide by zero"):
        table_data.backfill(ns, "bad")


# -- managed tables --------------------------------------------------------------------------------


@pytest.mark.spec("clients.md#which-writers-commit-through-the-catalog", "spark.md#jobs")
def test_jobs_on_a_managed_table_commit_through_its_catalog(
    spark: SparkSession, ns: MemoryNamespace, tmp_path: Path
) -> None:
    managed_tables.create_managed(ns, 10)
    managed_tables.append(ns, *range(10, 20))
    server = SERVERS[str(tmp_path)]
    name = ".".join([CATALOG, *TABLE])

    for job in (
        lambda: backfill(spark, name, "twice", "a * 2"),
        lambda: create_index(spark, name, "a", "BTREE", rows_per_task=10),
        lambda: compact(spark, name),
    ):
        before = managed_tables.state(server).version
        done: Any = job()
        assert managed_tables.state(server).version == done.version > before

    found = lance.dataset(namespace_client=ns, table_id=TABLE)
    assert found.to_table().sort_by("a").to_pydict() == {
        "a": list(range(20)),
        "twice": [2 * i for i in range(20)],
    }
    assert len(found.get_fragments()) == 1
    assert found.to_table(filter="a = 7").num_rows == 1
    assert clean_up(spark, name).versions == 0
    assert managed_tables.rows(ns) == list(range(20))


@pytest.mark.spec("spark.md#jobs")
def test_a_lost_reply_to_the_commit_of_a_managed_table_doubles_nothing(
    spark: SparkSession, ns: MemoryNamespace, tmp_path: Path
) -> None:
    managed_tables.create_managed(ns, 10)
    server = SERVERS[str(tmp_path)]
    lost: list[str] = []

    def lose(change: str, moment: str) -> None:
        if moment == "after" and change == "alter_table" and not lost:
            lost.append(change)
            raise errors.ServiceUnavailableError("the reply was lost")

    before = managed_tables.state(server).version
    server.fault = lose
    done = backfill(spark, ".".join([CATALOG, *TABLE]), "twice", "a * 2")
    server.fault = None
    assert lost
    assert managed_tables.state(server).version == done.version == before + 1
    found = lance.dataset(namespace_client=ns, table_id=TABLE).to_table()
    assert found.column("twice").to_pylist() == [2 * a for a in found.column("a").to_pylist()]


# -- materialized views hold what their query gives ------------------------------------------------


def twice_of_even(place: str) -> list[int]:
    """Return what the view of the tests should hold, as pylance computes it."""
    found = lance.dataset(place).to_table(columns={"n": "id * 2"}, filter="id % 2 = 0")
    return sorted(found.column("n").to_pylist())


def held(view: str) -> list[int]:
    return sorted(lance.dataset(view).to_table().column("n").to_pylist())


@pytest.fixture
def source(tmp_path: Path) -> str:
    return make(tmp_path / "source", fragments=2)


@pytest.fixture
def view(spark: SparkSession, source: str, tmp_path: Path) -> str:
    place = str(tmp_path / "view")
    query = f"SELECT id * 2 AS n, v FROM lance.`{source}` WHERE id % 2 = 0"
    made = create_materialized_view(spark, place, query)
    assert made.is_full
    return place


@pytest.mark.spec("operations.md#unsupported-operations")
def test_a_refresh_computes_added_rows_only_and_others_as_a_whole(
    spark: SparkSession, source: str, view: str
) -> None:
    assert held(view) == twice_of_even(source)
    assert (
        lance.dataset(view).schema.field("v").type == lance.dataset(source).schema.field("v").type
    )
    unchanged = refresh_materialized_view(spark, view)
    assert unchanged.version == lance.dataset(view).version == 2

    append(source, 10, 500)
    lance.dataset(source).optimize.compact_files()
    append(source, 10, 600)
    lance.dataset(source).create_scalar_index("id", "BTREE")
    added = refresh_materialized_view(spark, view)
    assert (added.is_full, held(view)) == (False, twice_of_even(source))
    assert len(lance.dataset(view).get_fragments()) > 1

    append(source, 10, 700)
    lance.dataset(view).update_config({"team": "search"})
    assert not refresh_materialized_view(spark, view).is_full
    assert held(view) == twice_of_even(source)

    lance.dataset(source).delete("id < 20")
    whole = refresh_materialized_view(spark, view)
    assert (whole.is_full, held(view)) == (True, twice_of_even(source))


@pytest.mark.parametrize("stable", [False, True])
def test_a_full_refresh_keeps_indices_and_they_find_no_rows_that_are_gone(
    spark: SparkSession, source: str, view: str, tmp_path: Path, stable: bool
) -> None:
    if stable:
        there = lance.dataset(view)
        view = str(tmp_path / "stable")
        lance.write_dataset(there.to_table(), view, enable_stable_row_ids=True)
    lance.dataset(view).create_scalar_index("n", "BTREE")
    lance.dataset(view).create_index("v", "IVF_FLAT", num_partitions=2)
    lance.dataset(source).delete("id < 20")
    append(source, 10, 500)
    assert refresh_materialized_view(spark, view).is_full
    assert held(view) == twice_of_even(source)
    made = lance.dataset(view)
    assert sorted(each.name for each in made.describe_indices()) == ["n_idx", "v_idx"]
    for optimized in (False, True):
        found = [made.to_table(filter=f"n = {n}").num_rows for n in (20, 40, 1000)]
        assert found == [0, 1, 1], optimized
        row = made.to_table(filter="n = 1000").to_pylist()[0]
        near = made.to_table(nearest={"column": "v", "q": row["v"], "k": 1})
        assert near.column("n").to_pylist() == [1000], optimized
        made.optimize.optimize_indices()
        made = lance.dataset(view)

    lance.dataset(source).delete("true")
    assert refresh_materialized_view(spark, view).is_full
    assert (held(view), len(lance.dataset(view).describe_indices())) == ([], 2)


def test_a_refresh_is_full_where_what_came_in_between_is_not_known(
    spark: SparkSession, source: str, view: str
) -> None:
    append(source, 10, 500)
    append(source, 10, 600)
    lance.dataset(source).cleanup_old_versions(timedelta(0))
    assert refresh_materialized_view(spark, view).is_full
    assert held(view) == twice_of_even(source)

    lance.dataset(view).delete("n > 100")
    assert refresh_materialized_view(spark, view).version == lance.dataset(view).version
    assert held(view) == twice_of_even(source)


@pytest.mark.slow
def test_a_view_of_an_aggregate_and_a_join_is_computed_as_a_whole(
    spark: SparkSession, source: str, tmp_path: Path
) -> None:
    view = str(tmp_path / "sums")
    query = (
        f"SELECT count(*) AS n, sum(a.id) AS total FROM lance.`{source}` a "
        f"JOIN lance.`{source}` AS b ON a.id = b.id WHERE b.id >= 10"
    )
    create_materialized_view(spark, view, query, with_data=False)
    assert lance.dataset(view).count_rows() == 0
    assert refresh_materialized_view(spark, view).is_full
    append(source, 10, 500)
    assert refresh_materialized_view(spark, view).is_full
    numbers = [*range(10, 100), *range(500, 510)]
    expected = [{"n": len(numbers), "total": sum(numbers)}]
    assert lance.dataset(view).to_table().to_pylist() == expected


def test_an_aggregate_without_a_group_is_no_query_by_row(
    spark: SparkSession, source: str, tmp_path: Path
) -> None:
    view = str(tmp_path / "maximum")
    create_materialized_view(spark, view, f"SELECT max(id) AS n FROM lance.`{source}`")
    append(source, 10, 500)
    assert refresh_materialized_view(spark, view).is_full
    assert held(view) == [509]


def test_a_refresh_computes_all_where_another_table_has_the_name_of_the_source(
    spark: SparkSession, source: str, view: str
) -> None:
    for extra in (0, 1):
        shutil.rmtree(source)
        make(Path(source), fragments=2 + extra, rows=20)
        assert refresh_materialized_view(spark, view).is_full
        assert held(view) == twice_of_even(source)


def test_a_refresh_sees_changes_of_tables_that_are_not_of_lance(
    spark: SparkSession, source: str, tmp_path: Path
) -> None:
    view = str(tmp_path / "joined")
    spark.range(3).createOrReplaceTempView("others")
    query = f"SELECT a.id AS n FROM lance.`{source}` a JOIN others ON a.id = others.id"
    create_materialized_view(spark, view, query)
    spark.range(5).createOrReplaceTempView("others")
    refresh_materialized_view(spark, view)
    assert held(view) == [0, 1, 2, 3, 4]


@pytest.mark.spec("operations.md#unsupported-operations")
def test_of_two_refreshes_of_one_state_one_adds_its_rows(
    spark: SparkSession, source: str, view: str
) -> None:
    append(source, 10, 500)

    class Racing:
        """A session in which another refresh is done while this one computes."""

        raced = False

        def sql(self, query: str) -> Any:
            if not Racing.raced:
                Racing.raced = True
                refresh_materialized_view(spark, view)
            return spark.sql(query)

        def __getattr__(self, name: str) -> Any:
            return getattr(spark, name)

    with pytest.raises(errors.ConcurrentModificationError):
        refresh_materialized_view(Racing(), view)
    assert held(view) == twice_of_even(source)


def test_what_is_no_view_or_no_query_is_refused(
    spark: SparkSession, source: str, view: str, tmp_path: Path
) -> None:
    new = str(tmp_path / "new")
    with pytest.raises(errors.InvalidInputError, match="is not a materialized view"):
        refresh_materialized_view(spark, source)
    with pytest.raises(errors.TableAlreadyExistsError):
        create_materialized_view(spark, view, f"SELECT id AS n FROM lance.`{source}`")
    with pytest.raises(errors.TableColumnNotFoundError, match="nope"):
        create_materialized_view(spark, new, f"SELECT nope FROM lance.`{source}`")
    with pytest.raises(errors.InvalidInputError, match="Syntax error"):
        create_materialized_view(spark, new, f"SELEKT id FROM lance.`{source}`")
    with pytest.raises(errors.TableNotFoundError, match="no Lance table"):
        create_materialized_view(spark, new, f"SELECT id FROM lance.`{source}x`")
    assert not Path(new).exists()


# -- what the text of a query says -----------------------------------------------------------------


@pytest.mark.quick
@pytest.mark.parametrize(
    ("query", "is_by_row"),
    [
        ("SELECT a, b + 1 FROM c.d.t", True),
        ("select * from c.d.t as x where x.a > 'group by'", True),
        ("SELECT a FROM c.d.t, c.d.u", False),
        ("SELECT DISTINCT a FROM c.d.t", False),
        ("SELECT a FROM c.d.t LIMIT 3", False),
        ("SELECT a FROM c.d.t UNION ALL SELECT a FROM c.d.u", False),
        ("SELECT a, row_number() OVER (ORDER BY a) FROM c.d.t", False),
        ("SELECT a FROM c.d.t WHERE a IN (SELECT b FROM c.d.u)", False),
        ("SELECT a FROM c.d.t GROUP BY a", False),
        ("WITH x AS (SELECT 1) SELECT a FROM c.d.t", False),
    ],
)
def test_only_columns_and_a_filter_of_one_table_are_by_row(query: str, is_by_row: bool) -> None:
    assert may_be_by_row(query) is is_by_row


@pytest.mark.quick
def test_a_view_takes_the_place_of_a_table_and_keeps_its_name() -> None:
    query = (
        "SELECT t.a FROM c.d.t JOIN c.d.u AS x ON t.a = x.a -- from c.d.z\n"
        "WHERE t.a <> 'from c.d.y'"
    )
    found = table_references(query)
    assert [each.name for each in found] == ["`c`.`d`.`t`", "`c`.`d`.`u`"]
    made = replace_tables(query, found, {"`c`.`d`.`t`": "v1", "`c`.`d`.`u`": "v2"})
    assert made.startswith("SELECT t.a FROM v1 AS `t` JOIN v2 AS x ON t.a = x.a -- from c.d.z\n")


@pytest.mark.quick
def test_names_in_backticks_may_have_quotes_and_dashes() -> None:
    query = "SELECT `it's` FROM lance.`s3://b--x-s3/t` JOIN c.`d``'`.t WHERE x = 'from c.d.y'"
    names = [each.name for each in table_references(query)]
    assert names == ["`lance`.`s3://b--x-s3/t`", "`c`.`d``'`.`t`"]


@pytest.mark.quick
def test_a_star_reads_all_columns_and_a_product_does_not() -> None:
    names = ["a", "b", "c"]
    assert read_columns("SELECT * FROM t", names) == ("a", "b", "c")
    assert read_columns("SELECT t.* FROM t", names) == ("a", "b", "c")
    assert read_columns("hash(*)", names) == ("a", "b", "c")
    assert read_columns("A * c + length('b')", names) == ("a", "c")
