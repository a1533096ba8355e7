"""Storage under the tables of a catalog: silent, refusing, or with vended credentials."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing

import lance
import pyarrow as pa
import pytest
from lance_namespace import ErrorCode
from servers.http_proxy import HttpProxy
from servers.objectstore import MotoServer
from servers.unity import Bucket, UnityServer

from lance_bridge.testing.calls import Calls
from lance_bridge.testing.expect import refused
from lance_bridge_unity import UnityNamespace

pytestmark = [
    pytest.mark.servers,
    pytest.mark.spec(
        "unity.md#createtable",
        "unity.md#declaretable",
        "unity.md#describetable",
        "unity.md#errors-of-every-operation",
    ),
]

SCHEMA = ["c", "s"]
TABLE = [*SCHEMA, "t"]
ROWS = pa.table({"id": [0, 1, 2]})
ROOT = "s3://lake/tables"
LIFETIME_SECONDS = 3600.0

Open = Callable[[dict[str, str]], Calls]

NEEDS_STORAGE: dict[str, Callable[[Calls], object]] = {
    "describe": lambda calls: calls.describe_table(TABLE, check_declared=True),
    "count": lambda calls: calls.count(TABLE),
    "create": lambda calls: calls.create_table([*SCHEMA, "new"], ROWS),
    "drop": lambda calls: calls.drop_table(TABLE),
}


@pytest.fixture(scope="module")
def store() -> Iterator[MotoServer]:
    with MotoServer() as running:
        running.make_bucket("lake")
        yield running


@pytest.fixture
def connected(proxy: HttpProxy) -> Iterator[Open]:
    """Makes clients with these storage options, behind the proxy."""
    with ExitStack() as stack:

        def connect(options: dict[str, str]) -> Calls:
            storage = {f"storage.{key}": value for key, value in options.items()}
            namespace = UnityNamespace(host=proxy.endpoint, root=ROOT, **storage)
            return stack.enter_context(closing(Calls(namespace)))

        yield connect


@pytest.fixture
def owner(connected: Open, store: MotoServer) -> Iterator[Calls]:
    """A client that may write to the store, and has made a table of three rows there."""
    calls = connected(store.storage_options)
    calls.create_table(TABLE, ROWS)
    yield calls
    for key in store.keys("lake"):
        store.client.delete_object(Bucket="lake", Key=key)


# -- vended credentials --------------------------------------------------------------------------


@pytest.fixture
def vended(server: UnityServer, connected: Open, store: MotoServer) -> Calls:
    """A client without keys, of a catalog that has them."""
    options = dict(store.storage_options)
    keys = options.pop("aws_access_key_id"), options.pop("aws_secret_access_key")
    server.add_bucket("s3://lake", Bucket(*keys, lifetime=LIFETIME_SECONDS))
    return connected(options)


def test_a_table_is_written_read_and_dropped_with_vended_credentials_only(
    server: UnityServer, vended: Calls, store: MotoServer
) -> None:
    place = vended.create_table(TABLE, ROWS).location
    assert vended.count(TABLE) == 3
    read = lance.dataset(namespace_client=vended.client, table_id=TABLE)
    assert read.count_rows() == 3
    asked = [
        request.fields["operation"]
        for request in server.requests
        if request.route.startswith("POST /temporary-")
    ]
    # For the location before the entry exists, for the first data of the table, and to read it.
    assert asked == ["PATH_CREATE_TABLE", "READ_WRITE", "READ"]
    vended.drop_table(TABLE)
    assert place is not None
    assert not store.keys("lake")


def test_a_table_whose_credentials_the_catalog_refuses_is_permission_denied(
    server: UnityServer, connected: Open, store: MotoServer, owner: Calls
) -> None:
    server.refuse("POST /temporary-*")
    options = store.storage_options
    calls = connected({key: options[key] for key in ("aws_region", "aws_endpoint", "allow_http")})
    for operation in ("describe", "count", "drop", "create"):
        with refused(ErrorCode.PERMISSION_DENIED, naming="EXTERNAL USE SCHEMA"):
            NEEDS_STORAGE[operation](calls)
    assert calls.describe_table(TABLE, vend_credentials=False).location
    assert owner.all_tables(SCHEMA) == ["t"]
    assert owner.count(TABLE) == 3


def test_what_is_made_and_then_refused_its_credentials_is_taken_back_or_can_be_completed(
    server: UnityServer, vended: Calls
) -> None:
    server.refuse("POST /temporary-table-credentials")
    with refused(ErrorCode.PERMISSION_DENIED, naming="EXTERNAL USE SCHEMA"):
        vended.declare_table(TABLE)
    assert vended.all_tables(SCHEMA) == []
    with refused(ErrorCode.PERMISSION_DENIED, naming="EXTERNAL USE SCHEMA"):
        vended.create_table(TABLE, ROWS)
    assert vended.all_tables(SCHEMA) == ["t"]
    server.allow_all()
    vended.create_table(TABLE, ROWS)
    assert vended.count(TABLE) == 3
