"""Many small tables of Parquet in a metastore, made by its own calls, and plans of them."""

from __future__ import annotations

from pathlib import Path

import hmsclient.genthrift.hive_metastore.ttypes as hive
import pyarrow as pa
import pyarrow.parquet as pq
from servers.hive_raw import raw_client

_HIVE = "org.apache.hadoop.hive.ql.io.parquet"
_ROWS = {"id": pa.array(range(10), pa.int64()), "name": [f"row {each}" for each in range(10)]}


def make_tables(port: int, database: str, directory: Path, count: int) -> None:
    """Make external tables of one file each, with statistics as Hive keeps them."""
    directory.mkdir(parents=True)
    with raw_client(port) as client:
        client.create_database(hive.Database(name=database, locationUri=f"file://{directory}"))
        for number in range(count):
            place = directory / f"t{number:04}"
            place.mkdir()
            pq.write_table(pa.table(_ROWS), place / "part-00000.parquet")
            client.create_table(_table(database, place))


def _table(database: str, place: Path) -> hive.Table:
    size = (place / "part-00000.parquet").stat().st_size
    storage = hive.StorageDescriptor(
        cols=[hive.FieldSchema("id", "bigint", ""), hive.FieldSchema("name", "string", "")],
        location=f"file://{place}",
        inputFormat=f"{_HIVE}.MapredParquetInputFormat",
        outputFormat=f"{_HIVE}.MapredParquetOutputFormat",
        serdeInfo=hive.SerDeInfo(
            name=place.name, serializationLib=f"{_HIVE}.serde.ParquetHiveSerDe", parameters={}
        ),
        parameters={},
    )
    return hive.Table(
        dbName=database,
        tableName=place.name,
        owner="them",
        sd=storage,
        partitionKeys=[],
        parameters={"EXTERNAL": "TRUE", "numRows": "10", "totalSize": str(size)},
        tableType="EXTERNAL_TABLE",
    )
