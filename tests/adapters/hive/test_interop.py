"""Sharing a metastore: with other implementations' entries, with pylance, and on S3."""

from __future__ import annotations

import pickle
import socket
import time
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import lance
import pyarrow as pa
import pytest
from lance_namespace import (
    CountTableRowsRequest,
    CreateTableRequest,
    DeclareTableRequest,
    DeregisterTableRequest,
    DescribeTableRequest,
    DropTableRequest,
    ListTablesRequest,
    RegisterTableRequest,
    RenameTableRequest,
)
from lance_namespace.errors import (
    InvalidTableStateError,
    ServiceUnavailableError,
    TableAlreadyExistsError,
    UnsupportedOperationError,
)
from servers.hive_raw import MARKS, raw_client, raw_table
from servers.metastores import Metastores
from servers.objectstore import MotoServer

from lance_bridge.testing.build import ipc
from lance_bridge_hive import HiveNamespace
from lance_bridge_metastore import Metastore

pytestmark = pytest.mark.server

ROWS = pa.table({"id": [0, 1, 2], "name": ["a", "b", "c"]})


@pytest.mark.parametrize("mark", MARKS)
def test_a_table_of_another_implementation_is_read_renamed_and_deregistered_without_loss(
    metastore: Metastore, namespace: HiveNamespace, database: str, tmp_path: Path, mark: str
) -> None:
    place = str(tmp_path / "theirs.lance")
    lance.write_dataset(ROWS, place)
    table = raw_table(database, "theirs", place)
    MARKS[mark](table)
    with raw_client(metastore.port) as client:
        client.create_table(table)
    assert namespace.list_tables(ListTablesRequest(id=[database])).tables == ["theirs"]
    for name in ("theirs", "renamed"):
        found = namespace.describe_table(DescribeTableRequest(id=[database, name]))
        assert found.location == place
        assert (
            lance.dataset(namespace_client=namespace, table_id=[database, name]).count_rows() == 3
        )
        if name == "theirs":
            namespace.rename_table(
                RenameTableRequest(id=[database, name], new_table_name="renamed")
            )
    namespace.deregister_table(DeregisterTableRequest(id=[database, "renamed"]))
    assert lance.dataset(place).to_table() == ROWS


def test_our_entry_carries_the_marks_that_others_look_for(
    metastore: Metastore, namespace: HiveNamespace, database: str
) -> None:
    lance.write_dataset(ROWS, namespace_client=namespace, table_id=[database, "ours"])
    with raw_client(metastore.port) as client:
        (table,) = client.get_table_objects_by_name(database, ["ours"])
    assert table.tableType == "EXTERNAL_TABLE"
    assert table.parameters["EXTERNAL"] == "TRUE"
    assert table.parameters["table_type"] == "lance"
    assert table.parameters["managed_by"] == "storage"
    assert "external.table.purge" not in table.parameters
    assert table.sd.location.startswith("file:")


def test_a_failed_first_write_can_be_tried_again(namespace: HiveNamespace, database: str) -> None:
    def failing() -> Iterator[pa.RecordBatch]:
        yield ROWS.to_batches()[0]
        raise RuntimeError("the source broke")

    table_id = [database, "t"]
    reader = pa.RecordBatchReader.from_batches(ROWS.schema, failing())
    with pytest.raises(OSError, match="the source broke"):
        lance.write_dataset(reader, namespace_client=namespace, table_id=table_id)
    lance.write_dataset(ROWS, namespace_client=namespace, table_id=table_id)
    assert lance.dataset(namespace_client=namespace, table_id=table_id).to_table() == ROWS
    with pytest.raises(TableAlreadyExistsError):
        lance.write_dataset(ROWS, namespace_client=namespace, table_id=table_id)


def test_somebody_elses_fresh_declaration_is_kept_until_it_is_old(
    metastore: Metastore, namespace: HiveNamespace, database: str
) -> None:
    table_id = [database, "t"]
    first = namespace.declare_table(DeclareTableRequest(id=table_id))
    with HiveNamespace(uri=metastore.uri) as other, pytest.raises(TableAlreadyExistsError):
        other.declare_table(DeclareTableRequest(id=table_id))
    with HiveNamespace(uri=metastore.uri, **{"declare.grace": "0"}) as later:
        assert later.declare_table(DeclareTableRequest(id=table_id)).location == first.location
    with HiveNamespace(uri=metastore.uri) as other:
        other.create_table(CreateTableRequest(id=table_id), ipc(ROWS))
    assert lance.dataset(first.location).count_rows() == 3


def test_a_table_made_again_after_deregistering_leaves_the_old_data(
    namespace: HiveNamespace, database: str
) -> None:
    table_id = [database, "t"]
    old = lance.write_dataset(ROWS, namespace_client=namespace, table_id=table_id)
    namespace.deregister_table(DeregisterTableRequest(id=table_id))
    new = lance.write_dataset(ROWS.slice(1), namespace_client=namespace, table_id=table_id)
    assert old.uri != new.uri
    assert lance.dataset(old.uri).count_rows() == 3
    assert lance.dataset(namespace_client=namespace, table_id=table_id).count_rows() == 2


def test_versions_are_read_by_number(namespace: HiveNamespace, database: str) -> None:
    table_id = [database, "t"]
    for mode in ("create", "append", "overwrite"):
        lance.write_dataset(ROWS, namespace_client=namespace, table_id=table_id, mode=mode)
    counts = [
        lance.dataset(namespace_client=namespace, table_id=table_id, version=v).count_rows()
        for v in (1, 2, 3)
    ]
    assert counts == [3, 6, 3]


def test_a_pickled_namespace_reconnects(namespace: HiveNamespace, database: str) -> None:
    namespace.declare_table(DeclareTableRequest(id=[database, "t"]))
    with pickle.loads(pickle.dumps(namespace)) as copy:
        assert copy.list_tables(ListTablesRequest(id=[database])).tables == ["t"]


# -- places where the metastore or Lance cannot go -------------------------------------------------


def test_a_metastore_without_the_file_system_says_what_to_add(
    metastores: Metastores,
) -> None:
    bare = metastores.new("2.3", stub=False)
    with closing(bare), HiveNamespace(uri=bare.uri) as namespace:
        request = DeclareTableRequest(id=["default", "t"], location="s3://bucket/t.lance")
        with pytest.raises(
            UnsupportedOperationError, match=r"no file system for 's3://'.*class path"
        ):
            namespace.declare_table(request)
        assert namespace.list_tables(ListTablesRequest(id=["default"])).tables == []


def test_a_table_where_lance_cannot_delete_is_not_dropped(
    metastore: Metastore, namespace: HiveNamespace, database: str
) -> None:
    with raw_client(metastore.port) as client:
        client.create_table(raw_table(database, "t", "oss://bucket/t.lance"))
    with pytest.raises(InvalidTableStateError, match="Deregister it"):
        namespace.drop_table(DropTableRequest(id=[database, "t"]))
    assert namespace.list_tables(ListTablesRequest(id=[database])).tables == ["t"]
    namespace.deregister_table(DeregisterTableRequest(id=[database, "t"]))
    assert namespace.list_tables(ListTablesRequest(id=[database])).tables == []


# -- S3 ------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def store() -> Iterator[MotoServer]:
    with MotoServer() as server:
        server.make_bucket("lake")
        yield server


@pytest.fixture
def on_s3(metastore: Metastore, store: MotoServer) -> Iterator[HiveNamespace]:
    options = {f"storage.{key}": value for key, value in store.storage_options.items()}
    with HiveNamespace(uri=metastore.uri, root="s3://lake/tables", **options) as connected:
        yield connected


def test_pylance_end_to_end_on_s3(on_s3: HiveNamespace, database: str) -> None:
    table_id = [database, "t"]
    written = lance.write_dataset(ROWS, namespace_client=on_s3, table_id=table_id)
    assert written.uri == f"s3://lake/tables/{database}.db/t.lance"
    lance.write_dataset(ROWS, namespace_client=on_s3, table_id=table_id, mode="append")
    assert lance.dataset(namespace_client=on_s3, table_id=table_id).count_rows() == 6
    assert lance.dataset(namespace_client=on_s3, table_id=table_id, version=1).count_rows() == 3
    lance.write_dataset(ROWS, namespace_client=on_s3, table_id=table_id, mode="overwrite")
    assert lance.dataset(namespace_client=on_s3, table_id=table_id).count_rows() == 3
    found = on_s3.describe_table(
        DescribeTableRequest(id=table_id, load_detailed_metadata=True, with_table_uri=True)
    )
    assert (found.version, found.table_uri) == (3, written.uri)


def test_tables_on_s3_are_declared_created_and_dropped(
    on_s3: HiveNamespace, store: MotoServer, database: str
) -> None:
    declared, created = [database, "declared"], [database, "created"]
    on_s3.declare_table(DeclareTableRequest(id=declared))
    on_s3.create_table(CreateTableRequest(id=created), ipc(ROWS))
    request = ListTablesRequest(id=[database], include_declared=False)
    assert on_s3.list_tables(request).tables == ["created"]
    assert any(f"{database}.db/created.lance/" in key for key in store.keys("lake"))
    on_s3.drop_table(DropTableRequest(id=created))
    assert not any(f"{database}.db/created" in key for key in store.keys("lake"))


def test_deregistered_data_on_s3_is_not_overwritten(on_s3: HiveNamespace, database: str) -> None:
    table_id = [database, "t"]
    old = lance.write_dataset(ROWS, namespace_client=on_s3, table_id=table_id)
    on_s3.deregister_table(DeregisterTableRequest(id=table_id))
    new = lance.write_dataset(ROWS, namespace_client=on_s3, table_id=table_id)
    assert new.uri != old.uri
    assert new.uri.startswith(old.uri.removesuffix(".lance") + "-")


def test_storage_that_never_answers_ends_in_service_unavailable(
    metastore: Metastore, database: str
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        options = {
            "aws_endpoint": f"http://127.0.0.1:{silent.getsockname()[1]}",
            "aws_access_key_id": "id",
            "aws_secret_access_key": "key",
            "aws_region": "us-east-1",
            "allow_http": "true",
            "timeout": "1s",
        }
        storage = {f"storage.{key}": value for key, value in options.items()}
        with HiveNamespace(uri=metastore.uri, **storage) as namespace:
            table_id = [database, "t"]
            place = "s3://lake/t.lance"
            namespace.register_table(RegisterTableRequest(id=table_id, location=place))
            started = time.monotonic()
            with pytest.raises(ServiceUnavailableError, match=place):
                namespace.count_table_rows(CountTableRowsRequest(id=table_id))
            assert time.monotonic() - started < 30
            assert namespace.describe_table(DescribeTableRequest(id=table_id)).location == place
