"""Tables of Parquet in a metastore, as Hive itself would have them, and rows that are added."""

from __future__ import annotations

from pathlib import Path

import hmsclient.genthrift.hive_metastore.ttypes as hive
import pyarrow as pa
import pyarrow.parquet as pq
from servers.hive_raw import raw_client

_HIVE = "org.apache.hadoop.hive.ql.io.parquet"


def make_parquet_table(port: int, database: str, name: str, place: Path) -> None:
    """Make a database with an external table of ids and names, without rows."""
    place.mkdir(parents=True)
    with raw_client(port) as client:
        client.create_database(hive.Database(name=database, locationUri=f"file://{place.parent}"))
        client.create_table(external_table(database, name, place))


def external_table(database: str, name: str, place: Path, **parameters: str) -> hive.Table:
    """Return an external table of ids and names."""
    storage = hive.StorageDescriptor(
        cols=[hive.FieldSchema("id", "bigint", ""), hive.FieldSchema("name", "string", "")],
        location=f"file://{place}",
        inputFormat=f"{_HIVE}.MapredParquetInputFormat",
        outputFormat=f"{_HIVE}.MapredParquetOutputFormat",
        serdeInfo=hive.SerDeInfo(
            name=name, serializationLib=f"{_HIVE}.serde.ParquetHiveSerDe", parameters={}
        ),
        parameters={},
    )
    return hive.Table(
        dbName=database,
        tableName=name,
        owner="them",
        sd=storage,
        partitionKeys=[],
        parameters={"EXTERNAL": "TRUE", **parameters},
        tableType="EXTERNAL_TABLE",
    )


def add_rows(place: Path, start: int, stop: int) -> None:
    """Add a file with the rows of some ids."""
    pq.write_table(_rows(start, stop), place / f"part-{start:05}.parquet")


def make_many_tables(port: int, database: str, directory: Path, count: int) -> None:
    """Make external tables of one file with ten rows each, with statistics as Hive keeps them."""
    directory.mkdir(parents=True)
    with raw_client(port) as client:
        client.create_database(hive.Database(name=database, locationUri=f"file://{directory}"))
        for number in range(count):
            place = directory / f"t{number:04}"
            place.mkdir()
            add_rows(place, 0, 10)
            size = (place / "part-00000.parquet").stat().st_size
            sizes = {"numRows": "10", "totalSize": str(size)}
            client.create_table(external_table(database, place.name, place, **sizes))


def _rows(start: int, stop: int) -> pa.Table:
    ids = range(start, stop)
    return pa.table({"id": pa.array(ids, pa.int64()), "name": [f"row {each}" for each in ids]})
