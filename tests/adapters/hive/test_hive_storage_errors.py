"""Storage under the tables of a metastore that does not answer, or refuses."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, closing, contextmanager

import lance
import pyarrow as pa
import pytest
from lance_namespace import (
    CountTableRowsRequest,
    CreateTableRequest,
    DeclareTableRequest,
    DescribeTableRequest,
    DropTableRequest,
    ListTablesRequest,
)
from lance_namespace.errors import (
    LanceNamespaceError,
    PermissionDeniedError,
    ServiceUnavailableError,
    TableAlreadyExistsError,
    UnauthenticatedError,
)
from servers.objectstore import MotoServer
from servers.pools import unused_port
from servers.proxy import Fault, ThriftProxy

from lance_bridge.testing.build import ipc
from lance_bridge_hive import HiveNamespace
from lance_bridge_metastore import Metastore

pytestmark = pytest.mark.server

ROWS = pa.table({"id": [0, 1, 2]})
ROOT = "s3://lake/tables"
REFUSED = [UnauthenticatedError, PermissionDeniedError]
"""What somebody unknown to the storage gets, and somebody who is known and may do nothing."""

Calls = dict[str, Callable[[HiveNamespace, list[str]], object]]


def connected(uri: str, options: dict[str, str]) -> HiveNamespace:
    storage = {f"storage.{key}": value for key, value in options.items()}
    return HiveNamespace(uri=uri, root=ROOT, **storage)


@pytest.fixture(scope="module")
def store() -> Iterator[MotoServer]:
    with MotoServer() as server:
        server.make_bucket("lake")
        yield server


@pytest.fixture(scope="module")
def powerless(store: MotoServer) -> dict[str, str]:
    """Storage options of somebody who may do nothing."""
    return store.powerless_options()


@pytest.fixture
def on_s3(metastore: Metastore, store: MotoServer) -> Iterator[HiveNamespace]:
    """A namespace that may write to the store."""
    with closing(connected(metastore.uri, store.storage_options)) as namespace:
        yield namespace


@pytest.fixture
def cut_off(metastore: Metastore, store: MotoServer) -> Iterator[HiveNamespace]:
    """A namespace whose storage does not answer."""
    nobody = {"aws_endpoint": f"http://127.0.0.1:{unused_port()}"}
    with closing(connected(metastore.uri, {**store.storage_options, **nobody})) as namespace:
        yield namespace


@pytest.fixture(params=REFUSED)
def expected(request: pytest.FixtureRequest) -> type[LanceNamespaceError]:
    """The error that ``refused`` gets while the store looks at credentials."""
    error: type[LanceNamespaceError] = request.param
    return error


@pytest.fixture
def refused(
    proxy: ThriftProxy,
    store: MotoServer,
    powerless: dict[str, str],
    expected: type[LanceNamespaceError],
) -> Iterator[HiveNamespace]:
    """A namespace behind the proxy that the store refuses while it looks at credentials."""
    options = powerless if expected is PermissionDeniedError else store.storage_options
    with closing(connected(proxy.uri, options)) as namespace:
        yield namespace


@pytest.fixture
def table(on_s3: HiveNamespace, database: str) -> list[str]:
    """A table of three rows on the store."""
    table_id = [database, "t"]
    on_s3.create_table(CreateTableRequest(id=table_id), ipc(ROWS))
    return table_id


def assert_unchanged(namespace: HiveNamespace, table: list[str]) -> None:
    found = namespace.list_tables(ListTablesRequest(id=table[:-1])).tables
    assert found == [table[-1]]
    assert namespace.count_table_rows(CountTableRowsRequest(id=table)).count == 3


NEEDS_STORAGE: Calls = {
    "describe": lambda ns, t: ns.describe_table(DescribeTableRequest(id=t, check_declared=True)),
    "count": lambda ns, t: ns.count_table_rows(CountTableRowsRequest(id=t)),
    "create": lambda ns, t: ns.create_table(CreateTableRequest(id=[t[0], "new"]), ipc(ROWS)),
    "overwrite": lambda ns, t: ns.create_table(
        CreateTableRequest(id=t, mode="Overwrite"), ipc(ROWS)
    ),
    "drop": lambda ns, t: ns.drop_table(DropTableRequest(id=t)),
}


@pytest.mark.parametrize("operation", NEEDS_STORAGE)
def test_storage_that_does_not_answer_is_service_unavailable_and_nothing_is_changed(
    on_s3: HiveNamespace, cut_off: HiveNamespace, table: list[str], operation: str
) -> None:
    with pytest.raises(ServiceUnavailableError):
        NEEDS_STORAGE[operation](cut_off, table)
    assert_unchanged(on_s3, table)


@pytest.mark.parametrize("operation", NEEDS_STORAGE)
def test_storage_that_refuses_says_so_and_nothing_is_changed(
    store: MotoServer,
    refused: HiveNamespace,
    expected: type[LanceNamespaceError],
    table: list[str],
    operation: str,
) -> None:
    with store.refusing_credentials(), pytest.raises(expected):
        NEEDS_STORAGE[operation](refused, table)
    assert_unchanged(refused, table)


def test_a_declaration_that_cannot_be_looked_at_is_not_repeated(
    on_s3: HiveNamespace, cut_off: HiveNamespace, database: str
) -> None:
    request = DeclareTableRequest(id=[database, "t"])
    first = on_s3.declare_table(request)
    with pytest.raises(TableAlreadyExistsError, match="cannot be looked at"):
        cut_off.declare_table(request)
    assert on_s3.describe_table(DescribeTableRequest(id=request.id)).location == first.location


# -- files that cannot be deleted ------------------------------------------------------------------


def test_files_that_the_storage_refuses_to_delete_are_named(
    proxy: ThriftProxy,
    store: MotoServer,
    refused: HiveNamespace,
    expected: type[LanceNamespaceError],
    table: list[str],
) -> None:
    place = refused.describe_table(DescribeTableRequest(id=table)).location or ""
    error = drop_while(proxy, refused, table, store.refusing_credentials)
    assert isinstance(error, expected)
    assert f"is dropped, but files are left at {place}" in str(error)
    assert refused.list_tables(ListTablesRequest(id=table[:-1])).tables == []
    assert lance.dataset(place, storage_options=store.storage_options).count_rows() == 3


def test_files_on_storage_that_went_away_are_named(proxy: ThriftProxy, database: str) -> None:
    with MotoServer() as mortal:
        mortal.make_bucket("lake")
        with closing(connected(proxy.uri, mortal.storage_options)) as dropping:
            dropping.create_table(CreateTableRequest(id=[database, "t"]), ipc(ROWS))
            error = drop_while(proxy, dropping, [database, "t"], lambda: stopped(mortal))
            assert dropping.list_tables(ListTablesRequest(id=[database])).tables == []
    assert isinstance(error, ServiceUnavailableError)
    assert f"is dropped, but files are left at {ROOT}/{database}.db/t.lance" in str(error)


@contextmanager
def stopped(server: MotoServer) -> Iterator[None]:
    server.stop()
    yield


def drop_while(
    proxy: ThriftProxy,
    namespace: HiveNamespace,
    table: list[str],
    trouble: Callable[[], AbstractContextManager[None]],
) -> LanceNamespaceError | None:
    """Drop a table, with trouble in the storage from the call that drops its entry on."""
    proxy.fail_next("drop_table", Fault.DELAY_REPLY, seconds=3)
    raised: list[LanceNamespaceError] = []

    def drop() -> None:
        try:
            namespace.drop_table(DropTableRequest(id=table))
        except LanceNamespaceError as error:
            raised.append(error)

    thread = threading.Thread(target=drop)
    thread.start()
    deadline = time.monotonic() + 30
    while not proxy.calls["drop_table"]:
        assert time.monotonic() < deadline, "the metastore was never asked to drop the table"
        thread.join(0.01)
    with trouble():
        thread.join(120)
    assert not thread.is_alive()
    return raised[0] if raised else None
