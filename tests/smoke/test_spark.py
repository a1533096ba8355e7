"""Spark's SQL on tables of Lance beside its own, and a conversion, in one session."""

from __future__ import annotations

import shutil
from pathlib import Path
from tempfile import mkdtemp

import pytest
from migrate.sessions import Scene, beside, failed, rows_of
from servers.metastores import Metastores
from spark.sql_helpers import Database

from lance_bridge_migrate import State

pytestmark = pytest.mark.smoke

CATALOG = "lake"
SQL = (
    "check_namespaces_are_created_shown_described_altered_and_dropped",
    "check_tables_are_created_shown_described_and_dropped",
    "check_what_is_not_there_is_named",
    "check_properties_are_shown_set_and_unset",
    "check_tables_are_renamed",
    "check_versions_are_read_by_number_and_by_time",
    "check_tables_are_made_of_queries",
    "check_vectors_are_made_by_property_and_kept_by_queries",
    "check_columns_are_added_renamed_retyped_commented_and_dropped",
    "check_dataframes_are_written_by_name",
    "check_rows_are_inserted_in_every_form",
    "check_queries_filter_join_group_and_limit",
    "check_rows_are_deleted",
    "check_rows_are_updated",
    "check_rows_are_merged",
    "check_vectors_are_searched_by_a_function",
)
CONVERSION = "check_a_table_is_converted_and_verified"
SECONDS = 900.0
"""Half a minute on a machine that does nothing else."""


def check_a_table_is_converted_and_verified(db: Database) -> None:
    spark, directory = db.spark, mkdtemp()
    scene = Scene(spark, spark.conf.get(f"spark.sql.catalog.{db.catalog}.uri"), directory)
    database = scene.database()
    spark.sql(
        f"CREATE TABLE {database}.orders USING parquet PARTITIONED BY (part) AS "
        f"SELECT id, concat('{db.namespace} ', id) AS name, id % 3 AS part FROM range(30)"
    )
    expected = [row.asDict() for row in spark.table(f"{database}.orders").collect()]
    with scene.converting(database) as run:
        record = run.execute(verify="checksums")
        assert record.state is State.DONE, failed(record)
        checks = record.items[f"{database}/orders"].checks
    assert {check.column for check in checks} == {"", "id", "name", "part"}
    expected.sort(key=lambda row: row["id"])
    assert rows_of(scene.dataset("orders").to_table()) == expected
    files = [path for path in Path(directory).rglob("*.lance") if path.is_file()]
    assert files, "the rows are in files of Lance"
    shutil.rmtree(directory)


@pytest.fixture(scope="module")
def wrong(metastores: Metastores, tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """The traces of the checks that failed, by their names."""
    uri = metastores.get("2.3").uri
    prefix = f"spark.sql.catalog.{CATALOG}"
    session = beside(uri, {f"{prefix}.impl": "hive", f"{prefix}.uri": uri})
    found = session.run(
        "spark.sql_helpers:checks",
        tmp_path_factory.mktemp("spark"),
        seconds=SECONDS,
        modules=["spark.sql_checks", "smoke.test_spark"],
        catalogs={CATALOG: ["smoke"]},
        only=[*SQL, CONVERSION],
    )
    return {name.removeprefix(f"{CATALOG}: "): trace for name, trace in found.items()}


@pytest.mark.parametrize("name", [*SQL, CONVERSION])
def test_spark_passes(name: str, wrong: dict[str, str]) -> None:
    assert name not in wrong, wrong[name]


def test_every_check_that_failed_is_one_of_these(wrong: dict[str, str]) -> None:
    assert wrong.keys() <= {*SQL, CONVERSION}
