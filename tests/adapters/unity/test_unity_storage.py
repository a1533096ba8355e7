"""Storage under the tables of a catalog: refusing, or with credentials that are vended to users.

Credentials of a table are for its owner, those of a path for who has a right on an external
location; so a user with CREATE TABLE alone gets the first for the tables that she makes.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing

import lance
import lancedb
import pyarrow as pa
import pytest
from lance_namespace import ErrorCode, InsertIntoTableRequest
from lance_namespace.errors import PermissionDeniedError, TableNotFoundError
from servers.http_proxy import HttpProxy
from servers.object_stores import MotoServer
from servers.unity import Bucket, UnityServer

from lance_bridge.testing.calls import Calls, ipc, refused
from lance_bridge_unity import UnityNamespace

pytestmark = [
    pytest.mark.servers,
    pytest.mark.spec(
        "unity.md#createtable",
        "unity.md#declaretable",
        "unity.md#describetable",
        "unity.md#errors-of-every-operation",
        "unity.md#rights",
        "unity.md#vended-credentials",
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
PLACE = ("aws_region", "aws_endpoint", "allow_http")
As = Callable[[str], Calls]


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
    # For the location before the entry exists, for the first data of the table, and to read it.
    assert asked(server) == ["PATH_CREATE_TABLE", "READ_WRITE", "READ"]
    vended.drop_table(TABLE)
    assert place is not None
    assert not store.keys("lake")


def test_a_table_whose_credentials_the_catalog_refuses_is_permission_denied(
    server: UnityServer, connected: Open, store: MotoServer, owner: Calls
) -> None:
    server.refuse("POST /temporary-*")
    options = store.storage_options
    calls = connected({key: options[key] for key in PLACE})
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


# -- users of the server with authorization --------------------------------------------------------


@pytest.fixture
def bucket(server: UnityServer, store: MotoServer) -> str:
    """A bucket of the test's own, for which the server vends credentials."""
    name = f"lake-{uuid.uuid4().hex}"
    store.make_bucket(name)
    options = store.storage_options
    keys = Bucket(options["aws_access_key_id"], options["aws_secret_access_key"])
    server.add_bucket(f"s3://{name}", keys)
    return name


@pytest.fixture
def acting(server: UnityServer, store: MotoServer, bucket: str) -> Iterator[As]:
    """Makes clients of users; each may make tables in the schema, and no one has storage keys."""
    options = {f"storage.{key}": store.storage_options[key] for key in PLACE}
    with ExitStack() as stack:

        def client(user: str) -> Calls:
            token = server.grants.add_user(user)
            server.grants.grant(user, "c", "USE CATALOG")
            server.grants.grant(user, "c.s", "USE SCHEMA", "CREATE TABLE")
            namespace = UnityNamespace(
                host=server.url,
                token=token,
                root=f"s3://{bucket}/tables",
                **options,
                **{"credentials.write": "true"},
            )
            return stack.enter_context(closing(Calls(namespace)))

        yield client


def asked(server: UnityServer) -> list[str]:
    """Return the operations for which credentials were requested, in order."""
    return [
        request.fields["operation"]
        for request in server.requests
        if request.route.startswith("POST /temporary-")
    ]


def insert(calls: Calls) -> None:
    calls.client.insert_into_table(InsertIntoTableRequest(id=TABLE), ipc(ROWS))


def test_create_table_takes_create_table_alone(
    server: UnityServer, acting: As, store: MotoServer, bucket: str
) -> None:
    bob = acting("bob")
    location = bob.create_table(TABLE, ROWS).location
    assert location is not None
    assert location.startswith(f"s3://{bucket}/tables/c/s.db/t-")
    assert asked(server) == ["PATH_CREATE_TABLE", "READ_WRITE"]
    assert bob.count(TABLE) == 3
    bob.create_table(TABLE, ROWS, mode="overwrite")
    bob.create_table(TABLE, ROWS, mode="exist_ok")
    assert bob.count(TABLE) == 3
    bob.drop_table(TABLE)
    assert store.keys(bucket) == []


def test_with_a_right_on_the_external_location_the_table_gets_its_default_place(
    server: UnityServer, acting: As, bucket: str
) -> None:
    bob, eve = acting("bob"), acting("eve")
    server.grants.grant_location("bob", f"s3://{bucket}", "CREATE EXTERNAL TABLE")
    assert bob.create_table(TABLE, ROWS).location == f"s3://{bucket}/tables/c/s.db/t.lance"
    with pytest.raises(
        PermissionDeniedError, match="and CREATE EXTERNAL TABLE on the external location"
    ):
        eve.create_table([*SCHEMA, "u"], ROWS)
    assert bob.all_tables(SCHEMA) == ["t"]


def test_other_ways_to_make_a_table_take_no_more(acting: As) -> None:
    bob = acting("bob")
    bob.declare_table([*SCHEMA, "declared"])
    bob.create_table([*SCHEMA, "declared"], ROWS)
    lance.write_dataset(ROWS, namespace_client=bob.client, table_id=[*SCHEMA, "written"])
    assert isinstance(bob.client, UnityNamespace)
    database = lancedb.connect_namespace("unity", bob.client.properties)
    database.create_table("of_lancedb", ROWS, namespace_path=SCHEMA)
    names = ["declared", "of_lancedb", "written"]
    assert bob.all_tables(SCHEMA) == names
    assert [bob.count([*SCHEMA, each]) for each in names] == [3, 3, 3]


@pytest.mark.parametrize("names", [("t", "t"), ("t", "u")])
def test_two_tables_never_get_one_place(acting: As, names: tuple[str, str]) -> None:
    bob = acting("bob")
    first, second = names
    place = bob.create_table([*SCHEMA, first], ROWS).location
    bob.deregister_table([*SCHEMA, first])
    assert bob.create_table([*SCHEMA, second], ROWS).location != place


def test_a_refusal_of_the_tables_own_credentials_leaves_no_entry(
    server: UnityServer, acting: As, store: MotoServer, bucket: str
) -> None:
    bob = acting("bob")
    server.refuse("POST /temporary-table-credentials")
    with pytest.raises(PermissionDeniedError, match="SELECT and MODIFY on the table") as caught:
        bob.create_table(TABLE, ROWS)
    assert "EXTERNAL USE SCHEMA" in str(caught.value)
    with pytest.raises(TableNotFoundError):
        bob.describe_table(TABLE, vend_credentials=False)
    assert store.keys(bucket) == []
    server.allow_all()
    bob.create_table(TABLE, ROWS)
    assert bob.count(TABLE) == 3


def test_readers_and_writers_are_told_the_privileges_of_both_servers(
    server: UnityServer, acting: As
) -> None:
    bob, eve = acting("bob"), acting("eve")
    bob.create_table(TABLE, ROWS)
    with pytest.raises(PermissionDeniedError):
        eve.count(TABLE)
    server.grants.grant("eve", "c.s.t", "SELECT")
    assert eve.count(TABLE) == 3
    with pytest.raises(PermissionDeniedError, match=r"EXTERNAL USE SCHEMA.*SELECT and MODIFY"):
        insert(eve)
    server.grants.grant("eve", "c.s.t", "MODIFY")
    insert(eve)
    assert bob.count(TABLE) == 6
