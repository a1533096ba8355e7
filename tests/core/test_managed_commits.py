"""Implementation-managed tables: each commit goes through the catalog, whatever happens meanwhile.

The catalog is the one in memory: what is shown is what core does with a catalog that compares and
sets. That real catalogs do is shown with the adapters.
"""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from concurrent.futures import TimeoutError as NotYetError
from dataclasses import replace
from datetime import timedelta
from functools import partial
from threading import Barrier
from typing import Any

import lance
import lance_namespace as api
import pyarrow as pa
import pytest
from lance_namespace import errors
from servers.processes import returns_in_child

from lance_bridge import managed_state as states
from lance_bridge.catalog import LATEST
from lance_bridge.dataset import insert as inserts
from lance_bridge.entry import TableEntry
from lance_bridge.errors import OutcomeUnknownError
from lance_bridge.managed import compare_and_set
from lance_bridge.managed import version_directory as directories
from lance_bridge.managed.commits import TableView
from lance_bridge.managed_state import State
from lance_bridge.storage import manifests
from lance_bridge.table import Table
from lance_bridge.testing.calls import Calls, ipc

from .managed_tables import (
    KEY,
    MANAGED,
    Death,
    another,
    append,
    append_past_the_catalog,
    commit,
    create_managed,
    directory,
    insert,
    leave_unfinished,
    meanwhile,
    rows,
    state,
    table,
    versions,
)
from .memory_catalog import (
    TABLE,
    MemoryCatalog,
    MemoryNamespace,
    Moment,
    create,
    raiser,
    stage,
    stream,
)

pytestmark = [pytest.mark.quick, pytest.mark.usefixtures("able")]


def manifest_files(client: MemoryNamespace) -> list[str]:
    return sorted(p.name for p in (directory(client) / "_versions").glob("*.manifest*"))


@pytest.mark.spec(
    "clients.md#which-writers-commit-through-the-catalog", "managed.md#operations-on-managed-tables"
)
def test_every_operation_that_changes_rows_commits_through_the_catalog(
    managed: MemoryNamespace,
) -> None:
    calls = Calls(managed)
    calls.call("insert_into_table", TABLE, stream(2))
    calls.call("update_table", TABLE, updates=[["a", "a + 10"]], predicate="a = 0")
    calls.call("delete_from_table", TABLE, predicate="a = 1")
    upsert = {"on": ["a"], "when_not_matched_insert_all": True}
    calls.call("merge_insert_into_table", TABLE, stream(4), **upsert)
    calls.call("restore_table", TABLE, version=1)
    calls.create_table(TABLE, stream(5), mode="Overwrite")
    calls.call("insert_into_table", TABLE, stream(1), mode="overwrite")
    assert state(managed).version == 8
    assert versions(managed) == list(range(1, 9))
    assert rows(managed) == [0]
    assert [calls.count(TABLE, version=each) for each in range(1, 9)] == [3, 5, 5, 3, 6, 3, 5, 1]


# -- crashes and lost replies ----------------------------------------------------------------------


@pytest.mark.spec("managed.md#the-steps-of-a-commit")
@pytest.mark.parametrize("step", ["before the final name", "before the staged file is deleted"])
def test_a_version_whose_writer_died_is_read_and_built_upon(
    managed: MemoryNamespace, monkeypatch: pytest.MonkeyPatch, step: str
) -> None:
    if step == "before the final name":
        leave_unfinished(managed, monkeypatch)
    else:
        version, staged = stage(managed)
        with monkeypatch.context() as patched:
            patched.setattr(directories, "discard", raiser(Death()))
            with pytest.raises(Death):
                commit(managed, version, str(staged))
    assert state(managed).version == 2
    assert state(managed).staged in manifest_files(managed)
    found = managed.count_table_rows(api.CountTableRowsRequest(id=TABLE)).count
    assert versions(managed) == [1, 2]
    assert append(managed, 9).version == 3
    assert len(rows(managed)) == (found or 0) + 1
    assert [name for name in manifest_files(managed) if not name.endswith(".manifest")] == []


def test_a_commit_finishes_the_version_before_it(unfinished: MemoryNamespace) -> None:
    staged = directory(unfinished) / "_versions" / state(unfinished).staged
    final = staged.with_name(staged.name.split(".manifest")[0] + ".manifest")
    final.write_bytes(staged.read_bytes())
    version, next_staged = stage(unfinished)
    final.unlink()
    commit(unfinished, version, str(next_staged))
    assert final.exists()
    assert versions(unfinished) == [1, 2, 3]


@pytest.mark.spec("managed.md#the-steps-of-a-commit")
def test_a_reader_who_may_not_write_reads_a_version_that_is_still_staged(
    unfinished: MemoryNamespace, monkeypatch: pytest.MonkeyPatch
) -> None:
    read_only = raiser(errors.PermissionDeniedError("read only"))
    monkeypatch.setattr(directories.ManagedDirectory, "_put_final", read_only)
    described = unfinished.describe_table_version(api.DescribeTableVersionRequest(id=TABLE))
    assert described.version.version == 2
    assert ".manifest-" in described.version.manifest_path
    assert len(rows(unfinished)) > 3


@pytest.mark.spec("managed.md#the-steps-of-a-commit")
def test_a_writer_that_died_before_the_commit_leaves_the_table_as_it_was(
    managed: MemoryNamespace,
) -> None:
    stage(managed)
    assert versions(managed) == [1]
    assert rows(managed) == [0, 1, 2]
    assert append(managed, 9).version == 2


@pytest.mark.spec("managed.md#the-steps-of-a-commit")
@pytest.mark.parametrize("moment", ["before", "after"])
def test_a_commit_whose_reply_was_lost_is_made_once(
    managed: MemoryNamespace, moment: Moment
) -> None:
    meanwhile(managed, moment, raiser(OutcomeUnknownError("lost")))
    assert append(managed, 7).version == 2
    assert rows(managed) == [0, 1, 2, 7]


def test_a_commit_whose_reply_was_lost_is_known_though_others_have_built_on_it(
    managed: MemoryNamespace,
) -> None:
    def build_and_lose() -> None:
        append(another(managed), 8)
        raise OutcomeUnknownError("lost")

    meanwhile(managed, "after", build_and_lose)
    assert append(managed, 7).version == 2
    assert rows(managed) == [0, 1, 2, 7, 8]
    assert versions(managed) == [1, 2, 3]


def test_a_commit_that_never_arrived_is_not_taken_for_another_of_its_number(
    managed: MemoryNamespace,
) -> None:
    def commit_and_lose() -> None:
        append(another(managed), 8)
        append(another(managed), 9)
        raise OutcomeUnknownError("lost")

    meanwhile(managed, "before", commit_and_lose)
    assert append(managed, 7).version == 4
    assert rows(managed) == [0, 1, 2, 7, 8, 9]


def test_a_commit_whose_reply_was_lost_is_known_though_others_hold_the_table(
    managed: MemoryNamespace,
) -> None:
    version, staged = stage(managed)

    def hold_and_lose() -> None:
        held = states.with_state(managed.server.tables[KEY], state(managed).hold())
        managed.server.tables[KEY] = replace(held, revision=managed.server.stamp())
        raise OutcomeUnknownError("lost")

    meanwhile(managed, "after", hold_and_lose)
    made = commit(managed, version, str(staged)).version
    assert made is not None
    assert made.version == state(managed).version == 2
    assert rows(managed) == [0, 1, 2, 100]


def test_a_commit_whose_storage_goes_away_after_it_is_one(
    managed: MemoryNamespace, monkeypatch: pytest.MonkeyPatch
) -> None:
    version, staged = stage(managed)
    away = raiser(errors.ServiceUnavailableError("storage is away"))
    with monkeypatch.context() as patched:
        patched.setattr(directories.ManagedDirectory, "latest", away)
        made = commit(managed, version, str(staged)).version
    assert made is not None
    assert made.version == state(managed).version == 2
    assert made.manifest_path.endswith(f"/_versions/{staged.name}")
    assert rows(managed) == [0, 1, 2, 100]


def test_a_commit_of_which_nothing_is_known_can_be_read_if_it_happened(
    managed: MemoryNamespace, monkeypatch: pytest.MonkeyPatch
) -> None:
    load = MemoryCatalog.load_table

    def lose() -> None:
        away = raiser(errors.ServiceUnavailableError("away"))
        monkeypatch.setattr(MemoryCatalog, "load_table", away)
        raise OutcomeUnknownError("lost")

    meanwhile(managed, "after", lose)
    with pytest.raises(errors.ServiceUnavailableError):
        insert(managed)
    monkeypatch.setattr(MemoryCatalog, "load_table", load)
    assert state(managed).version == 2
    assert rows(managed) == [0, 0, 1, 2]
    assert append(managed, 7).version == 3


def test_another_change_of_the_entry_does_not_stop_a_commit(managed: MemoryNamespace) -> None:
    def change() -> None:
        found = managed.server.tables[KEY]
        changed = found.with_properties({**found.properties, "owner": "me"})
        managed.server.tables[KEY] = replace(changed, revision=managed.server.stamp())

    meanwhile(managed, "before", change)
    assert append(managed, 7).version == 2
    found = managed.describe_table(api.DescribeTableRequest(id=TABLE))
    assert found.properties == {"owner": "me"}


@pytest.mark.parametrize("is_first", [False, True])
def test_a_commit_that_the_catalog_refuses_says_why(
    namespace: MemoryNamespace, is_first: bool
) -> None:
    if is_first:
        namespace.declare_table(api.DeclareTableRequest(id=TABLE, properties=MANAGED))
    else:
        create_managed(namespace)
    before = state(namespace)
    meanwhile(namespace, "before", raiser(errors.PermissionDeniedError("not yours")))
    with pytest.raises(errors.PermissionDeniedError, match="not yours"):
        namespace.insert_into_table(api.InsertIntoTableRequest(id=TABLE), stream(2))
    assert state(namespace) == before


def test_a_commit_to_a_table_that_was_dropped_is_not_found(managed: MemoryNamespace) -> None:
    dataset = lance.dataset(namespace_client=managed, table_id=TABLE)
    managed.deregister_table(api.DeregisterTableRequest(id=TABLE))
    with pytest.raises(OSError, match="is unknown"):
        lance.write_dataset(table(5), dataset, mode="append")
    assert KEY not in managed.server.tables


@pytest.mark.parametrize("managed", [False, True])
def test_what_lance_gives_up_because_of_others_is_a_concurrent_modification(
    namespace: MemoryNamespace, managed: bool
) -> None:
    create(namespace, TABLE, properties=MANAGED if managed else {})
    changed = Table(namespace.connection, namespace.server.tables[KEY])
    opened = changed.open(write=True)
    other = lance.dataset(namespace_client=namespace, table_id=TABLE)
    other.update({"a": "a + 10"}, where="a = 1")
    with (
        pytest.raises(errors.ConcurrentModificationError) as caught,
        changed.committing(opened, "it was not updated"),
    ):
        opened.update({"a": "a + 20"}, where="a = 1", retry_timeout=timedelta(0))
    assert "Too many concurrent writers" in str(caught.value.__cause__)
    assert rows(namespace) == [0, 2, 11]


def test_others_who_are_faster_each_time_are_a_concurrent_modification(
    managed: MemoryNamespace,
) -> None:
    opened = lance.dataset(str(directory(managed)))
    table = Table(managed.connection, managed.server.tables[KEY])
    with (
        pytest.raises(errors.ConcurrentModificationError),
        table.committing(opened, "it was not compacted"),
    ):
        raise OSError("Too many concurrent writers. Attempted 5 times, but failed on retry_timeout")


# -- requests --------------------------------------------------------------------------------------


@pytest.mark.spec("managed.md#the-steps-of-a-commit")
def test_the_same_request_again_is_no_conflict(managed: MemoryNamespace) -> None:
    version, staged = stage(managed)
    first = commit(managed, version, str(staged))
    effects = len(managed.server.effects)
    assert commit(managed, version, str(staged)) == first
    assert len(managed.server.effects) == effects


@pytest.mark.parametrize(
    ("change", "error"),
    [
        ({"manifest_path": "elsewhere/x.manifest-1"}, errors.InvalidInputError),
        ({"manifest_size": 3}, errors.InvalidInputError),
        ({"e_tag": '"another"'}, errors.InvalidInputError),
        ({"naming_scheme": "V1"}, errors.InvalidInputError),
        ({"metadata": {"a": "b"}}, errors.UnsupportedOperationError),
        ({"branch": "b"}, errors.TableBranchNotFoundError),
        ({"version": 0}, errors.InvalidInputError),
    ],
)
def test_a_request_that_is_wrong_commits_nothing(
    managed: MemoryNamespace, change: dict[str, Any], error: type[Exception]
) -> None:
    version, staged = stage(managed)
    request = {"id": TABLE, "version": version, "manifest_path": str(staged), **change}
    with pytest.raises(error):
        managed.create_table_version(api.CreateTableVersionRequest(**request))
    assert state(managed).version == 1
    assert staged.exists()


def test_a_table_declared_in_a_batch_says_that_commits_go_through_the_namespace(
    namespace: MemoryNamespace,
) -> None:
    asked: Any = {"operations": [{"declare_table": {"id": TABLE, "properties": MANAGED}}]}
    (made,) = namespace.batch_commit_tables(asked).results
    assert made.declare_table is not None
    assert made.declare_table.managed_versioning is True


def test_the_latest_version_is_listed_without_listing_all(
    managed: MemoryNamespace, monkeypatch: pytest.MonkeyPatch
) -> None:
    latest = api.ListTableVersionsRequest(id=TABLE, limit=1, descending=True)
    alone = managed.list_table_versions(latest)
    assert ([each.version for each in alone.versions], alone.page_token) == ([1], None)
    append(managed, 7)
    refuse = raiser(AssertionError("all versions were listed"))
    with monkeypatch.context() as patched:
        patched.setattr(manifests.VersionDirectory, "list", refuse)
        page = managed.list_table_versions(latest)
    assert [each.version for each in page.versions] == [2]
    rest = managed.list_table_versions(
        api.ListTableVersionsRequest(id=TABLE, descending=True, page_token=page.page_token)
    )
    assert [each.version for each in rest.versions] == [1]


@pytest.mark.spec("managed.md#operations-on-managed-tables")
def test_versions_are_deleted_up_to_the_latest(managed: MemoryNamespace) -> None:
    append(managed, 7)
    append(managed, 8)

    def delete(end: int) -> Any:
        ranges = [{"start_version": 0, "end_version": end}]
        return Calls(managed).call("batch_delete_table_versions", TABLE, ranges=ranges)

    assert delete(3).deleted_count == 2
    assert versions(managed) == [3]
    with pytest.raises(errors.InvalidInputError, match="latest"):
        delete(-1)
    assert rows(managed) == [0, 1, 2, 7, 8]


@pytest.mark.spec("common.md#describetable")
def test_an_entry_whose_state_is_not_ours_is_an_invalid_state(managed: MemoryNamespace) -> None:
    for text in ("nonsense", "[1]", '{"version": "1"}', '{"version": 1, "staged": "../x"}'):
        found = managed.server.tables[KEY]
        managed.server.tables[KEY] = found.with_properties({**found.properties, LATEST: text})
        with pytest.raises(errors.InvalidTableStateError, match="latest version"):
            managed.count_table_rows(api.CountTableRowsRequest(id=TABLE))
        with pytest.raises(errors.InvalidTableStateError, match="of its latest version"):
            managed.describe_table(api.DescribeTableRequest(id=TABLE))


@pytest.mark.parametrize(
    "given", [State(0), State(7, "00.manifest-a"), State(7, "", 5), State(3, "x", 1763759000000)]
)
def test_a_state_is_read_as_it_was_written(given: State) -> None:
    assert State.from_text(given.to_text()) == given


@pytest.mark.spec("server.md#governed-commits")
def test_no_older_version_takes_the_place_of_a_latest_that_is_missing(
    managed: MemoryNamespace,
) -> None:
    append(managed, 7)
    latest = min((directory(managed) / "_versions").glob("*.manifest"))
    content = latest.read_bytes()
    latest.unlink()
    with pytest.raises(errors.InvalidTableStateError, match="manifest of version 2, the latest"):
        versions(managed)
    with pytest.raises(ValueError, match="manifest of version 2, the latest"):
        rows(managed)
    with pytest.raises(OSError, match="manifest of version 2, the latest"):
        append(managed, 8)
    latest.write_bytes(content)
    assert rows(managed) == [0, 1, 2, 7]
    latest.unlink()
    managed.drop_table(api.DropTableRequest(id=TABLE))


# -- inserts ---------------------------------------------------------------------------------------


@pytest.mark.spec("operations.md#insertintotable")
def test_concurrent_inserts_of_one_process_commit_at_the_first_try(
    managed: MemoryNamespace, monkeypatch: pytest.MonkeyPatch
) -> None:
    tries: list[int] = []
    create_version = TableView.create_table_version

    def count(view: TableView, request: Any) -> api.CreateTableVersionResponse:
        tries.append(request["version"] if isinstance(request, dict) else request.version)
        return create_version(view, request)

    monkeypatch.setattr(TableView, "create_table_version", count)
    with ThreadPoolExecutor(8) as pool:
        request = api.InsertIntoTableRequest(id=TABLE)
        data = [ipc(pa.table({"a": [value]})) for value in range(3, 35)]
        list(pool.map(partial(managed.insert_into_table, request), data))
    assert sorted(tries) == list(range(2, 34))
    assert rows(managed) == list(range(35))


@pytest.mark.spec("operations.md#insertintotable")
@pytest.mark.parametrize("fails", [False, True])
def test_a_commit_that_takes_long_delays_another_for_a_bounded_time(
    monkeypatch: pytest.MonkeyPatch, fails: bool
) -> None:
    monkeypatch.setattr(inserts, "_TURN_SECONDS", 0.1)
    inner = Barrier(2, timeout=20)

    def commit(_: int) -> None:
        with inserts._commit_turn("file:///table"):
            inner.wait()  # both are here: the second one did not wait for the first
            if fails:
                raise OSError("the storage does not answer")

    with ThreadPoolExecutor(2) as pool:
        started = [pool.submit(commit, each) for each in range(2)]
        outcomes = [type(each.exception()) for each in started]
    assert outcomes == [OSError if fails else type(None)] * 2
    with inserts._commit_turn("file:///table"):
        assert inserts._commits.turns["file:///table"].locked()


def test_a_forked_child_waits_for_no_commit_of_its_parent() -> None:
    def commit() -> None:
        with inserts._commit_turn("file:///table"):
            inserts.yield_to_rejected_writers("file:///table")

    commits = inserts._commits
    with inserts._commit_turn("file:///table"), commits.turns_lock, commits.refused_changed:
        assert returns_in_child(commit, 5)


@pytest.mark.spec("managed.md#the-steps-of-a-commit")
def test_inserts_let_a_client_commit_that_was_refused(managed: MemoryNamespace) -> None:
    """Lance pauses after a refusal: without a gap for it, the client would rarely commit."""
    request = api.InsertIntoTableRequest(id=TABLE)
    version, late = stage(managed)
    managed.insert_into_table(request, ipc(table(3)))
    with pytest.raises(errors.ConcurrentModificationError):
        commit(managed, version, str(late))
    with ThreadPoolExecutor(1) as pool:
        insertion = pool.submit(managed.insert_into_table, request, ipc(table(4)))
        with pytest.raises(NotYetError):
            insertion.result(timeout=0.5)
        version, staged = stage(managed)
        commit(managed, version, str(staged))
        assert insertion.result(timeout=20).transaction_id
    assert state(managed).version == 4


@pytest.mark.spec("managed.md#the-steps-of-a-commit")
def test_inserts_go_on_where_a_refused_client_does_not_come_back(
    namespace: MemoryNamespace, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(inserts, "_RETRY_SECONDS", 0.2)
    create_managed(namespace)
    version, late = stage(namespace)
    request = api.InsertIntoTableRequest(id=TABLE)
    namespace.insert_into_table(request, ipc(table(3)))
    with pytest.raises(errors.ConcurrentModificationError):
        commit(namespace, version, str(late))
    namespace.insert_into_table(request, ipc(table(4)))
    assert rows(namespace) == [0, 1, 2, 3, 4]


# -- holds -----------------------------------------------------------------------------------------


def test_of_two_that_hold_a_table_in_the_same_moment_one_does(
    managed: MemoryNamespace, monkeypatch: pytest.MonkeyPatch
) -> None:
    now = states._now()
    monkeypatch.setattr(states, "_now", lambda: now)
    record, connection = managed.server.tables[KEY], another(managed).connection
    wanted = state(managed).hold()
    with (
        compare_and_set.held(TableEntry(managed.connection, record)),
        pytest.raises(errors.ConcurrentModificationError),
    ):
        compare_and_set.swap(TableEntry(connection, record), wanted)


def test_a_hold_by_a_clock_that_runs_ahead_ends_too(managed: MemoryNamespace) -> None:
    found = managed.server.tables[KEY]
    ahead = states.with_state(found, State(1, state(managed).staged, held=2**50))
    managed.server.tables[KEY] = ahead
    assert append(managed, 7).version == 2


def test_a_hold_ends_where_the_entry_cannot_be_read_after_it(
    managed: MemoryNamespace, monkeypatch: pytest.MonkeyPatch
) -> None:
    append_past_the_catalog(managed, 7)
    load, left = MemoryCatalog.load_table, [errors.ServiceUnavailableError("away")]

    def load_or_fail(self: MemoryCatalog, path: tuple[str, ...]) -> Any:
        if left and state(managed).is_held:
            raise left.pop()
        return load(self, path)

    monkeypatch.setattr(MemoryCatalog, "load_table", load_or_fail)
    with pytest.raises(errors.ServiceUnavailableError):
        managed.discard_out_of_band_versions(TABLE, [2])
    assert not left
    insert(managed)
    assert state(managed).version == 2


# -- changes of the entry --------------------------------------------------------------------------


@pytest.mark.parametrize(
    "remove",
    [
        lambda ns: ns.deregister_table(api.DeregisterTableRequest(id=TABLE)),
        lambda ns: ns.drop_table(api.DropTableRequest(id=TABLE)),
    ],
    ids=["deregister", "drop"],
)
def test_a_removal_that_fails_keeps_a_commit_that_came_right_before_it(
    managed: MemoryNamespace, remove: Callable[[MemoryNamespace], Any]
) -> None:
    other = another(managed)
    moments: list[str] = []

    def fault(change: str, moment: str) -> None:
        moments.append(f"{moment} {change}")
        if moments == ["before alter_table"]:  # of the hold
            append(other, 7)
        if (change, moment) == ("drop_table", "before"):
            raise errors.PermissionDeniedError("not yours")

    managed.server.fault = fault
    with pytest.raises(errors.PermissionDeniedError, match="not yours"):
        remove(managed)
    assert state(managed) == State(2, state(managed).staged)
    assert rows(managed) == [0, 1, 2, 7]


def test_properties_are_set_though_others_commit_meanwhile(managed: MemoryNamespace) -> None:
    # The first change is the commit of the rows.
    meanwhile(managed, "before", lambda: append(another(managed), 7), number=2)
    create(managed, TABLE, 2, mode="Overwrite", properties={"owner": "me"})
    found = managed.describe_table(api.DescribeTableRequest(id=TABLE))
    assert found.properties == {"owner": "me"}
    assert rows(managed) == [0, 1, 7]
    assert state(managed).version == 3
