"""Implementation-managed tables: what others do between two steps costs no commit."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from concurrent.futures import TimeoutError as NotYetError
from dataclasses import replace
from functools import partial
from threading import Barrier
from typing import Any

import lance
import lance_namespace as api
import pyarrow as pa
import pytest
from lance_namespace import errors

from lance_bridge import managed_state as states
from lance_bridge.dataset import insert
from lance_bridge.entry import TableEntry
from lance_bridge.errors import OutcomeUnknownError
from lance_bridge.managed import compare_and_set, out_of_band
from lance_bridge.managed.versions import ManagedDirectory
from lance_bridge.managed.view import TableView
from lance_bridge.managed_state import State
from lance_bridge.testing.build import ipc

from .building import TABLE, create, raising
from .forking import returns_in_child
from .managing import (
    KEY,
    MANAGED,
    able,  # noqa: F401 - a fixture
    another,
    append,
    append_past_the_catalog,
    commit,
    create_managed,
    directory,
    meanwhile,
    rows,
    state,
    table,
)
from .managing import (
    insert as insert_row,
)
from .memory_catalog import MemoryCatalog, MemoryNamespace, MemoryServer
from .staging import stage

pytestmark = [pytest.mark.quick, pytest.mark.usefixtures("able")]


# -- inserts ---------------------------------------------------------------------------------------


@pytest.mark.spec("operations.md#insertintotable")
def test_concurrent_inserts_of_one_process_commit_at_the_first_try(
    namespace: MemoryNamespace, monkeypatch: pytest.MonkeyPatch
) -> None:
    create_managed(namespace)
    tries: list[int] = []
    create_version = TableView.create_table_version

    def count(view: TableView, request: Any) -> api.CreateTableVersionResponse:
        tries.append(request["version"] if isinstance(request, dict) else request.version)
        return create_version(view, request)

    monkeypatch.setattr(TableView, "create_table_version", count)
    with ThreadPoolExecutor(8) as pool:
        request = api.InsertIntoTableRequest(id=TABLE)
        data = [ipc(pa.table({"a": [value]})) for value in range(3, 35)]
        list(pool.map(partial(namespace.insert_into_table, request), data))
    assert sorted(tries) == list(range(2, 34))
    assert rows(namespace) == list(range(35))


@pytest.mark.spec("operations.md#insertintotable")
@pytest.mark.parametrize("fails", [False, True])
def test_a_commit_that_takes_long_delays_another_for_a_bounded_time(
    monkeypatch: pytest.MonkeyPatch, fails: bool
) -> None:
    monkeypatch.setattr(insert, "_TURN_SECONDS", 0.1)
    inner = Barrier(2, timeout=20)

    def commit(_: int) -> None:
        with insert._commit_turn("file:///table"):
            inner.wait()  # both are here: the second one did not wait for the first
            if fails:
                raise OSError("the storage does not answer")

    with ThreadPoolExecutor(2) as pool:
        started = [pool.submit(commit, each) for each in range(2)]
        outcomes = [type(each.exception()) for each in started]
    assert outcomes == [OSError if fails else type(None)] * 2
    with insert._commit_turn("file:///table"):
        assert insert._commits.turns["file:///table"].locked()


def test_a_forked_child_waits_for_no_commit_of_its_parent() -> None:
    def commit() -> None:
        with insert._commit_turn("file:///table"):
            insert._let_refused_clients_commit("file:///table")

    commits = insert._commits
    with insert._commit_turn("file:///table"), commits.turns_lock, commits.refused_changed:
        assert returns_in_child(commit, 5)


@pytest.mark.spec("managed.md#the-steps-of-a-commit")
def test_inserts_let_a_client_commit_that_was_refused(
    namespace: MemoryNamespace, server: MemoryServer
) -> None:
    """Lance pauses after a refusal: without a gap for it, the client would rarely commit."""
    create_managed(namespace)
    request = api.InsertIntoTableRequest(id=TABLE)
    version, late = stage(namespace)
    namespace.insert_into_table(request, ipc(table(3)))
    with pytest.raises(errors.ConcurrentModificationError):
        commit(namespace, version, str(late))
    with ThreadPoolExecutor(1) as pool:
        insertion = pool.submit(namespace.insert_into_table, request, ipc(table(4)))
        with pytest.raises(NotYetError):
            insertion.result(timeout=0.5)
        version, staged = stage(namespace)
        commit(namespace, version, str(staged))
        assert insertion.result(timeout=20).transaction_id
    assert state(server).version == 4


@pytest.mark.spec("managed.md#the-steps-of-a-commit")
def test_inserts_go_on_where_a_refused_client_does_not_come_back(
    namespace: MemoryNamespace, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(insert, "_RETRY_SECONDS", 0.2)
    create_managed(namespace)
    version, late = stage(namespace)
    request = api.InsertIntoTableRequest(id=TABLE)
    namespace.insert_into_table(request, ipc(table(3)))
    with pytest.raises(errors.ConcurrentModificationError):
        commit(namespace, version, str(late))
    namespace.insert_into_table(request, ipc(table(4)))
    assert rows(namespace) == [0, 1, 2, 3, 4]


# -- batches ---------------------------------------------------------------------------------------


def test_a_table_declared_in_a_batch_says_that_commits_go_through_the_namespace(
    namespace: MemoryNamespace,
) -> None:
    asked: Any = {"operations": [{"declare_table": {"id": TABLE, "properties": MANAGED}}]}
    (made,) = namespace.batch_commit_tables(asked).results
    assert made.declare_table is not None
    assert made.declare_table.managed_versioning is True


# -- what was written past the catalog -------------------------------------------------------------


def test_what_was_set_aside_meanwhile_is_adopted_from_there(
    namespace: MemoryNamespace, server: MemoryServer
) -> None:
    create_managed(namespace)
    append_past_the_catalog(server, 7)
    connection = another(namespace).connection
    meanwhile(
        server, "before", lambda: out_of_band.quarantine(TableEntry(connection, server.tables[KEY]))
    )
    assert namespace.adopt_out_of_band_versions(TABLE) == 2
    assert rows(namespace) == [0, 1, 2, 7]
    assert append(namespace, 8).version == 3


def test_what_was_set_aside_for_a_commit_meanwhile_is_not_adopted(
    namespace: MemoryNamespace, server: MemoryServer
) -> None:
    create_managed(namespace)
    append_past_the_catalog(server, 7)
    other = another(namespace)
    meanwhile(server, "before", lambda: append(other, 8))
    with pytest.raises(errors.ConcurrentModificationError):
        namespace.adopt_out_of_band_versions(TABLE)
    with pytest.raises(errors.InvalidInputError, match="has no version that was not committed"):
        namespace.adopt_out_of_band_versions(TABLE)
    assert rows(namespace) == [0, 1, 2, 8]


@pytest.mark.spec("managed.md#out-of-band-versions")
def test_a_commit_waits_for_one_who_sets_manifests_aside(
    namespace: MemoryNamespace, server: MemoryServer
) -> None:
    create_managed(namespace)
    opened = lance.dataset(namespace_client=namespace, table_id=TABLE)
    connection = another(namespace).connection
    with (
        ThreadPoolExecutor(1) as pool,
        compare_and_set.held(TableEntry(connection, server.tables[KEY])),
    ):
        waiting = pool.submit(opened.insert, pa.table({"a": [7]}))
        with pytest.raises(NotYetError):
            waiting.result(0.5)
        compare_and_set.release(TableEntry(connection, server.tables[KEY]))
        waiting.result(10)
    assert rows(namespace) == [0, 1, 2, 7]


def test_what_was_set_aside_meanwhile_is_not_taken_in_by_a_conversion(
    namespace: MemoryNamespace, server: MemoryServer
) -> None:
    create(namespace, TABLE)
    connection = another(namespace).connection

    def clear() -> None:
        out_of_band.quarantine(TableEntry(connection, server.tables[KEY]))

    def write() -> None:
        append_past_the_catalog(server, 7)
        meanwhile(server, "before", clear)

    meanwhile(server, "before", write)
    namespace.manage_table(TABLE)
    assert rows(namespace) == [0, 1, 2]
    assert append(namespace, 8).version == 2


@pytest.mark.spec("operations.md#adopt_out_of_band_versions")
def test_what_stands_on_a_version_that_lost_is_not_adopted(
    namespace: MemoryNamespace, server: MemoryServer
) -> None:
    create_managed(namespace)
    version, staged = stage(namespace)
    append_past_the_catalog(server, 7)
    append_past_the_catalog(server, 8)
    commit(namespace, version, str(staged))
    with pytest.raises(errors.InvalidTableStateError, match="Another version 2"):
        namespace.adopt_out_of_band_versions(TABLE)
    assert rows(namespace) == [0, 1, 2, 100]
    assert namespace.discard_out_of_band_versions(TABLE) == 2


# -- holds -----------------------------------------------------------------------------------------


def test_of_two_that_hold_a_table_in_the_same_moment_one_does(
    namespace: MemoryNamespace, server: MemoryServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    create_managed(namespace)
    now = states._now()
    monkeypatch.setattr(states, "_now", lambda: now)
    record, connection = server.tables[KEY], another(namespace).connection
    wanted = state(server).hold()
    with (
        compare_and_set.held(TableEntry(namespace.connection, record)),
        pytest.raises(errors.ConcurrentModificationError),
    ):
        compare_and_set.swap(TableEntry(connection, record), wanted)


def test_a_hold_by_a_clock_that_runs_ahead_ends_too(
    namespace: MemoryNamespace, server: MemoryServer
) -> None:
    create_managed(namespace)
    found = server.tables[KEY]
    ahead = states.with_state(found, State(1, state(server).staged, held=2**50))
    server.tables[KEY] = ahead
    assert append(namespace, 7).version == 2


def test_a_hold_ends_where_the_entry_cannot_be_read_after_it(
    namespace: MemoryNamespace, server: MemoryServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    create_managed(namespace)
    append_past_the_catalog(server, 7)
    load, left = MemoryCatalog.load_table, [errors.ServiceUnavailableError("away")]

    def load_or_fail(self: MemoryCatalog, path: tuple[str, ...]) -> Any:
        if left and state(server).is_held:
            raise left.pop()
        return load(self, path)

    monkeypatch.setattr(MemoryCatalog, "load_table", load_or_fail)
    with pytest.raises(errors.ServiceUnavailableError):
        namespace.discard_out_of_band_versions(TABLE)
    assert not left
    insert_row(namespace)
    assert state(server).version == 2


# -- commits ---------------------------------------------------------------------------------------


def test_a_commit_whose_storage_goes_away_after_it_is_one(
    namespace: MemoryNamespace, server: MemoryServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    create_managed(namespace)
    version, staged = stage(namespace)
    away = raising(errors.ServiceUnavailableError("storage is away"))
    with monkeypatch.context() as patched:
        patched.setattr(ManagedDirectory, "latest", away)
        made = commit(namespace, version, str(staged)).version
    assert made is not None
    assert made.version == state(server).version == 2
    assert made.manifest_path.endswith(f"/_versions/{staged.name}")
    assert rows(namespace) == [0, 1, 2, 100]


def test_a_commit_whose_reply_was_lost_is_known_though_others_hold_the_table(
    namespace: MemoryNamespace, server: MemoryServer
) -> None:
    create_managed(namespace)
    version, staged = stage(namespace)

    def hold_and_lose() -> None:
        held = states.with_state(server.tables[KEY], state(server).hold())
        server.tables[KEY] = replace(held, revision=server.stamp())
        raise OutcomeUnknownError("lost")

    meanwhile(server, "after", hold_and_lose)
    made = commit(namespace, version, str(staged)).version
    assert made is not None
    assert made.version == state(server).version == 2
    assert rows(namespace) == [0, 1, 2, 100]


def test_a_commit_of_which_nothing_is_known_can_be_read_if_it_happened(
    namespace: MemoryNamespace, server: MemoryServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    create_managed(namespace)
    load = MemoryCatalog.load_table

    def lose() -> None:
        away = raising(errors.ServiceUnavailableError("away"))
        monkeypatch.setattr(MemoryCatalog, "load_table", away)
        raise OutcomeUnknownError("lost")

    meanwhile(server, "after", lose)
    with pytest.raises(errors.ServiceUnavailableError):
        insert_row(namespace)
    monkeypatch.setattr(MemoryCatalog, "load_table", load)
    assert state(server).version == 2
    assert rows(namespace) == [0, 0, 1, 2]
    assert append(namespace, 7).version == 3


# -- entries ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "remove",
    [
        lambda ns: ns.deregister_table(api.DeregisterTableRequest(id=TABLE)),
        lambda ns: ns.drop_table(api.DropTableRequest(id=TABLE)),
    ],
    ids=["deregister", "drop"],
)
def test_a_removal_that_fails_keeps_a_commit_that_came_right_before_it(
    namespace: MemoryNamespace, server: MemoryServer, remove: Callable[[MemoryNamespace], Any]
) -> None:
    create_managed(namespace)
    other = another(namespace)
    moments: list[str] = []

    def fault(change: str, moment: str) -> None:
        moments.append(f"{moment} {change}")
        if moments == ["before alter_table"]:  # of the hold
            append(other, 7)
        if (change, moment) == ("drop_table", "before"):
            raise errors.PermissionDeniedError("not yours")

    server.fault = fault
    with pytest.raises(errors.PermissionDeniedError, match="not yours"):
        remove(namespace)
    assert state(server) == State(2, state(server).staged)
    assert rows(namespace) == [0, 1, 2, 7]


def test_properties_are_set_though_others_commit_meanwhile(
    namespace: MemoryNamespace, server: MemoryServer
) -> None:
    create_managed(namespace)
    # The first change is the commit of the rows.
    meanwhile(server, "before", lambda: append(another(namespace), 7), number=2)
    create(namespace, TABLE, 2, mode="Overwrite", properties={"owner": "me"})
    found = namespace.describe_table(api.DescribeTableRequest(id=TABLE))
    assert found.properties == {"owner": "me"}
    assert rows(namespace) == [0, 1, 7]
    assert state(server).version == 3


def test_a_transaction_past_the_catalog_is_not_committed(
    namespace: MemoryNamespace, server: MemoryServer
) -> None:
    create_managed(namespace)
    append_past_the_catalog(server, 7)
    written = lance.dataset(str(directory(server))).read_transaction(2)
    assert written is not None
    asked = api.DescribeTransactionRequest(id=[*TABLE, written.uuid])
    assert namespace.describe_transaction(asked).status == "Running"
    with pytest.raises(errors.TransactionNotFoundError):
        namespace.describe_transaction(api.DescribeTransactionRequest(id=[*TABLE, "2"]))
