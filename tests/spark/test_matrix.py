"""The SQL catalog, the data source and jobs on every catalog and release of Spark, and remotely.

Each way is one process that runs checks of `sql_checks` and `source_checks`. Release 4.3 on threads
runs them on all three catalogs; the other releases, a cluster and a remote server on the same real
Hive Metastore, each in a database of its own.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import lance
import numpy as np
import pyarrow as pa
import pytest
from servers.glue_server import GlueServer
from servers.metastores import Metastores
from servers.sparks import CLUSTER, LOCAL, Remote, Spark
from servers.unity import UnityServer

import lance_bridge_spark as lb

pytestmark = [
    pytest.mark.matrix,
    pytest.mark.spec(
        "docs/how-to/spark.md#what-was-run",
        "spark.md#create-and-replace-with-a-query",
        "spark.md#errors",
        "spark.md#limits-and-known-weaknesses",
        "spark.md#metadata-tables",
        "spark.md#options-of-other-formats",
        "spark.md#procedures",
        "spark.md#register",
        "spark.md#schema-evolution",
        "spark.md#searches-in-sql",
        "spark.md#spark-connect",
        "spark.md#statements",
        "spark.md#streams",
        "spark.md#tables-of-other-formats",
        "spark.md#time-travel",
        "spark.md#unsupported-statements",
        "spark.md#versions",
        "spark.md#what-is-pushed-down",
        "spark.md#write-order",
    ),
]

SECONDS = 900.0
"""Three minutes on a machine that does nothing else."""
ALL, SOURCE = "spark.sql_checks", "spark.source_checks"
ROWS = "spark.sql_row_checks"
REMOTE = "a remote server"
WAYS = [
    ("4.1", LOCAL, [ALL, SOURCE]),  # these two in CI, too
    ("4.2", LOCAL, [ALL, SOURCE]),
    # What tasks do elsewhere, or a client without a JVM, is in rows and not in entries.
    ("4.1", CLUSTER, [ROWS]),
    ("4.3", CLUSTER, [ROWS, SOURCE]),
    ("4.1", REMOTE, [ROWS]),
    ("4.3", REMOTE, [ROWS, SOURCE]),
]
_MARKED = [pytest.param(*way, marks=[pytest.mark.releases][: way[1] == LOCAL]) for way in WAYS]


def require_all(
    spark: Spark, directory: Path, modules: list[str], catalogs: Mapping[str, list[str]]
) -> None:
    """Run the checks of modules in a session, in namespaces of its catalogs."""
    wrong = spark.run(
        "spark.sql_helpers:checks", directory, seconds=SECONDS, modules=modules, catalogs=catalogs
    )
    assert wrong == {}, "\n\n".join(f"{name}:\n{trace}" for name, trace in wrong.items())


@pytest.mark.parametrize(("release", "master", "checks"), _MARKED)
def test_sql_and_the_data_source_do_what_they_must_on(
    release: str, master: str, checks: list[str], metastores: Metastores, tmp_path: Path
) -> None:
    uri = metastores.get("2.3").uri
    settings = {"spark.sql.catalog.hive.impl": "hive", "spark.sql.catalog.hive.uri": uri}
    database = f"matrix_{release}_{WAYS.index((release, master, checks))}".replace(".", "_")
    with ExitStack() as stack:
        spark = Spark(release, LOCAL if master == REMOTE else master, settings)
        if master == REMOTE:
            spark = stack.enter_context(spark.connect(tmp_path))
        require_all(spark, tmp_path, checks, {"hive": [database]})


# -- catalogs --------------------------------------------------------------------------------------

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


@pytest.mark.parametrize("catalog", NAMESPACES)
def test_all_statements_work_on(catalog: str, metastores: Metastores, tmp_path: Path) -> None:
    """Beside ordinary tables, where Spark has them."""
    uri = metastores.get("2.3").uri
    with properties_of(catalog, uri, tmp_path / catalog) as properties:
        spark = Spark(
            conf={
                "spark.sql.catalogImplementation": "hive",
                "spark.hadoop.hive.metastore.uris": uri,
                **{f"spark.sql.catalog.{catalog}.{key}": each for key, each in properties.items()},
            }
        )
        modules = ["spark.spark_catalog_checks", ALL, SOURCE]
        require_all(spark, tmp_path, modules, {catalog: NAMESPACES[catalog]})


# -- a client of Spark Connect, which has no JVM ---------------------------------------------------

EXPECTED: dict[str, dict[str, Any]] = {
    "functions": {
        "count": 10,
        "read": [0, 1, 2],
        "update": 2,
        "delete": 1,
        "merge": [2, 2],
        "rows": list(range(1, 12)),
        "versions": 5,
        "take": [2, 1],
        "restored": 10,
    },
    "searches": {"nearest": [0], "full_text": [3], "batch": [9]},
    "jobs": {
        "compact": 1,
        "index": "id_idx",
        "backfill": [2 * i for i in range(10)],
        "refresh": False,
        "view": [8, 9, 90],
        "clean_up": 0,
    },
}


@pytest.fixture(scope="module")
def remote(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Remote]:
    with Spark().connect(tmp_path_factory.mktemp("connect")) as found:
        yield found


@pytest.mark.parametrize("what", EXPECTED)
def test_a_client_of_spark_connect_does_all_that_a_session_does(
    remote: Remote, tmp_path: Path, what: str
) -> None:
    found = remote.run(
        f"spark.test_matrix:{what}", tmp_path, seconds=500.0, directory=str(tmp_path)
    )
    assert found == EXPECTED[what]


def functions(spark: Any, directory: str) -> dict[str, Any]:
    """Write, read and change a table by functions; return what each came to."""
    place = str(Path(directory) / "t.lance")
    rows = spark.range(10).selectExpr("id", "id * 10 AS v", "CAST(id AS STRING) AS s")
    lb.write(rows, place)
    found: dict[str, Any] = {"count": lb.count(spark, place)}
    read = lb.read(spark, place, columns=["id"], filter=lb.col("id") < 3)
    found["read"] = sorted(row.id for row in read.collect())
    found["update"] = lb.update(spark, place, {"v": "v + 1"}, "id >= 8").updated
    found["delete"] = lb.delete(spark, place, "s = '0'").deleted
    source = spark.range(8, 12).selectExpr("id", "-1L AS v", "'new' AS s")
    merged = lb.merge_into(
        source, place, ["id"], when_matched_update="*", when_not_matched_insert="*"
    )
    found["merge"] = [merged.updated, merged.inserted]
    found["rows"] = sorted(lance.dataset(place).to_table()["id"].to_pylist())
    found["versions"] = lb.versions(spark, place).count()
    found["take"] = [row.id for row in lb.take(spark, place, [2, 1], columns=["id"]).collect()]
    lb.restore(spark, place, 2)
    found["restored"] = lb.count(spark, place)
    return found


def searches(spark: Any, directory: str) -> dict[str, Any]:
    """Search a table, for one vector, for words, and for the vectors of a DataFrame."""
    place = str(Path(directory) / "v.lance")
    vectors = pa.array(np.arange(40, dtype=np.float32))
    table = pa.table(
        {
            "id": range(10),
            "t": [f"word{i}" for i in range(10)],
            "v": pa.FixedSizeListArray.from_arrays(vectors, 4),
        }
    )
    lance.write_dataset(table, place, max_rows_per_file=5)
    near = lb.nearest(spark, place, "v", [0.0, 1.0, 2.0, 3.0], 1)
    lb.create_index(spark, place, "t", "FTS")
    text = lb.full_text(spark, place, "word3", ["t"])
    queries = spark.createDataFrame([(1, [36.0, 37.0, 38.0, 39.0])], "q int, qv array<double>")
    batch = lb.nearest_batch(queries, place, "v", "qv", 1)
    return {
        name: [row.id for row in frame.collect()]
        for name, frame in {"nearest": near, "full_text": text, "batch": batch}.items()
    }


def jobs(spark: Any, directory: str) -> dict[str, Any]:
    """Maintain a table by every job; return what each came to."""
    place, view = (str(Path(directory) / name) for name in ("j.lance", "view.lance"))
    lance.write_dataset(pa.table({"id": range(10)}), place, max_rows_per_file=2)
    found: dict[str, Any] = {}
    found["compact"] = lb.compact(spark, place).fragments_added
    found["index"] = lb.create_index(spark, place, "id", "BTREE").name
    lb.backfill(spark, place, "twice", "id * 2")
    found["backfill"] = lance.dataset(place).to_table()["twice"].to_pylist()
    lb.create_materialized_view(spark, view, f"SELECT id FROM lance.`{place}` WHERE id > 7")
    lance.write_dataset(pa.table({"id": [90], "twice": [180]}), place, mode="append")
    found["refresh"] = lb.refresh_materialized_view(spark, view).is_full
    found["view"] = sorted(lance.dataset(view).to_table()["id"].to_pylist())
    found["clean_up"] = lb.clean_up(spark, place).versions
    return found
