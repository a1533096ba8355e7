"""A conversion of a table of Spark's into one of Lance, for `spark.check_runner`."""

from __future__ import annotations

import shutil
from pathlib import Path
from tempfile import mkdtemp

from migrate.sparking import Scene, failed, rows_of
from spark.sql_helpers import Database

from lance_bridge_migrate import State


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
