"""The SQL catalog and the data source on every release of Spark, on a cluster, and remotely.

Each way is one process that runs checks of `sql_checks` and `source_checks` on the same real Hive
Metastore, in a database of its own. Release 4.3 on threads is what `test_catalogs` runs them on,
for all three catalogs.
"""

from __future__ import annotations

from contextlib import ExitStack
from pathlib import Path

import pytest
from servers.metastores import Metastores
from servers.sparks import CLUSTER, LOCAL, Spark

pytestmark = [
    pytest.mark.matrix,
    pytest.mark.spark,
    pytest.mark.timeout(1000),
    pytest.mark.spec("spark.md#spark-connect", "spark.md#versions"),
]

SECONDS = 900.0
"""A minute or two on a machine that does nothing else."""
ALL, SOURCE = "spark.sql_checks", "spark.source_checks"
ROWS = "spark.sql_row_checks:ROW_CHECKS"
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


@pytest.mark.parametrize(("release", "master", "checks"), _MARKED)
def test_sql_and_the_data_source_do_what_they_must_on(
    release: str, master: str, checks: list[str], metastores: Metastores, tmp_path: Path
) -> None:
    metastore = metastores.get("2.3")
    settings = {"spark.sql.catalog.hive.impl": "hive", "spark.sql.catalog.hive.uri": metastore.uri}
    database = f"matrix_{release}_{WAYS.index((release, master, checks))}".replace(".", "_")
    with ExitStack() as stack:
        spark = Spark(release, LOCAL if master == REMOTE else master, settings)
        if master == REMOTE:
            spark = stack.enter_context(spark.connect(tmp_path))
        wrong = spark.run(
            "spark.check_runner:checks",
            tmp_path,
            seconds=SECONDS,
            modules=checks,
            catalogs={"hive": [database]},
        )
    assert wrong == {}, "\n\n".join(f"{name}:\n{trace}" for name, trace in wrong.items())
