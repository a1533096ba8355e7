"""What Spark says of a table whose files are gone, and that it writes nothing in their place."""

from __future__ import annotations

import pytest
from migrate.sessions import beside
from servers.metastores import Metastores

from . import missing_checks

pytestmark = [
    pytest.mark.servers,
    pytest.mark.spec("common.md#presence-of-data", "spark.md#errors"),
]

CHECKS = [each for each in vars(missing_checks) if each.startswith("check_")]
SECONDS = 900.0
"""Half a minute on a machine that does nothing else."""


@pytest.fixture(scope="module")
def wrong(metastores: Metastores, tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """The traces of the checks that failed, by their names."""
    uri = metastores.get("2.3").uri
    prefix = "spark.sql.catalog.lake"
    session = beside(uri, {f"{prefix}.impl": "hive", f"{prefix}.uri": uri})
    found = session.run(
        "spark.check_runner:checks",
        tmp_path_factory.mktemp("spark"),
        seconds=SECONDS,
        modules=["spark.missing_checks"],
        catalogs={"lake": ["missing_data"]},
    )
    return {name.removeprefix("lake: "): trace for name, trace in found.items()}


@pytest.mark.parametrize(
    "name", [each for each in vars(missing_checks) if each.startswith("check_")]
)
def test_spark_passes(name: str, wrong: dict[str, str]) -> None:
    assert name not in wrong, wrong[name]
