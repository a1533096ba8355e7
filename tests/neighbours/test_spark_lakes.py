"""A Lance table in a metastore beside tables of Delta, Iceberg and Parquet that Spark made."""

from __future__ import annotations

from typing import Any

import pytest
from servers.metastores import Metastores
from servers.sparks import RELEASE, Spark, conf_of

pytestmark = [pytest.mark.clients, pytest.mark.timeout(1000)]

FORMATS = ("delta", "iceberg", "parquet")
STEPS = ("created", "written", "refreshed", "dropped")

NO_INPUT = "Failed to instantiate org.apache.hadoop.mapred.FileInputFormat"
NOT_FOUND = "[TABLE_OR_VIEW_NOT_FOUND]"
ERRORS = (NO_INPUT, NO_INPUT, "does not support DELETE", NOT_FOUND, NOT_FOUND)
"""Of the statements of ``spark_lakes.REFUSED``."""


@pytest.fixture(scope="module")
def seen(metastores: Metastores, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """What a session saw after each step of the life of a Lance table."""
    metastore = metastores.get("2.3")
    directory = tmp_path_factory.mktemp("spark")
    settings = {
        "spark.sql.catalogImplementation": "hive",
        "spark.hadoop.hive.metastore.uris": metastore.uri,
        **conf_of(metastore.uri),
    }
    spark = Spark(release=RELEASE, conf=settings)
    root = str(directory / "lance")
    found: dict[str, Any] = spark.run(
        "neighbours.spark_lakes:see", directory, seconds=800, port=metastore.port, root=root
    )
    return found


@pytest.fixture(params=[False, True], ids=["no columns", "published columns"])
def publishes(request: pytest.FixtureRequest) -> bool:
    return bool(request.param)


@pytest.fixture(params=STEPS)
def step(request: pytest.FixtureRequest, seen: dict[str, Any], publishes: bool) -> dict[str, Any]:
    """What the session saw after a step, with the step's name."""
    found = seen[f"{request.param}, {'published' if publishes else 'no'} columns"]
    return {**found, "step": request.param}


def test_tables_of_delta_iceberg_and_parquet_stay_as_they_were(
    seen: dict[str, Any], step: dict[str, Any]
) -> None:
    before = seen["before"]
    assert before["rows"] == {name: [[1, "a"], [2, "b"]] for name in FORMATS}
    assert step["rows"] == before["rows"]
    assert step["entries"] == before["entries"]


def test_spark_lists_it_and_the_iceberg_catalog_does_not(
    seen: dict[str, Any], step: dict[str, Any]
) -> None:
    ours = [] if step["step"] == "dropped" else ["ours"]
    before = seen["before"]
    assert step["names"]["spark_catalog"] == sorted([*before["names"]["spark_catalog"], *ours])
    assert step["names"]["ice"] == before["names"]["ice"] == ["iceberg"]
    assert step["extended"] == sorted([*before["extended"], *ours])


@pytest.mark.parametrize("step", STEPS[:-1], indirect=True)
def test_spark_describes_published_columns_and_refuses_the_rest(
    step: dict[str, Any], publishes: bool
) -> None:
    assert step["columns"] == (["id", "vector"] if publishes else [])
    for error, expected in zip(step["errors"], ERRORS, strict=True):
        assert error is not None
        assert expected in error
