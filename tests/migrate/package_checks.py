"""What `test_lakes` checks in a session that cannot read tables of Delta and Iceberg."""

from __future__ import annotations

from typing import Any

import hmsclient.genthrift.hive_metastore.ttypes as hive
from migrate.sparking import Scene
from servers.hive_raw import raw_client


def check_tables_whose_package_is_missing(scene: Scene) -> None:
    """Entries as Delta and Iceberg make them, in a session that has neither."""
    database = scene.database()
    port = int(scene.place.properties["uri"].rsplit(":", 1)[1])
    kinds = {
        "a_delta": {"spark.sql.sources.provider": "delta"},
        "an_iceberg": {"table_type": "ICEBERG", "metadata_location": "file:/nowhere/v1.json"},
    }
    with raw_client(port) as client:
        for name, parameters in kinds.items():
            client.create_table(_entry(scene, database, name, parameters))
    with scene.run("convert") as run:
        plan = run.plan(include=[f"{database}.*"], namespace=[scene.target])
        told = {item.source[-1]: item.blockers[0].text for item in plan.blocked}
    assert "io.delta:delta-spark" in told["a_delta"], told
    assert "org.apache.iceberg:iceberg-spark-runtime" in told["an_iceberg"], told


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
