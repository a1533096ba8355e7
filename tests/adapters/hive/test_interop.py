"""Sharing a metastore: with other implementations' entries, with pylance, and on S3."""

from __future__ import annotations

from collections.abc import Iterator

import lance
import pyarrow as pa
import pytest
from servers.hive_raw import raw_client
from servers.objectstore import MotoServer

from lance_bridge.testing.calls import Calls
from lance_bridge_metastore import Metastore

from .conftest import open_calls

pytestmark = pytest.mark.server

ROWS = pa.table({"id": [0, 1, 2], "name": ["a", "b", "c"]})


def test_our_entry_carries_the_marks_that_others_look_for(
    metastore: Metastore, calls: Calls, database: str
) -> None:
    lance.write_dataset(ROWS, namespace_client=calls.client, table_id=[database, "ours"])
    with raw_client(metastore.port) as client:
        (table,) = client.get_table_objects_by_name(database, ["ours"])
    assert table.tableType == "EXTERNAL_TABLE"
    assert table.parameters["EXTERNAL"] == "TRUE"
    assert table.parameters["table_type"] == "lance"
    assert table.parameters["managed_by"] == "storage"
    assert "external.table.purge" not in table.parameters
    assert table.sd.location.startswith("file:")


# -- S3 ------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def store() -> Iterator[MotoServer]:
    with MotoServer() as server:
        server.make_bucket("lake")
        yield server


@pytest.fixture
def on_s3(metastore: Metastore, store: MotoServer) -> Iterator[Calls]:
    options = {f"storage.{key}": value for key, value in store.storage_options.items()}
    with open_calls(uri=metastore.uri, root="s3://lake/tables", **options) as connected:
        yield connected


def test_pylance_end_to_end_on_s3(on_s3: Calls, database: str) -> None:
    table_id = [database, "t"]
    written = lance.write_dataset(ROWS, namespace_client=on_s3.client, table_id=table_id)
    assert written.uri == f"s3://lake/tables/{database}.db/t.lance"
    lance.write_dataset(ROWS, namespace_client=on_s3.client, table_id=table_id, mode="append")
    assert lance.dataset(namespace_client=on_s3.client, table_id=table_id).count_rows() == 6
    assert (
        lance.dataset(namespace_client=on_s3.client, table_id=table_id, version=1).count_rows() == 3
    )
    lance.write_dataset(ROWS, namespace_client=on_s3.client, table_id=table_id, mode="overwrite")
    assert lance.dataset(namespace_client=on_s3.client, table_id=table_id).count_rows() == 3
    found = on_s3.describe_table(table_id, load_detailed_metadata=True, with_table_uri=True)
    assert (found.version, found.table_uri) == (3, written.uri)
