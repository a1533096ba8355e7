"""What keeps DropTable from deleting on Glue: partitions of other entries."""

from __future__ import annotations

import lance
import pyarrow as pa
import pytest
from lance_namespace.errors import InvalidTableStateError
from servers.glue_server import GlueServer
from servers.http_proxy import HttpProxy

from lance_bridge.testing.calls import Calls

from .building import BUCKET, Connect

pytestmark = pytest.mark.server

ROWS = pa.table({"id": [0, 1, 2]})


def register(calls: Calls, server: GlueServer, table: list[str]) -> tuple[list[str], str]:
    place = f"s3://{BUCKET}/{table[0]}/{table[1]}.lance"
    lance.write_dataset(ROWS, place, storage_options=server.storage_options)
    calls.register_table(table, place)
    return table, place


def put(server: GlueServer, uri: str) -> None:
    bucket, _, key = uri.removeprefix("s3://").partition("/")
    server.put(bucket, key)


def make_partitioned(
    server: GlueServer, table: list[str], places: list[str], **parameters: str
) -> None:
    database, name = table
    server.glue.create_table(
        DatabaseName=database,
        TableInput={
            "Name": name,
            "TableType": "EXTERNAL_TABLE",
            "StorageDescriptor": {"Location": f"s3://{BUCKET}/{database}/own-{name}"},
            "PartitionKeys": [{"Name": "day", "Type": "string"}],
            "Parameters": parameters,
        },
    )
    for number, place in enumerate(places):
        server.glue.create_partition(
            DatabaseName=database,
            TableName=name,
            PartitionInput={"Values": [str(number)], "StorageDescriptor": {"Location": place}},
        )


def test_a_partition_inside_the_location_keeps_its_table_from_being_dropped(
    calls: Calls, connect: Connect, server: GlueServer, database: str
) -> None:
    table, place = register(calls, server, [database, "t"])
    inside = f"{place}/data/day=1"
    make_partitioned(
        server, [database, "days"], [f"s3://{BUCKET}/{database}/day=0", inside.replace("s3", "s3a")]
    )
    put(server, f"{inside}/0001.parquet")
    with pytest.raises(InvalidTableStateError, match=r"overlaps.*partition of.*days"):
        calls.drop_table(table)
    assert lance.dataset(place, storage_options=server.storage_options).count_rows() == 3
    connect(**{"drop.check-sharing": "entries"}).drop_table(table)
    assert [k for k in server.keys(BUCKET) if k.startswith(f"{database}/t.lance/")] == [
        f"{database}/t.lance/data/day=1/0001.parquet"
    ]


def test_projected_partitions_inside_the_location_count(
    calls: Calls, server: GlueServer, database: str
) -> None:
    table, place = register(calls, server, [database, "t"])
    put(server, f"{place}/days/2026/0001.parquet")
    template = {"storage.location.template": f"{place}/days/${{day}}/"}
    make_partitioned(server, [database, "projected"], [], **template)
    with pytest.raises(InvalidTableStateError, match=r"partition of.*projected"):
        calls.drop_table(table)


def test_partitions_are_read_only_where_others_files_lie_in_the_table(
    calls: Calls, server: GlueServer, database: str, proxy: HttpProxy
) -> None:
    clean, _ = register(calls, server, [database, "clean"])
    mixed, place = register(calls, server, [database, "mixed"])
    put(server, f"{place}/notes.txt")
    days = [f"s3://{BUCKET}/{database}/day={number}" for number in range(3)]
    make_partitioned(server, [database, "days"], days)
    proxy.reset()
    calls.drop_table(clean)
    assert proxy.counts["GetPartitions"] == 0
    calls.drop_table(mixed)
    assert proxy.counts["GetPartitions"] == 1
