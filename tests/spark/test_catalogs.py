"""Every statement on each of the three catalogs, beside ordinary tables where Spark has them."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from servers.glue_server import GlueServer
from servers.metastores import Metastores
from servers.sparks import Spark
from servers.unity import UnityServer

pytestmark = [
    pytest.mark.matrix,
    pytest.mark.spark,
    pytest.mark.timeout(1000),
    pytest.mark.spec(
        "spark.md#create-and-replace-with-a-query",
        "spark.md#errors",
        "spark.md#limits-and-known-weaknesses",
        "spark.md#register",
        "spark.md#schema-evolution",
        "spark.md#searches-in-sql",
        "spark.md#statements",
        "spark.md#streams",
        "spark.md#tables-of-other-formats",
        "spark.md#time-travel",
        "spark.md#unsupported-statements",
        "spark.md#what-is-pushed-down",
        "spark.md#write-order",
    ),
]

SECONDS = 900.0
"""Three minutes on a machine that does nothing else."""
CHECKS = ["spark.spark_catalog_checks", "spark.sql_checks", "spark.source_checks"]
DATABASE = "spark_catalogs"
NAMESPACES = {"hive": [DATABASE], "glue": [DATABASE], "unity": ["c", DATABASE]}


@contextmanager
def properties_of(catalog: str, metastore: str, root: Path) -> Iterator[dict[str, str]]:
    """Run the server of a catalog, but for the metastore that is there; give its properties."""
    if catalog == "hive":
        yield {"impl": "hive", "uri": metastore}
    elif catalog == "glue":
        with GlueServer() as glue:
            yield {"impl": "glue", "root": str(root), **glue.properties}
    else:
        with UnityServer() as unity:
            unity.add_catalog("c")
            yield {"impl": "unity", "host": unity.url, "root": str(root)}


@pytest.mark.parametrize("catalog", ["hive", "glue", "unity"])
def test_all_statements_work_on(catalog: str, metastores: Metastores, tmp_path: Path) -> None:
    uri = metastores.get("2.3").uri
    with properties_of(catalog, uri, tmp_path / catalog) as properties:
        spark = Spark(
            conf={
                "spark.sql.catalogImplementation": "hive",
                "spark.hadoop.hive.metastore.uris": uri,
                **{f"spark.sql.catalog.{catalog}.{key}": each for key, each in properties.items()},
            }
        )
        wrong = spark.run(
            "spark.check_runner:checks",
            tmp_path,
            seconds=SECONDS,
            modules=CHECKS,
            catalogs={catalog: NAMESPACES[catalog]},
        )
    assert wrong == {}, "\n\n".join(f"{name}:\n{trace}" for name, trace in wrong.items())
