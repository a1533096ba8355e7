"""Storage under the tables of a catalog: silent, refusing, or with vended credentials."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager

import lance
import pyarrow as pa
import pytest
from lance_namespace import ErrorCode, LanceNamespaceError
from servers.http_proxy import Delay, HttpProxy
from servers.objectstore import MotoServer
from servers.pools import unused_port
from servers.unity import Bucket, UnityServer

from lance_bridge.testing.calls import Calls
from lance_bridge.testing.expect import refused
from lance_bridge_unity import UnityNamespace

pytestmark = pytest.mark.server

SCHEMA = ["c", "s"]
TABLE = [*SCHEMA, "t"]
ROWS = pa.table({"id": [0, 1, 2]})
ROOT = "s3://lake/tables"
REFUSED = [ErrorCode.UNAUTHENTICATED, ErrorCode.PERMISSION_DENIED]
"""What somebody unknown to the storage gets, and somebody who is known and may do nothing."""
LIFETIME_SECONDS = 3600.0

Open = Callable[[dict[str, str]], Calls]

NEEDS_STORAGE: dict[str, Callable[[Calls], object]] = {
    "describe": lambda calls: calls.describe_table(TABLE, check_declared=True),
    "count": lambda calls: calls.count(TABLE),
    "create": lambda calls: calls.create_table([*SCHEMA, "new"], ROWS),
    "overwrite": lambda calls: calls.create_table(TABLE, ROWS, mode="Overwrite"),
    "drop": lambda calls: calls.drop_table(TABLE),
}


@pytest.fixture(scope="module")
def store() -> Iterator[MotoServer]:
    with MotoServer() as running:
        running.make_bucket("lake")
        yield running


@pytest.fixture(scope="module")
def powerless(store: MotoServer) -> dict[str, str]:
    """Storage options of somebody who may do nothing."""
    return store.powerless_options()


@pytest.fixture
def connected(proxy: HttpProxy) -> Iterator[Open]:
    """Makes clients with these storage options, behind the proxy."""
    made: list[Calls] = []

    def connect(options: dict[str, str]) -> Calls:
        storage = {f"storage.{key}": value for key, value in options.items()}
        made.append(Calls(UnityNamespace(host=proxy.endpoint, root=ROOT, **storage)))
        return made[-1]

    yield connect
    for calls in made:
        calls.close()


@pytest.fixture
def owner(connected: Open, store: MotoServer) -> Iterator[Calls]:
    """A client that may write to the store, and has made a table of three rows there."""
    calls = connected(store.storage_options)
    calls.create_table(TABLE, ROWS)
    yield calls
    for key in store.keys("lake"):
        store.client.delete_object(Bucket="lake", Key=key)


@pytest.fixture(params=REFUSED, ids=lambda code: code.name)
def code(request: pytest.FixtureRequest) -> ErrorCode:
    """What `outsider` gets while the store looks at credentials."""
    found: ErrorCode = request.param
    return found


@pytest.fixture
def outsider(
    connected: Open, store: MotoServer, powerless: dict[str, str], code: ErrorCode
) -> Calls:
    """A client that the store refuses while it looks at credentials."""
    known = code is ErrorCode.PERMISSION_DENIED
    return connected(powerless if known else store.storage_options)


@pytest.fixture
def cut_off(connected: Open, store: MotoServer) -> Calls:
    """A client whose storage does not answer."""
    nobody = {"aws_endpoint": f"http://127.0.0.1:{unused_port()}"}
    return connected({**store.storage_options, **nobody})


@pytest.mark.parametrize("operation", NEEDS_STORAGE)
def test_storage_that_does_not_answer_is_service_unavailable_and_nothing_is_changed(
    owner: Calls, cut_off: Calls, operation: str
) -> None:
    with refused(ErrorCode.SERVICE_UNAVAILABLE):
        NEEDS_STORAGE[operation](cut_off)
    assert owner.all_tables(SCHEMA) == ["t"]
    assert owner.count(TABLE) == 3


@pytest.mark.parametrize("operation", NEEDS_STORAGE)
def test_storage_that_refuses_says_so_and_nothing_is_changed(
    store: MotoServer, owner: Calls, outsider: Calls, code: ErrorCode, operation: str
) -> None:
    with store.refusing_credentials(), refused(code):
        NEEDS_STORAGE[operation](outsider)
    assert owner.all_tables(SCHEMA) == ["t"]
    assert owner.count(TABLE) == 3


def test_a_declaration_that_cannot_be_looked_at_is_not_repeated(
    owner: Calls, cut_off: Calls
) -> None:
    first = owner.declare_table([*SCHEMA, "u"])
    with refused(ErrorCode.TABLE_ALREADY_EXISTS, naming="cannot be looked at"):
        cut_off.declare_table([*SCHEMA, "u"])
    assert owner.describe_table([*SCHEMA, "u"]).location == first.location


# -- files that cannot be deleted ------------------------------------------------------------------


def test_files_that_the_storage_refuses_to_delete_are_named(
    proxy: HttpProxy, store: MotoServer, owner: Calls, outsider: Calls, code: ErrorCode
) -> None:
    error = drop_while(proxy, outsider, store.refusing_credentials)
    assert error is not None
    assert error.code == code
    assert f"is dropped, but files are left at {ROOT}" in str(error)
    assert owner.all_tables(SCHEMA) == []
    assert store.keys("lake")


def test_files_on_storage_that_went_away_are_named(proxy: HttpProxy, connected: Open) -> None:
    with MotoServer() as mortal:
        mortal.make_bucket("lake")
        calls = connected(mortal.storage_options)
        calls.create_table(TABLE, ROWS)
        error = drop_while(proxy, calls, lambda: stopped(mortal))
    assert calls.all_tables(SCHEMA) == []
    assert error is not None
    assert error.code == ErrorCode.SERVICE_UNAVAILABLE
    assert f"is dropped, but files are left at {ROOT}" in str(error)


@contextmanager
def stopped(server: MotoServer) -> Iterator[None]:
    server.stop()
    yield


def drop_while(
    proxy: HttpProxy, calls: Calls, trouble: Callable[[], AbstractContextManager[None]]
) -> LanceNamespaceError | None:
    """Drop the table, with trouble in the storage from the call that drops its entry on."""
    drops = "DELETE /api/2.1/unity-catalog/tables/c.s.t"
    reply = Delay(effect_first=True)
    proxy.fail_next(drops, reply)
    raised: list[LanceNamespaceError] = []

    def drop() -> None:
        try:
            calls.drop_table(TABLE)
        except LanceNamespaceError as error:
            raised.append(error)

    thread = threading.Thread(target=drop)
    thread.start()
    proxy.await_requests(drops)
    with trouble():
        reply.release.set()
        thread.join(120)
    assert not thread.is_alive()
    return raised[0] if raised else None


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
    # The place before the entry is there, the new table for its first data, and reading it.
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
    for operation in ("describe", "count", "drop"):
        with refused(ErrorCode.PERMISSION_DENIED, naming="EXTERNAL USE SCHEMA"):
            NEEDS_STORAGE[operation](calls)
    with refused(ErrorCode.PERMISSION_DENIED, naming="EXTERNAL USE LOCATION"):
        NEEDS_STORAGE["create"](calls)
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
