"""Changes of one name at the same time, several of which the open-source server lets through.

Under load it answered two renames of one table with 204, one after the other.
"""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from lance_namespace.errors import (
    ConcurrentModificationError,
    InternalError,
    InvalidInputError,
    LanceNamespaceError,
    NamespaceNotFoundError,
    ServiceUnavailableError,
    TableAlreadyExistsError,
    TableNotFoundError,
)
from servers.http_proxy import Answer, Fault, HttpProxy, Request
from servers.processes import returns_in_child
from servers.unity import ErrorKind, UnityServer
from servers.unity.server import Raw

from lance_bridge.catalog import TableRecord
from lance_bridge.errors import BrokenNameError, OutcomeUnknownError
from lance_bridge.testing.calls import Calls, rows
from lance_bridge_doctor import Finding, Kind, diagnose_namespace
from lance_bridge_unity import UnityNamespace
from lance_bridge_unity.catalog import lock_names
from lance_bridge_unity.errors import UNIQUE_INDEXES

from .conftest import API, TABLE, Connect

pytestmark = [
    pytest.mark.quick,
    pytest.mark.spec(
        "unity.md#concurrency-and-crash-safety",
        "unity.md#concurrent-changes",
        "unity.md#renametable",
        "cli.md#findings",
    ),
]

SCHEMA = TABLE[:2]
LANCE = {"table_type": "lance"}
RENAME = "/delta/v1/catalogs/c/schemas/s/tables/t/rename"
RENAME_CALL = f"POST {API}{RENAME}"
READ_BACK = f"GET {API}/tables/c.s.new"
NEW = ("c", "s", "new")
CONFIRMED = Answer(204)
LANCE_FIELDS: dict[str, Any] = {"properties": {"table_type": "lance"}, "data_source_format": "TEXT"}


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


# -- renames that the server confirms, and that did not happen -------------------------------------


@pytest.fixture
def renamed(calls: Calls) -> Calls:
    """A client that has a table ``t`` to rename."""
    calls.create_table([*TABLE], rows(range(3)))
    return calls


def meanwhile(proxy: HttpProxy, server: UnityServer, action: Callable[[Raw], object]) -> None:
    """Have another client act between a rename and its reading back."""
    done: list[object] = []

    def act(request: Request) -> bool:
        if request.key == READ_BACK and not done:
            done.append(action(Raw(server.url)))
        return False

    proxy.fail_next(act, Fault.RESET)


def test_a_rename_is_read_back_once(renamed: Calls, proxy: HttpProxy) -> None:
    proxy.reset()
    renamed.rename_table([*TABLE], "new")
    assert proxy.counts == Counter({f"GET {API}/tables/c.s.t": 1, RENAME_CALL: 1, READ_BACK: 1})


def test_a_rename_that_was_confirmed_without_effect_is_made(
    renamed: Calls, proxy: HttpProxy
) -> None:
    proxy.fail_next(RENAME_CALL, CONFIRMED)
    renamed.rename_table([*TABLE], "new")
    assert renamed.all_tables(["c", "s"]) == ["new"]
    assert renamed.count([*NEW]) == 3


def test_a_rename_that_never_has_an_effect_is_not_acknowledged(
    renamed: Calls, proxy: HttpProxy
) -> None:
    proxy.fail_next(RENAME_CALL, CONFIRMED, times=float("inf"))
    with pytest.raises(ServiceUnavailableError, match=r"confirmed to rename 'c\.s\.t' to"):
        renamed.rename_table([*TABLE], "new")
    assert proxy.counts[RENAME_CALL] == 3
    assert renamed.all_tables(["c", "s"]) == ["t"]


@pytest.mark.spec("unity.md#concurrent-changes")
def test_of_two_renames_that_were_both_confirmed_one_is_acknowledged(
    renamed: Calls, proxy: HttpProxy, server: UnityServer
) -> None:
    path = RENAME_CALL.removeprefix(f"POST {API}").replace("/t/", "/new/")
    meanwhile(proxy, server, lambda raw: raw.send("POST", path, {"new-name": "other"}))
    with pytest.raises(TableNotFoundError, match=r"c\.s\.t"):
        renamed.rename_table([*TABLE], "new")
    assert renamed.all_tables(["c", "s"]) == ["other"]


def test_another_table_of_the_new_name_is_not_the_renamed_one(
    server: UnityServer, proxy: HttpProxy, connect: Connect
) -> None:
    place = {"storage_location": "file:///data/t", "properties": {"table_type": "lance"}}
    server.add_table("c", "s", "t", data_source_format="TEXT", **place)
    catalog = connect()
    record = catalog.load_table(TABLE)
    server.add_table("c", "s", "new", data_source_format="TEXT", **place)
    proxy.fail_next(RENAME_CALL, CONFIRMED)
    with pytest.raises(OutcomeUnknownError, match="another table has that name"):
        catalog.rename_table(record, NEW)


@pytest.mark.parametrize(
    ("answer", "error"),
    [
        (Answer.of_json(403, {"error_code": "PERMISSION_DENIED"}), OutcomeUnknownError),
        (Answer.of_json(404, {"error_code": "TABLE_NOT_FOUND"}), OutcomeUnknownError),
        (
            Answer.of_json(
                500, {"error_code": "INTERNAL", "message": "Query did not return a unique result"}
            ),
            InternalError,
        ),
    ],
)
def test_a_rename_that_cannot_be_read_back_is_not_acknowledged(
    server: UnityServer,
    proxy: HttpProxy,
    connect: Connect,
    answer: Answer,
    error: type[LanceNamespaceError],
) -> None:
    server.add_table("c", "s", "t", storage_location="file:///data/t")
    catalog = connect()
    record = catalog.load_table(TABLE)
    proxy.fail_next(READ_BACK, answer)
    with pytest.raises(error):
        catalog.rename_table(record, NEW)


# -- names that several processes broke, as doctor finds them --------------------------------------


@pytest.fixture
def client(server: UnityServer, tmp_path: Path) -> Iterator[UnityNamespace]:
    with UnityNamespace(host=server.url, root=str(tmp_path / "lake")) as namespace:
        yield namespace


def diagnosed(client: UnityNamespace) -> list[Finding]:
    return list(diagnose_namespace(client, "prod", idle=timedelta(0)).findings)


def break_table(server: UnityServer, name: str = "t", **kind: Any) -> None:
    for number in range(2):
        server.add_table("c", "s", name, storage_location=f"file:///data/{name}{number}", **kind)


@pytest.mark.parametrize("kind", [LANCE_FIELDS, {}], ids=["Lance", "Delta"])
def test_a_broken_name_of_a_table_is_found_with_its_cause_and_the_statements(
    server: UnityServer, client: UnityNamespace, kind: dict[str, Any]
) -> None:
    break_table(server, **kind)
    [found] = diagnosed(client)
    assert (found.kind, found.subject) == (Kind.BROKEN_NAME, "c.s.t")
    assert "several processes created it or renamed to it at the same time" in found.message
    assert "The server's tables have no unique indexes" in found.message
    for place in ("/data/t0", "/data/t1"):
        assert place in found.message
    assert found.message.splitlines()[-3:] == list(UNIQUE_INDEXES)


def test_a_name_of_which_one_entry_is_lances_is_found_once(
    server: UnityServer, client: UnityNamespace
) -> None:
    server.add_table("c", "s", "t", storage_location="file:///data/t1", **LANCE_FIELDS)
    server.add_table("c", "s", "t", storage_location="file:///data/t2")
    assert [each.subject for each in diagnosed(client) if each.kind is Kind.BROKEN_NAME] == [
        "c.s.t"
    ]


@pytest.mark.parametrize("level", ["schema", "catalog"])
def test_a_broken_name_of_a_schema_or_catalog_is_found(
    server: UnityServer, client: UnityNamespace, level: str
) -> None:
    Calls(client).create_table(["c", "s", "whole"], rows(range(3)))
    if level == "schema":
        server.add_schema("c", "twice")
        server.add_schema("c", "twice")
    else:
        server.add_catalog("twice")
        server.add_catalog("twice")
    [found] = diagnosed(client)
    name = "c.twice" if level == "schema" else "twice"
    assert (found.kind, found.subject) == (Kind.BROKEN_NAME, name)
    assert found.message.splitlines()[-3:] == list(UNIQUE_INDEXES)
    assert found.command == "lance-bridge doctor prod"


def test_each_broken_name_is_found_once_in_pages(
    server: UnityServer, client: UnityNamespace, tmp_path: Path
) -> None:
    for name in ("a", "b"):
        break_table(server, name, **LANCE_FIELDS)
        break_table(server, f"{name}_delta")
    (tmp_path / "lake" / "c" / "s.db" / "empty.lance").mkdir(parents=True)
    found: list[str] = []
    token = None
    for _ in range(9):
        page = diagnose_namespace(client, "prod", limit=1, page_token=token, idle=timedelta(0))
        found += [each.subject for each in page.findings if each.kind is Kind.BROKEN_NAME]
        token = page.page_token
        if token is None:
            break
    assert sorted(found) == ["c.s.a", "c.s.a_delta", "c.s.b", "c.s.b_delta"]


def test_a_server_that_fails_otherwise_is_no_broken_name(
    server: UnityServer, client: UnityNamespace
) -> None:
    server.refuse("GET /tables", ErrorKind(500, "INTERNAL"), "out of order")
    assert {each.kind for each in diagnosed(client)} == {Kind.CATALOG}


def test_an_error_about_a_broken_name_has_the_statements_apart(
    server: UnityServer, client: UnityNamespace
) -> None:
    break_table(server, **LANCE_FIELDS)
    with pytest.raises(BrokenNameError, match="Several entries of the server") as error:
        Calls(client).describe_table(["c", "s", "t"])
    assert "CREATE UNIQUE INDEX" not in str(error.value)
    assert [line for line in error.value.remedy.splitlines() if line in UNIQUE_INDEXES] == list(
        UNIQUE_INDEXES
    )


def test_the_pages_have_the_statements() -> None:
    top = Path(__file__).parents[3]
    for page in ("docs/how-to/unity.md", "specs/unity.md"):
        text = (top / page).read_text(encoding="utf-8")
        assert all(statement in text for statement in UNIQUE_INDEXES), page
