"""What a plan of tables for Spark finds out, and with how many calls of the metastore."""

from __future__ import annotations

import json
import shutil
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import hmsclient.genthrift.hive_metastore.ttypes as hive
import pytest
from cli.running import program
from migrate.many_tables import make_tables
from migrate.places import Place
from migrate.sparking import Scene, replaced
from servers.hive_raw import raw_client
from servers.proxy import ThriftProxy

pytestmark = [pytest.mark.spark, pytest.mark.timeout(300), pytest.mark.spec("migration.md#convert")]

TABLES = 150


@pytest.mark.slow
def test_a_plan_asks_the_metastore_for_each_table_once(hive: Place, tmp_path: Path) -> None:
    port = hive.port
    make_tables(port, hive.prefix, tmp_path / "raw", TABLES)
    with ThriftProxy("127.0.0.1", port) as proxy:
        where = ["-p", f"uri={proxy.uri}", "-p", f"root={tmp_path / 'lance'}"]
        what = ["--include", f"{hive.prefix}.*", "--namespace", f"{hive.prefix}_lance"]
        how = ["--state", str(tmp_path / "state"), "--output", "json"]
        done = program("migrate", "convert", "hive", *what, *where, *how, seconds=280)
        assert done.returncode == 0, done.stderr[-3000:]
        calls = proxy.calls
    items = json.loads(done.stdout)["items"]
    assert [item["rows"] for item in items[1:]] == [10] * TABLES
    assert not any(item["problems"] for item in items)
    assert calls["get_table"] <= TABLES, calls
    assert sum(calls.values()) <= TABLES + 60, calls


@pytest.mark.spec("migration.md#plan")
@pytest.mark.servers
def test_the_zone_of_the_session_is_in_the_plan(scene: Scene) -> None:
    database, key = scene.database(), "spark.sql.session.timeZone"
    scene.spark.sql(f"CREATE TABLE {database}.t USING parquet AS SELECT 1 AS id")
    before = scene.spark.conf.get(key)
    scene.spark.conf.unset(key)
    try:
        zone = scene.spark.conf.get(key)
        with scene.converting(database) as run:
            assert run.migration.plan().source.properties[key] == zone
    finally:
        scene.spark.conf.set(key, before)


@pytest.mark.servers
def test_types_of_later_files_are_in_the_plan(scene: Scene) -> None:
    database, raw = scene.database(), scene.directory / "raw"
    for form in ("parquet", "orc"):
        name = f"later_{form}"
        scene.spark.sql(f"CREATE TABLE {database}.{name} (id STRING, n BIGINT) USING {form}")
        scene.spark.sql(f"INSERT INTO {database}.{name} VALUES ('a', 1)")
        other = scene.spark.sql("SELECT id, CAST(id AS INT) AS n FROM range(3)").coalesce(1)
        other.write.format(form).save(str(scene.directory / form))
        for number, file in enumerate((scene.directory / form).glob(f"part-*.{form}")):
            shutil.copy(file, raw / name / f"zzz-{number}.{form}")
    # Spark reads INT32 as BIGINT.
    scene.spark.sql(f"CREATE TABLE {database}.wider (n BIGINT) USING parquet")
    scene.spark.sql("SELECT CAST(id AS INT) AS n FROM range(3)").write.mode("append").parquet(
        str(raw / "wider")
    )
    with scene.run("convert") as run:
        options: dict[str, Any] = {"include": [f"{database}.*"], "namespace": [scene.target]}
        for count_rows in (True, False):
            plan = run.plan(**options, count_rows=count_rows)
            texts = {item.source[-1]: item.blockers[0].text for item in plan.blocked}
            assert "types of its columns" in texts["later_parquet"]
            assert "zzz-0.parquet" in texts["later_parquet"]
        [wider] = [item for item in plan.to_do if item.source[-1:] == ("wider",)]
        assert wider.problems == ()


@pytest.mark.servers
def test_rows_of_many_files_are_counted_and_some_types_compared(scene: Scene) -> None:
    database = scene.database()
    scene.spark.sql(
        f"CREATE TABLE {database}.many USING parquet AS SELECT id FROM range(0, 360, 1, 120)"
    )
    with scene.run("convert") as run:
        plan = run.plan(include=[f"{database}.*"], namespace=[scene.target])
        [_, many] = plan.items
        assert many.rows == 360
        [problem] = many.problems
        assert "The types of 100 of its 120 files were compared" in problem.text


class _Usage(NamedTuple):
    total: int
    used: int
    free: int


def _always(usage: _Usage, _: Any) -> Any:
    return lambda _: usage


@pytest.mark.servers
def test_space_that_is_not_free_is_in_the_plan(scene: Scene) -> None:
    database = scene.database()
    scene.spark.sql(f"CREATE TABLE {database}.t USING parquet AS SELECT id FROM range(100)")
    options: dict[str, Any] = {"include": [f"{database}.*"], "namespace": [scene.target]}
    with scene.run("convert") as run:
        [size] = [item.bytes for item in run.plan(**options).items if item.bytes]
        for free, notes in ((size, []), (size - 1, [f"{size:,} bytes, and {size - 1:,} are free"])):
            usage = _Usage(9, 9, free)
            with replaced(shutil, "disk_usage", partial(_always, usage)):
                found = run.plan(**options).notes
            assert len(found) == len(notes)
            assert all(part in note for part, note in zip(notes, found, strict=True))


@pytest.mark.servers
def test_a_session_without_a_package_names_it(scene: Scene) -> None:
    """Entries as Delta and Iceberg make them, in a session that has neither."""
    database = scene.database()
    port = scene.place.port
    kinds = {
        "a_delta": {"spark.sql.sources.provider": "delta"},
        "an_iceberg": {"table_type": "ICEBERG", "metadata_location": "file:/nowhere/v1.json"},
    }
    with raw_client(port) as client:
        for name, parameters in kinds.items():
            client.create_table(_entry(scene, database, name, parameters))
    with scene.run("convert") as run:
        plan = run.plan(include=[f"{database}.*"], namespace=[scene.target])
        texts = {item.source[-1]: item.blockers[0].text for item in plan.blocked}
    assert "io.delta:delta-spark" in texts["a_delta"], texts
    assert "org.apache.iceberg:iceberg-spark-runtime" in texts["an_iceberg"], texts


def _entry(scene: Scene, database: str, name: str, parameters: dict[str, str]) -> Any:
    place = scene.directory / "raw" / name
    place.mkdir(parents=True)
    serde = hive.SerDeInfo(
        serializationLib="org.apache.hadoop.hive.serde2.lazy.LazySimpleSerDe", parameters={}
    )
    storage = hive.StorageDescriptor(
        cols=[hive.FieldSchema("id", "bigint", None)],
        location=place.as_uri(),
        inputFormat="org.apache.hadoop.mapred.FileInputFormat",
        outputFormat="org.apache.hadoop.mapred.FileOutputFormat",
        serdeInfo=serde,
        parameters={"path": place.as_uri()},
        bucketCols=[],
        sortCols=[],
    )
    return hive.Table(
        dbName=database,
        tableName=name,
        owner="somebody",
        sd=storage,
        partitionKeys=[],
        parameters={"EXTERNAL": "TRUE", **parameters},
        tableType="EXTERNAL_TABLE",
    )
