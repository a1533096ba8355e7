"""Data that is missing on S3, and data whose storage cannot be reached, which is not missing."""

from __future__ import annotations

import uuid
from collections.abc import Callable
from pathlib import Path

import lance_namespace as api
import pytest
from lance_namespace import errors
from servers.objectstore import MotoServer

from lance_bridge.storage import DataState, TableStorage
from lance_bridge.storage.lance_files import RESERVED_FILE

from .building import BUCKET, TABLE, count_rows, create, stream
from .memory_catalog import MemoryNamespace, MemoryServer

pytestmark = [pytest.mark.servers, pytest.mark.spec("common.md#presence-of-data")]

KEY = tuple(TABLE)
Call = Callable[[MemoryNamespace], object]
CALLS: dict[str, Call] = {
    "count": lambda ns: count_rows(ns, TABLE),
    "insert": lambda ns: ns.insert_into_table(api.InsertIntoTableRequest(id=TABLE), stream()),
    "create": lambda ns: create(ns, TABLE, mode="overwrite"),
}


@pytest.fixture
def bucket(moto: MotoServer) -> str:
    """The name of a bucket of the test's own."""
    name = f"{BUCKET}-{uuid.uuid4().hex}"
    moto.make_bucket(name)
    return name


@pytest.fixture
def on_s3(
    namespace: MemoryNamespace, server: MemoryServer, moto: MotoServer, bucket: str
) -> MemoryNamespace:
    """A namespace whose tables are in that bucket."""
    assert not server.tables
    return connect(namespace, bucket, moto.storage_options)


@pytest.fixture(scope="module")
def powerless_options(moto: MotoServer) -> dict[str, str]:
    """The options of a user who may do nothing."""
    return moto.powerless_options()


def connect(ns: MemoryNamespace, bucket: str, options: dict[str, str]) -> MemoryNamespace:
    storage = {f"storage.{key}": value for key, value in options.items()}
    return MemoryNamespace(uri=ns._properties["uri"], root=f"s3://{bucket}/lake", **storage)


def empty(moto: MotoServer, bucket: str) -> None:
    for key in moto.keys(bucket):
        moto.client.delete_object(Bucket=bucket, Key=key)


def state_of(ns: MemoryNamespace) -> DataState:
    return ns.tables.load(KEY).presence().state


@pytest.mark.parametrize("call", CALLS.values(), ids=CALLS)
def test_a_table_whose_objects_were_deleted_is_missing(
    on_s3: MemoryNamespace, moto: MotoServer, bucket: str, call: Call
) -> None:
    create(on_s3, TABLE)
    empty(moto, bucket)
    with pytest.raises(errors.InvalidTableStateError, match=r"is missing: .*s3://"):
        call(on_s3)
    assert moto.keys(bucket) == []
    assert state_of(on_s3) is DataState.MISSING


@pytest.mark.parametrize("call", CALLS.values(), ids=CALLS)
def test_a_bucket_that_is_gone_is_unreachable(
    on_s3: MemoryNamespace, moto: MotoServer, bucket: str, call: Call
) -> None:
    create(on_s3, TABLE)
    empty(moto, bucket)
    moto.client.delete_bucket(Bucket=bucket)
    with pytest.raises(errors.ServiceUnavailableError, match="check that it exists"):
        call(on_s3)
    assert state_of(on_s3) is DataState.UNREACHABLE


@pytest.mark.parametrize("call", CALLS.values(), ids=CALLS)
def test_credentials_that_are_not_accepted_are_unreachable(
    on_s3: MemoryNamespace, moto: MotoServer, bucket: str, call: Call
) -> None:
    create(on_s3, TABLE)
    empty(moto, bucket)
    with moto.refusing_credentials(), pytest.raises(errors.UnauthenticatedError):
        call(on_s3)
    with moto.refusing_credentials():
        assert state_of(on_s3) is DataState.UNREACHABLE
    assert state_of(on_s3) is DataState.MISSING


@pytest.mark.parametrize("call", CALLS.values(), ids=CALLS)
def test_a_user_without_rights_finds_nothing_missing(
    on_s3: MemoryNamespace,
    moto: MotoServer,
    bucket: str,
    call: Call,
    powerless_options: dict[str, str],
) -> None:
    create(on_s3, TABLE)
    empty(moto, bucket)
    powerless = connect(on_s3, bucket, powerless_options)
    with moto.refusing_credentials(), pytest.raises(errors.PermissionDeniedError):
        call(powerless)
    with moto.refusing_credentials():
        assert state_of(powerless) is DataState.UNREACHABLE


@pytest.mark.parametrize("call", CALLS.values(), ids=CALLS)
def test_a_declared_table_takes_its_first_write(
    on_s3: MemoryNamespace, moto: MotoServer, bucket: str, call: Call
) -> None:
    on_s3.declare_table(api.DeclareTableRequest(id=TABLE))
    [reservation] = moto.keys(bucket)
    assert Path(reservation).name == RESERVED_FILE
    assert state_of(on_s3) is DataState.DECLARED
    if call is CALLS["count"]:
        with pytest.raises(errors.InvalidTableStateError, match="is declared"):
            call(on_s3)
    else:
        call(on_s3)
        assert count_rows(on_s3, TABLE) == 3


def test_one_of_two_clients_that_found_a_location_free_reserves_it(
    moto: MotoServer, bucket: str
) -> None:
    storage = TableStorage(moto.storage_options)
    assert storage.reserve(f"s3://{bucket}/t.lance") == []
    assert storage.reserve(f"s3://{bucket}/t.lance") is None


def test_a_declaration_at_a_given_location_makes_no_request_of_the_storage(
    on_s3: MemoryNamespace, moto: MotoServer, bucket: str
) -> None:
    on_s3.declare_table(api.DeclareTableRequest(id=TABLE, location=f"s3://{bucket}/given.lance"))
    assert moto.keys(bucket) == []
    assert state_of(on_s3) is DataState.UNDECIDED
    create(on_s3, TABLE)
    assert state_of(on_s3) is DataState.PRESENT
