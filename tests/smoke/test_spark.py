"""Spark's SQL on tables of Lance beside its own, and a conversion, in one session."""

from __future__ import annotations

import pytest
from migrate.sessions import beside
from servers.metastores import Metastores

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


@pytest.fixture(scope="module")
def wrong(metastores: Metastores, tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """The traces of the checks that failed, by their names."""
    uri = metastores.get("2.3").uri
    prefix = f"spark.sql.catalog.{CATALOG}"
    session = beside(uri, {f"{prefix}.impl": "hive", f"{prefix}.uri": uri})
    found = session.run(
        "spark.check_runner:checks",
        tmp_path_factory.mktemp("spark"),
        seconds=SECONDS,
        modules=["spark.sql_checks", "smoke.conversion"],
        catalogs={CATALOG: ["smoke"]},
        only=[*SQL, CONVERSION],
    )
    return {name.removeprefix(f"{CATALOG}: "): trace for name, trace in found.items()}


@pytest.mark.parametrize("name", [*SQL, CONVERSION])
def test_spark_passes(name: str, wrong: dict[str, str]) -> None:
    assert name not in wrong, wrong[name]


def test_every_check_that_failed_is_one_of_these(wrong: dict[str, str]) -> None:
    assert wrong.keys() <= {*SQL, CONVERSION}
