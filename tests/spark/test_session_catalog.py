"""Lance tables in Spark's session catalog, over a real Hive Metastore, on each release of Spark."""

from __future__ import annotations

from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
from servers.metastores import Metastores
from servers.sparks import CLUSTER, INSTALLED, LOCAL, RELEASE, Spark, conf_of

import lance_bridge_spark as lb
from lance_bridge_spark.addresses import SESSION_CATALOG

from .sql_helpers import failure_of
from .test_configuration import run, through_thrift
from .test_matrix import require_all

pytestmark = [
    pytest.mark.servers,
    pytest.mark.spec("spark.md#session-catalog"),
]

SECONDS = 900.0
"""Two minutes on a machine that does nothing else."""
SETTING = f"spark.sql.catalog.{SESSION_CATALOG}"
LANCE_BY_DEFAULT = {
    "spark.sql.sources.default": "lance",
    "spark.sql.legacy.createHiveTableByDefault": "false",
}
RELEASES = [
    INSTALLED,
    pytest.param("4.1", marks=pytest.mark.matrix),
    pytest.param("4.2", marks=pytest.mark.matrix),
]


def plain(uri: str, **settings: str) -> dict[str, str]:
    """Return the settings of a session with Spark's own session catalog."""
    hive = {"spark.sql.catalogImplementation": "hive", "spark.hadoop.hive.metastore.uris": uri}
    return {**hive, **settings}


def ours(uri: str, **settings: str) -> dict[str, str]:
    """Return the settings of a session whose session catalog has Lance tables."""
    return lb.settings(base=plain(uri, **settings), session_catalog=True)


@pytest.mark.parametrize("release", RELEASES)
def test_statements_name_lance_tables_by_two_parts(
    release: str, metastores: Metastores, tmp_path: Path
) -> None:
    spark = Spark(release, LOCAL, ours(metastores.get("2.3").uri))
    database = f"session_{release.replace('.', '_')}"
    require_all(spark, tmp_path, ["spark.session_catalog_checks"], {SESSION_CATALOG: [database]})


@pytest.mark.matrix
@pytest.mark.parametrize("release", ["4.1", "4.2", INSTALLED])
def test_all_statements_work_in_the_session_catalog(
    release: str, metastores: Metastores, tmp_path: Path
) -> None:
    spark = Spark(release, LOCAL, ours(metastores.get("2.3").uri, **LANCE_BY_DEFAULT))
    database = f"session_all_{release.replace('.', '_')}"
    require_all(spark, tmp_path, ["spark.sql_checks"], {SESSION_CATALOG: [database]})


@pytest.mark.parametrize("release", RELEASES)
def test_tables_of_other_formats_have_the_same_results_and_plans(
    release: str, metastores: Metastores, tmp_path: Path
) -> None:
    uri, warehouse = metastores.get("2.3").uri, str(tmp_path / "warehouse")
    found = [
        Spark(release, LOCAL, settings(uri, **{"spark.sql.warehouse.dir": warehouse})).run(
            "spark.session_catalog_others:run",
            tmp_path / settings.__name__,
            seconds=SECONDS,
            database=f"others_{settings.__name__}_{release.replace('.', '_')}",
            warehouse=warehouse,
        )
        for settings in (plain, ours)
    ]
    assert found[0] == found[1]


STATEMENTS = (
    "CREATE DATABASE {db}",
    "CREATE TABLE {db}.t USING lance AS SELECT id FROM range(3)",
    "CREATE TABLE {db}.p USING parquet AS SELECT id FROM range(2)",
    "SELECT concat('found ', count(*)) FROM {db}.t JOIN {db}.p USING (id)",
)


@pytest.mark.matrix
@pytest.mark.parametrize("command", ["spark-sql", "beeline"])
def test_commands_use_the_session_catalog(
    command: str, metastores: Metastores, tmp_path: Path
) -> None:
    given = Spark(conf=ours(metastores.get("2.3").uri)).settings(tmp_path)
    jars = given.pop("spark.jars")
    pairs = [part for key, value in given.items() for part in ("--conf", f"{key}={value}")]
    arguments = ["--master", LOCAL, "--jars", jars, *pairs]
    statements = [each.format(db=f"by_{command.replace('-', '_')}") for each in STATEMENTS]
    if command == "spark-sql":
        printed = run(command, *arguments, "-e", "; ".join(statements), directory=tmp_path)
    else:
        # Its sessions load classes without those of --jars.
        printed = through_thrift(["--driver-class-path", jars, *arguments], statements, tmp_path)
    assert [line for line in printed if line.endswith("found 2")]


@pytest.mark.matrix
@pytest.mark.parametrize("master", [CLUSTER, "a remote server"])
def test_executors_and_remote_clients_use_the_session_catalog(
    master: str, metastores: Metastores, tmp_path: Path
) -> None:
    database = f"session_on_{'cluster' if master == CLUSTER else 'connect'}"
    with ExitStack() as stack:
        spark = Spark(
            INSTALLED, CLUSTER if master == CLUSTER else LOCAL, ours(metastores.get("2.3").uri)
        )
        if master != CLUSTER:
            spark = stack.enter_context(spark.connect(tmp_path))
        require_all(
            spark, tmp_path, ["spark.session_catalog_checks"], {SESSION_CATALOG: [database]}
        )


DELEGATES = {
    "delta": "org.apache.spark.sql.delta.catalog.DeltaCatalog",
    "iceberg": "org.apache.iceberg.spark.SparkSessionCatalog",
}


@pytest.mark.matrix
@pytest.mark.parametrize("lake", DELEGATES)
def test_the_session_catalog_of_a_lake_keeps_its_tables(
    lake: str, metastores: Metastores, tmp_path: Path
) -> None:
    uri, results = metastores.get("2.3").uri, []
    iceberg = {f"{SETTING}.type": "hive", f"{SETTING}.uri": uri} if lake == "iceberg" else {}
    base = {**plain(uri), **conf_of(uri), SETTING: DELEGATES[lake], **iceberg}
    for name, settings in (
        ("alone", base),
        ("delegate", lb.settings(base=base, session_catalog=True)),
    ):
        results.append(
            Spark(RELEASE, LOCAL, settings).run(
                "spark.session_catalog_others:lake",
                tmp_path / name,
                seconds=SECONDS,
                database=f"lake_{lake}_{name}",
                format=lake,
            )
        )
    assert results[0] == results[1]


@pytest.mark.slow
@pytest.mark.parametrize(
    "missing", ["spark.hadoop.hive.metastore.uris", "spark.sql.catalogImplementation"]
)
def test_a_session_without_a_metastore_says_what_to_set(missing: str, tmp_path: Path) -> None:
    settings = {**ours("thrift://127.0.0.1:1"), "spark.sql.catalogImplementation": "in-memory"}
    del settings[missing]
    found = Spark(INSTALLED, LOCAL, settings).run("spark.test_session_catalog:create", tmp_path)
    assert "set spark.sql.catalogImplementation=hive, and its address" in found


@pytest.mark.slow
def test_a_delegate_that_cannot_be_loaded_is_named(tmp_path: Path) -> None:
    settings = {**ours("thrift://127.0.0.1:1"), f"{SETTING}.lance.delegate": "org.example.Missing"}
    found = Spark(INSTALLED, LOCAL, settings).run("spark.test_session_catalog:create", tmp_path)
    assert "lance.delegate is org.example.Missing" in found


def create(spark: Any) -> str | None:
    """Return why a Lance table cannot be created, after Spark's own tables were used."""
    failure = failure_of(lambda: spark.sql("CREATE TABLE default.t (id INT) USING lance"))
    if "delegate" not in str(failure):
        spark.sql("CREATE DATABASE other")
        spark.sql("CREATE TABLE other.t USING parquet AS SELECT 1 AS id")
        spark.sql("DROP DATABASE other CASCADE")
    return failure
