"""Tables of Delta and of Iceberg become tables of Lance, and are caught up with."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import pytest
from migrate import lake_checks as checks
from migrate import package_checks
from migrate.lakes import ICE
from migrate.sessions import Checker, beside, checker
from servers.metastores import Metastores
from servers.sparks import ROOT

pytestmark = [pytest.mark.server, pytest.mark.spark, pytest.mark.timeout(600)]

RELEASE = "4.1"
"""The latest release of Spark that both Delta and Iceberg are made for."""
PACKAGES = (
    "io.delta:delta-spark_4.1_2.13:4.4.0",
    "org.apache.iceberg:iceberg-spark-runtime-4.1_2.13:1.12.0",
)
EXTENSIONS = (
    "io.delta.sql.DeltaSparkSessionExtension",
    "org.apache.iceberg.spark.extensions.IcebergSparkSessionExtensions",
)


def conf_of(uri: str) -> dict[str, str]:
    """Return the settings with which a session has tables of Delta, and a catalog of Iceberg's."""
    ice = f"spark.sql.catalog.{ICE}"
    return {
        "spark.jars.packages": ",".join(PACKAGES),
        "spark.jars.ivy": str(ROOT / ".cache" / "ivy"),
        "spark.sql.extensions": ",".join(EXTENSIONS),
        "spark.sql.catalog.spark_catalog": "org.apache.spark.sql.delta.catalog.DeltaCatalog",
        ice: "org.apache.iceberg.spark.SparkCatalog",
        f"{ice}.type": "hive",
        f"{ice}.uri": uri,
        # This metastore has no tables for locks, and there is one writer.
        "spark.hadoop.iceberg.engine.hive.lock-enabled": "false",
        "spark.databricks.delta.retentionDurationCheck.enabled": "false",
        "spark.databricks.delta.snapshotPartitions": "1",
        # As many tasks list the files for a VACUUM; by default 10,000.
        "spark.sql.sources.parallelPartitionDiscovery.parallelism": "2",
    }


@pytest.fixture(scope="module")
def beside_lakes(
    metastores: Metastores, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Checker]:
    """A session of Spark 4.1 with tables of Delta, and with a catalog of those of Iceberg."""
    uri = metastores.get("2.3").uri
    spark = replace(beside(uri, conf_of(uri)), release=RELEASE)
    with checker(spark, uri, tmp_path_factory.mktemp("spark")) as running:
        yield running


def test_a_session_without_the_package_is_told_which(beside_hive: Checker) -> None:
    beside_hive(package_checks.check_tables_whose_package_is_missing)


@pytest.mark.matrix
def test_delta_is_converted_as_it_was_planned_while_it_changes(
    beside_lakes: Checker,
) -> None:
    beside_lakes(checks.check_delta_is_converted_while_it_changes)


@pytest.mark.matrix
def test_iceberg_is_converted_as_it_was_planned_while_it_changes(
    beside_lakes: Checker,
) -> None:
    beside_lakes(checks.check_iceberg_is_converted_while_it_changes)


@pytest.mark.matrix
def test_delta_is_caught_up_with_by_its_versions(beside_lakes: Checker) -> None:
    beside_lakes(checks.check_delta_by_snapshot)


@pytest.mark.matrix
def test_iceberg_is_caught_up_with_by_its_snapshots(beside_lakes: Checker) -> None:
    beside_lakes(checks.check_iceberg_by_snapshot)


@pytest.mark.matrix
def test_no_more_is_read_than_what_changed_where_the_format_tells(beside_lakes: Checker) -> None:
    beside_lakes(checks.check_no_more_is_read_than_what_changed)


@pytest.mark.matrix
def test_delta_is_caught_up_with_by_partition_and_by_a_column(beside_lakes: Checker) -> None:
    beside_lakes(checks.check_delta_by_partition_and_by_a_column)


@pytest.mark.matrix
def test_iceberg_is_caught_up_with_by_partition_and_by_a_column(beside_lakes: Checker) -> None:
    beside_lakes(checks.check_iceberg_by_partition_and_by_a_column)


@pytest.mark.matrix
def test_a_version_of_delta_that_was_vacuumed_is_to_be_planned_anew(beside_lakes: Checker) -> None:
    beside_lakes(checks.check_a_version_of_delta_that_was_vacuumed)


@pytest.mark.matrix
def test_a_snapshot_of_iceberg_that_expired_is_to_be_planned_anew(beside_lakes: Checker) -> None:
    beside_lakes(checks.check_a_snapshot_of_iceberg_that_expired)


@pytest.mark.matrix
def test_a_table_of_delta_that_was_made_anew_is_not_caught_up_with(beside_lakes: Checker) -> None:
    beside_lakes(checks.check_a_table_of_delta_that_was_made_anew)


@pytest.mark.matrix
def test_a_table_of_iceberg_that_was_made_anew_is_not_caught_up_with(beside_lakes: Checker) -> None:
    beside_lakes(checks.check_a_table_of_iceberg_that_was_made_anew)


@pytest.mark.matrix
def test_directories_of_delta_and_iceberg_have_snapshots_too(
    beside_lakes: Checker,
) -> None:
    beside_lakes(checks.check_paths)


@pytest.mark.matrix
def test_what_others_wrote_to_iceberg_is_seen(beside_lakes: Checker) -> None:
    beside_lakes(checks.check_what_others_wrote_to_iceberg_is_seen)


@pytest.mark.matrix
def test_partitions_of_iceberg_that_are_no_columns_are_told(beside_lakes: Checker) -> None:
    beside_lakes(checks.check_partitions_of_iceberg_that_are_no_columns)


@pytest.mark.matrix
def test_a_table_of_iceberg_without_a_snapshot_has_no_rows(beside_lakes: Checker) -> None:
    beside_lakes(checks.check_a_table_of_iceberg_without_a_snapshot)
