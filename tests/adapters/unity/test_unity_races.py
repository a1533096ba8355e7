"""Changes of one name at the same time, of which the open-source server lets several through."""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import pyarrow as pa
import pytest
from core.forking import returns_in_child
from lance_namespace.errors import (
    ConcurrentModificationError,
    InternalError,
    InvalidInputError,
    LanceNamespaceError,
    NamespaceNotFoundError,
    TableAlreadyExistsError,
    TableNotFoundError,
)
from servers.http_proxy import Fault, HttpProxy, Request
from servers.unity import UnityServer
from servers.unity.raw import Raw

from lance_bridge.catalog import TableRecord
from lance_bridge.testing.calls import Calls
from lance_bridge_unity.concurrency import lock_names

from .building import API, TABLE, Connect

pytestmark = [
    pytest.mark.quick,
    pytest.mark.spec("unity.md#concurrency-and-crash-safety", "unity.md#concurrent-changes"),
]

SCHEMA = TABLE[:2]
LANCE = {"table_type": "lance"}
RENAME = "/delta/v1/catalogs/c/schemas/s/tables/t/rename"


def table(server: UnityServer, name: str) -> None:
    server.add_table(*SCHEMA, name, properties=LANCE, storage_location=f"file:///data/{name}")


def errors_of(*changes: Callable[[], object]) -> list[type[Exception]]:
    """Make changes at the same moment, and return the errors that there were."""
    together = threading.Barrier(len(changes))

    def make(change: Callable[[], object]) -> type[Exception] | None:
        together.wait(10)
        try:
            change()
        except LanceNamespaceError as error:
            return type(error)
        return None

    with ThreadPoolExecutor(len(changes)) as threads:
        return [error for error in threads.map(make, changes) if error is not None]


# -- within a process ----------------------------------------------------------------------------


@pytest.fixture
def racing(server: UnityServer) -> UnityServer:
    """A server that lets two changes of one name through, if they come within 0.3 s."""
    server.state.race_window = 0.3
    return server


def test_of_threads_that_rename_to_one_name_one_does(racing: UnityServer, connect: Connect) -> None:
    catalog = connect()
    for name in ("one", "two"):
        table(racing, name)
    records = [catalog.load_table((*SCHEMA, name)) for name in ("one", "two")]
    new = (*SCHEMA, "new")
    found = errors_of(*(lambda record=r: catalog.rename_table(record, new) for r in records))
    assert found == [TableAlreadyExistsError]
    assert catalog.load_table(new).identity in [record.identity for record in records]


@pytest.mark.parametrize("other", ["rename", "drop"])
@pytest.mark.parametrize("one", ["rename", "drop"])
def test_of_threads_that_rename_or_drop_one_table_one_does(
    racing: UnityServer, connect: Connect, one: str, other: str
) -> None:
    table(racing, "t")
    catalogs = [connect(), connect()]
    record = catalogs[0].load_table(TABLE)

    def change(number: int) -> None:
        if (one, other)[number] == "drop":
            catalogs[number].drop_table(record)
        else:
            catalogs[number].rename_table(record, (*SCHEMA, f"new{number}"))

    assert errors_of(lambda: change(0), lambda: change(1)) == [TableNotFoundError]


def test_of_threads_that_deregister_a_table_one_is_answered(
    racing: UnityServer, calls: Calls
) -> None:
    table(racing, "t")
    change = lambda: calls.deregister_table([*TABLE])  # noqa: E731
    assert errors_of(change, change, change) == [TableNotFoundError] * 2


@pytest.mark.usefixtures("racing")
def test_of_threads_that_drop_a_schema_one_does(connect: Connect) -> None:
    catalog = connect()
    assert errors_of(*[lambda: catalog.drop_namespace(SCHEMA)] * 4) == [NamespaceNotFoundError] * 3


def test_two_renames_across_do_not_wait_for_each_other_for_ever(
    server: UnityServer, connect: Connect
) -> None:
    catalog = connect()
    for name in ("a", "b"):
        table(server, name)
    a, b = (catalog.load_table((*SCHEMA, name)) for name in ("a", "b"))
    done: list[type[Exception]] = []
    for _ in range(20):
        done += errors_of(
            lambda: catalog.rename_table(a, b.path), lambda: catalog.rename_table(b, a.path)
        )
    assert done == [TableAlreadyExistsError] * 40


def test_a_name_that_was_changed_during_a_fork_can_be_changed_in_the_child() -> None:
    def lock() -> None:
        with lock_names(TABLE):
            pass

    with lock_names(TABLE):
        assert returns_in_child(lock)


# -- between processes ---------------------------------------------------------------------------


@pytest.fixture
def broken(racing: UnityServer) -> UnityServer:
    """A server on which two clients have renamed a table to ``c.s.t`` at the same time."""
    for name in ("one", "two"):
        table(racing, name)
    together = threading.Barrier(2)

    def rename(name: str) -> int:
        together.wait(10)
        body = {"new-name": "t"}
        return Raw(racing.url).send("POST", RENAME.replace("/t/", f"/{name}/"), body).status_code

    racing.state.race_window = 10.0
    with ThreadPoolExecutor(2) as threads:
        assert list(threads.map(rename, ["one", "two"])) == [204, 204]
    racing.state.race_window = 0.0
    return racing


@pytest.mark.parametrize("operation", ["read", "create", "rename", "rename to it", "drop"])
def test_a_name_that_two_clients_broke_is_named_with_what_to_do(
    broken: UnityServer, connect: Connect, operation: str
) -> None:
    catalog = connect()
    table(broken, "whole")
    whole = catalog.load_table((*SCHEMA, "whole"))
    record = TableRecord(TABLE, "file:///data/one", LANCE)
    changes: dict[str, Callable[[], object]] = {
        "read": lambda: catalog.load_table(TABLE),
        "create": lambda: catalog.create_table(record),
        "rename": lambda: catalog.rename_table(record, (*SCHEMA, "x")),
        "rename to it": lambda: catalog.rename_table(whole, TABLE),
        "drop": lambda: catalog.drop_table(record),
    }
    with pytest.raises(InternalError, match=r"Several entries.*another name.*doctor"):
        changes[operation]()
    assert [each.path[-1] for each in catalog.scan_tables(SCHEMA)] == ["t", "t", "whole"]


def test_cascade_changes_nothing_where_a_name_is_broken(broken: UnityServer, calls: Calls) -> None:
    calls.create_table([*SCHEMA, "a"], pa.table({"i": [1, 2, 3]}))
    with pytest.raises(InternalError, match="Several entries"):
        calls.drop_namespace([*SCHEMA], behavior="Cascade")
    assert calls.count([*SCHEMA, "a"]) == 3
    assert len(list(broken.state.tables())) == 3


@pytest.mark.spec("unity.md#droptable")
@pytest.mark.parametrize(
    ("is_taken", "error"), [(False, TableNotFoundError), (True, ConcurrentModificationError)]
)
def test_a_table_that_is_renamed_while_it_is_dropped_is_gone_and_keeps_its_data(
    server: UnityServer,
    proxy: HttpProxy,
    calls: Calls,
    is_taken: bool,
    error: type[LanceNamespaceError],
) -> None:
    calls.create_table([*TABLE], pa.table({"i": [1, 2, 3]}))

    renamed: list[int] = []

    def rename_once(request: Request) -> bool:
        if not renamed and request.key == f"GET {API}/tables":
            # Past the proxy, as another process does.
            renamed.append(Raw(server.url).send("POST", RENAME, {"new-name": "new"}).status_code)
            if is_taken:
                table(server, "t")
        return False

    proxy.fail_next(rename_once, Fault.RESET)
    with pytest.raises(error):
        calls.drop_table([*TABLE])
    assert renamed == [204]
    assert calls.count([*SCHEMA, "new"]) == 3


# -- reads while a table is dropped --------------------------------------------------------------


@pytest.mark.spec("common.md#describetable")
def test_a_table_that_is_dropped_while_it_is_read_is_not_found(
    server: UnityServer, calls: Calls
) -> None:
    table(server, "t")
    server.state.vanishing.add("t")
    with pytest.raises(TableNotFoundError):
        calls.describe_table([*TABLE])


def test_a_table_that_is_made_again_while_it_is_read_is_the_new_one(
    server: UnityServer, proxy: HttpProxy, connect: Connect
) -> None:
    table(server, "t")
    server.state.vanishing.add("t")
    seen: list[str] = []

    def steps_in(request: Request) -> bool:
        if request.path == f"{API}/tables/c.s.t":
            seen.append(request.path)
            if len(seen) == 2:
                table(server, "t")
        return False

    proxy.fail_next(steps_in, Fault.RESET)
    assert connect().load_table(TABLE).is_lance
    assert len(seen) == 2


def test_a_foreign_table_without_properties_is_read_twice_and_stays_one(
    server: UnityServer, proxy: HttpProxy, calls: Calls
) -> None:
    server.add_table(*SCHEMA, "t", storage_location="file:///data/t")
    with pytest.raises(InvalidInputError, match="not a Lance table"):
        calls.describe_table([*TABLE])
    assert proxy.counts[f"GET {API}/tables/c.s.t"] == 2
