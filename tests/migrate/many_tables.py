"""Many small tables of Parquet in a metastore, made by its own calls, and plans of them."""

from __future__ import annotations

from pathlib import Path

import hmsclient.genthrift.hive_metastore.ttypes as hive
import pyarrow as pa
import pyarrow.parquet as pq
from migrate.parquet_tables import external_table
from servers.hive_raw import raw_client

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
            size = (place / "part-00000.parquet").stat().st_size
            sizes = {"numRows": "10", "totalSize": str(size)}
            client.create_table(external_table(database, place.name, place, **sizes))
