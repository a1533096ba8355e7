"""Every statement on each of the three catalogs, beside ordinary tables where Spark has them."""

from __future__ import annotations

import pytest
from servers.glue_server import GlueServer
from servers.metastores import Metastores
from servers.sparks import Spark
from servers.unity.process import UnityProcess

pytestmark = [pytest.mark.spark, pytest.mark.server, pytest.mark.timeout(600), pytest.mark.matrix]

SQL, SOURCE, NEIGHBOURS = "spark.sql_checks", "spark.source_checks", "spark.neighbour_checks"
DATABASE = "spark_catalogs"


def settings(catalog: str, properties: dict[str, str]) -> dict[str, str]:
    """Return what a session needs to know of a catalog."""
    return {f"spark.sql.catalog.{catalog}.{key}": value for key, value in properties.items()}


@pytest.fixture(scope="module")
def wrong(metastores: Metastores, tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """What went wrong in one session, on a metastore as Spark's own, with three catalogs."""
    directory = tmp_path_factory.mktemp("catalogs")
    uri = metastores.get("2.3").uri
    with GlueServer() as glue, UnityProcess(catalogs=["c"]) as unity:
        roots = {name: str(directory / name) for name in ("glue", "unity")}
        spark = Spark(
            conf={
                "spark.sql.catalogImplementation": "hive",
                "spark.hadoop.hive.metastore.uris": uri,
                **settings("hive", {"impl": "hive", "uri": uri}),
                **settings("glue", {"impl": "glue", "root": roots["glue"], **glue.properties}),
                **settings("unity", {"impl": "unity", "host": unity.url, "root": roots["unity"]}),
            }
        )
        found: dict[str, str] = spark.run(
            "spark.running:checks",
            directory,
            seconds=550,
            modules=[NEIGHBOURS, SQL, SOURCE],
            catalogs={"hive": [DATABASE], "glue": [DATABASE], "unity": ["c", DATABASE]},
        )
    return found


@pytest.mark.parametrize("catalog", ["hive", "glue", "unity"])
def test_all_statements_work_on(catalog: str, wrong: dict[str, str]) -> None:
    errors = [f"{name}:\n{trace}" for name, trace in wrong.items() if name.startswith(catalog)]
    assert errors == [], "\n\n".join(errors)
