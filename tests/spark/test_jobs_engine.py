"""Namespace operations that a Spark session makes possible, and jobs on managed tables."""

from __future__ import annotations

import base64
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import lance
import lance_namespace as api
import pyarrow as pa
import pytest
from core.building import DATASET, TABLE
from core.memory_catalog import CAPABILITIES, SERVERS, MemoryNamespace, MemoryServer
from lance_namespace import errors
from pyspark.sql import SparkSession

from core import managed_tables, table_data
from lance_bridge import engine
from lance_bridge.catalog import NamespaceRecord
from lance_bridge_spark.jobs import (
    SparkEngine,
    backfill,
    clean_up,
    compact,
    create_index,
)

from .job_tables import append, make

pytestmark = [
    pytest.mark.servers,
    pytest.mark.spec(
        "operations.md#unsupported-operations", "spark.md#namespace-operations-by-spark"
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


# -- views -----------------------------------------------------------------------------------------


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
