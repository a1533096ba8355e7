"""Writes that began while the storage managed their table, and overlap a change of its manager."""

from __future__ import annotations

import threading
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import lance
import lance_namespace as api
import pytest
from lance_namespace import errors

from lance_bridge import LanceBridgeNamespace
from lance_bridge import managed_state as states
from lance_bridge.dataset.maintenance import compact
from lance_bridge.entry import TableEntry
from lance_bridge.errors import OutcomeUnknownError
from lance_bridge.managed import conversion, out_of_band
from lance_bridge.managed.commits import TableView
from lance_bridge.records import ENTRY_ID, FOREIGN_COMMITS
from lance_bridge.table import Table
from lance_bridge.tables.collection import Tables
from lance_bridge.testing.calls import Calls, ipc
from lance_bridge.testing.concurrency import answers_only, race

from .managed_tables import (
    KEY,
    Death,
    another,
    append,
    append_past_the_catalog,
    commit,
    die,
    directory,
    insert,
    leave_unfinished,
    meanwhile,
    rows,
    state,
    versions,
)
from .managed_tables import table as table_of
from .memory_catalog import TABLE, MemoryCatalog, MemoryNamespace, create, raiser, stage, stream

pytestmark = [
    pytest.mark.quick,
    pytest.mark.usefixtures("able"),
    pytest.mark.spec("managed.md#writes-that-overlap-the-conversion"),
]

Act = Callable[[], object]

SQLITE_CATALOG = Path(__file__).parents[2] / "examples" / "sqlite-catalog" / "src"


@pytest.fixture
def writes(with_table: MemoryNamespace) -> MemoryNamespace:
    """The client that writes to a table, which its storage manages, of the rows 0, 1 and 2."""
    return with_table


@pytest.fixture
def other(writes: MemoryNamespace) -> MemoryNamespace:
    """Another client of the same table."""
    return another(writes)


def once(act: Act) -> Act:
    """Return a function that acts at its first call only."""
    left = [act]

    def acting() -> None:
        if left:
            left.pop()()

    return acting


@pytest.fixture
def after_opening(monkeypatch: pytest.MonkeyPatch) -> Callable[[Act], None]:
    """Have something happen after the writer has found the table, before it commits."""

    def install(act: Act) -> None:
        load, act_once = Tables.load, once(act)

        def load_first(tables: Tables, path: Any) -> Table:
            found = load(tables, path)
            act_once()
            return found

        monkeypatch.setattr(Tables, "load", load_first)

    return install


@pytest.fixture
def after_commit(monkeypatch: pytest.MonkeyPatch) -> Callable[[Act], None]:
    """Have something happen between the writer's commit and its second look at the entry."""

    def install(act: Act) -> None:
        reread, act_once = TableEntry.reread_after_commit, once(act)

        def act_first(entry: TableEntry, version: int) -> TableEntry:
            act_once()
            return reread(entry, version)

        monkeypatch.setattr(TableEntry, "reread_after_commit", act_first)

    return install


def manage(ns: MemoryNamespace) -> None:
    ns.manage_table(TABLE)


def release(ns: MemoryNamespace) -> None:
    ns.release_table(TABLE)


def set_policy(ns: MemoryNamespace, policy: str) -> None:
    record = ns.server.tables[KEY]
    properties = {**record.properties, FOREIGN_COMMITS: policy}
    ns.server.tables[KEY] = record.with_properties(properties)


def require_hidden_for_good(ns: MemoryNamespace, before: list[int]) -> None:
    """Require that the table has these rows, also after further commits of others."""
    assert rows(ns) == before
    append(ns, 50)
    insert(ns)
    assert rows(ns) == sorted([*before, 50, 0])


CHANGES: dict[str, tuple[dict[str, Any], list[int]]] = {
    "insert_into_table": ({"data": 1}, [0, 0, 1, 2]),
    "insert_into_table-overwrite": ({"data": 1, "mode": "overwrite"}, [0]),
    "update_table": ({"updates": [["a", "a + 10"]], "predicate": "a = 0"}, [1, 2, 10]),
    "delete_from_table": ({"predicate": "a = 1"}, [0, 2]),
    "merge_insert_into_table": (
        {"data": 4, "on": ["a"], "when_not_matched_insert_all": True},
        [0, 1, 2, 3],
    ),
    "restore_table": ({"version": 1}, [0, 1, 2]),
    "alter_table_add_columns": (
        {"new_columns": [{"name": "b", "expression": "a + 1"}]},
        [0, 1, 2],
    ),
    "create_table_scalar_index": ({"column": "a", "index_type": "BTREE"}, [0, 1, 2]),
}


@pytest.mark.parametrize("policy", ["hide", "refuse", "adopt"])
@pytest.mark.parametrize("change", CHANGES)
def test_a_write_to_a_table_that_becomes_managed_meanwhile_is_part_of_it(
    writes: MemoryNamespace,
    other: MemoryNamespace,
    after_opening: Callable[[Act], None],
    change: str,
    policy: str,
) -> None:
    def begin() -> None:
        manage(other)
        set_policy(other, policy)

    given, found = CHANGES[change]
    data = [stream(given["data"])] if "data" in given else []
    request = {name: value for name, value in given.items() if name != "data"}
    after_opening(begin)
    Calls(writes).call(change.partition("-")[0], TABLE, *data, **request)
    assert state(writes).version == 2
    assert (rows(other), versions(other)) == (found, [1, 2])
    append(other, 50)
    assert rows(writes) == sorted([*found, 50])


def test_the_first_write_to_a_table_that_becomes_managed_meanwhile_is_part_of_it(
    namespace: MemoryNamespace, after_opening: Callable[[Act], None]
) -> None:
    namespace.declare_table(api.DeclareTableRequest(id=TABLE))
    after_opening(lambda: manage(another(namespace)))
    insert(namespace, values=2)
    assert (state(namespace).version, rows(namespace)) == (1, [0, 1])


def test_a_table_that_is_replaced_while_it_becomes_managed_has_the_new_rows(
    writes: MemoryNamespace, other: MemoryNamespace, after_commit: Callable[[Act], None]
) -> None:
    after_commit(lambda: manage(other))
    create(writes, TABLE, rows=1, mode="Overwrite")
    assert (state(writes).version, rows(other)) == (2, [0])


def test_a_version_that_a_client_creates_is_part_of_a_table_that_becomes_managed(
    writes: MemoryNamespace, other: MemoryNamespace, after_opening: Callable[[Act], None]
) -> None:
    version, staged = stage(writes)
    after_opening(lambda: manage(other))
    commit(writes, version, str(staged))
    assert (state(writes).version, rows(other)) == (2, [0, 1, 2, 100])


def test_a_write_before_the_entry_is_changed_is_part_of_the_table(
    writes: MemoryNamespace, other: MemoryNamespace
) -> None:
    meanwhile(writes, "before", lambda: insert(writes))
    manage(other)
    assert (state(writes).version, rows(other)) == (2, [0, 0, 1, 2])


def test_a_write_that_began_before_others_committed_through_the_catalog_is_on_top_of_these(
    writes: MemoryNamespace, other: MemoryNamespace, after_opening: Callable[[Act], None]
) -> None:
    def begin() -> None:
        manage(other)
        append(other, 7)

    after_opening(begin)
    insert(writes)
    assert (state(writes).version, rows(other)) == (3, [0, 0, 1, 2, 7])


def test_a_write_whose_version_others_commit_fails_and_never_appears(
    writes: MemoryNamespace,
    other: MemoryNamespace,
    after_opening: Callable[[Act], None],
    after_commit: Callable[[Act], None],
) -> None:
    after_opening(lambda: manage(other))
    after_commit(lambda: append(other, 7))
    with pytest.raises(errors.ConcurrentModificationError, match="nothing of it is visible"):
        insert(writes)
    require_hidden_for_good(other, [0, 1, 2, 7])


def test_a_write_whose_version_is_committed_and_still_staged_fails_and_never_appears(
    writes: MemoryNamespace,
    other: MemoryNamespace,
    after_opening: Callable[[Act], None],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def begin() -> None:
        manage(other)
        leave_unfinished(other, monkeypatch)

    after_opening(begin)
    with pytest.raises(errors.ConcurrentModificationError, match="nothing of it is visible"):
        insert(writes)
    require_hidden_for_good(other, [0, 1, 2, 100])


def test_a_write_that_a_reader_adopts_first_is_part_of_the_table(
    writes: MemoryNamespace,
    other: MemoryNamespace,
    after_opening: Callable[[Act], None],
    after_commit: Callable[[Act], None],
) -> None:
    def begin() -> None:
        manage(other)
        set_policy(other, "adopt")

    after_opening(begin)
    after_commit(lambda: append(other, 7))
    insert(writes)
    assert rows(other) == [0, 0, 1, 2, 7]


def test_a_write_that_cannot_be_adopted_is_withdrawn(
    writes: MemoryNamespace,
    other: MemoryNamespace,
    after_opening: Callable[[Act], None],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(out_of_band, "_find_objection", lambda *_: "it is not based on it")
    after_opening(lambda: manage(other))
    with pytest.raises(errors.ConcurrentModificationError, match="nothing of it is visible"):
        insert(writes)
    monkeypatch.undo()
    found = other.list_out_of_band_versions(TABLE)
    assert (found.versions, found.quarantined_versions) == ((), (2,))
    set_policy(other, "adopt")
    require_hidden_for_good(other, [0, 1, 2])


@pytest.mark.parametrize("policy", ["hide", "adopt"])
def test_a_write_on_top_of_one_past_the_catalog_is_handled_as_that(
    writes: MemoryNamespace,
    after_opening: Callable[[Act], None],
    monkeypatch: pytest.MonkeyPatch,
    policy: str,
) -> None:
    monkeypatch.setattr(conversion, "_WAIT_SECONDS", 0.0)
    other = another(writes)

    def begin() -> None:
        manage(other)
        set_policy(other, policy)
        append_past_the_catalog(other, 8)

    after_opening(begin)
    if policy == "adopt":
        insert(writes)
        assert rows(other) == [0, 0, 1, 2, 8]
        return
    with pytest.raises(errors.ConcurrentModificationError, match="nothing of it is visible"):
        insert(writes)
    require_hidden_for_good(other, [0, 1, 2])


def test_a_write_waits_until_the_writer_of_the_version_before_has_looked_again(
    writes: MemoryNamespace,
    other: MemoryNamespace,
    after_opening: Callable[[Act], None],
    after_commit: Callable[[Act], None],
) -> None:
    """The second commits on top of the first, and looks first."""
    second = another(writes)
    table = second.tables.load_by_id(TABLE)
    committed, outcome = threading.Event(), []

    def append_second() -> None:
        dataset = table.open(write=True)
        dataset.insert(table_of(7))
        committed.set()
        table.note_commit(2, int(dataset.version), dataset)
        outcome.append(int(dataset.version))

    thread = threading.Thread(target=append_second)

    def overtake() -> None:
        thread.start()
        assert committed.wait(30)

    after_opening(lambda: manage(other))
    after_commit(overtake)
    insert(writes)
    thread.join(30)
    assert outcome == [3]
    assert (state(writes).version, rows(other)) == (3, [0, 0, 1, 2, 7])


# -- release ---------------------------------------------------------------------------------------


def test_a_write_to_a_table_that_was_managed_and_released_meanwhile_is_part_of_it(
    writes: MemoryNamespace, other: MemoryNamespace, after_opening: Callable[[Act], None]
) -> None:
    def change() -> None:
        manage(other)
        append(other, 7)
        release(other)

    after_opening(change)
    insert(writes)
    assert rows(other) == [0, 0, 1, 2, 7]


def test_a_write_that_was_hidden_before_the_table_was_released_fails(
    writes: MemoryNamespace,
    other: MemoryNamespace,
    after_opening: Callable[[Act], None],
    after_commit: Callable[[Act], None],
) -> None:
    def change() -> None:
        append(other, 7)
        release(other)

    after_opening(lambda: manage(other))
    after_commit(change)
    with pytest.raises(errors.ConcurrentModificationError, match="nothing of it is visible"):
        insert(writes)
    require_hidden_for_good(other, [0, 1, 2, 7])


@pytest.mark.spec("operations.md#release_table")
def test_a_write_through_the_catalog_to_a_table_that_is_released_meanwhile_can_be_repeated(
    managed: MemoryNamespace, monkeypatch: pytest.MonkeyPatch
) -> None:
    create_version, act = TableView.create_table_version, once(lambda: release(another(managed)))

    def create_late(view: TableView, request: Any) -> Any:
        act()
        return create_version(view, request)

    monkeypatch.setattr(TableView, "create_table_version", create_late)
    with pytest.raises(errors.ConcurrentModificationError):
        insert(managed)
    assert rows(managed) == [0, 1, 2]
    insert(managed)
    assert rows(managed) == [0, 0, 1, 2]


# -- a conversion whose client dies or fails -------------------------------------------------------


def test_a_write_is_not_lost_with_the_client_that_makes_the_table_managed(
    writes: MemoryNamespace, other: MemoryNamespace, monkeypatch: pytest.MonkeyPatch
) -> None:
    def insert_and_die() -> None:
        insert(writes)
        meanwhile(writes, "after", die)

    meanwhile(writes, "before", insert_and_die)
    with pytest.raises(Death):
        manage(other)
    assert state(writes).version == 1
    with pytest.raises(errors.ConcurrentModificationError, match="try again in a moment"):
        insert(other)
    monkeypatch.setattr(states, "BRIEF_SECONDS", 0.0)
    append(other, 7)
    assert (state(writes).version, rows(other)) == (3, [0, 0, 1, 2, 7])


def test_a_table_stays_with_its_storage_if_the_conversion_cannot_be_finished(
    writes: MemoryNamespace, other: MemoryNamespace
) -> None:
    branch = api.CreateTableBranchRequest(id=TABLE, name="b")
    meanwhile(writes, "before", lambda: writes.create_table_branch(branch))
    with pytest.raises(errors.InvalidTableStateError, match="has branches"):
        manage(other)
    insert(writes)
    assert rows(other) == [0, 0, 1, 2]


# -- a drop ----------------------------------------------------------------------------------------

OVERLAPS_A_DROP = pytest.mark.spec("common.md#writes-that-overlap-a-drop", "common.md#droptable")


@pytest.fixture
def after_reading(monkeypatch: pytest.MonkeyPatch) -> Callable[[Act], None]:
    """Have something happen after the writer has opened the dataset."""

    def install(act: Act) -> None:
        opening, act_once = Table.open, once(act)

        def open_first(table: Table, *args: Any, **options: Any) -> lance.LanceDataset:
            found = opening(table, *args, **options)
            act_once()
            return found

        monkeypatch.setattr(Table, "open", open_first)

    return install


def drop(ns: MemoryNamespace) -> None:
    ns.drop_table(api.DropTableRequest(id=TABLE))


def deregister(ns: MemoryNamespace) -> None:
    ns.deregister_table(api.DeregisterTableRequest(id=TABLE))


@OVERLAPS_A_DROP
@pytest.mark.parametrize("change", ["insert_into_table", "insert_into_table-overwrite"])
def test_a_write_to_a_table_that_is_dropped_meanwhile_fails_and_deletes_nothing(
    writes: MemoryNamespace,
    other: MemoryNamespace,
    after_reading: Callable[[Act], None],
    change: str,
) -> None:
    """pylance writes into the directory that was deleted, which then has this version only."""
    place = directory(writes)
    kept = place.parent / "kept"

    def drop_first() -> None:
        drop(other)
        assert not place.exists()
        kept.write_text("another's")

    after_reading(drop_first)
    mode = "overwrite" if change.endswith("overwrite") else "append"
    with pytest.raises(errors.TableNotFoundError, match="may remain at") as caught:
        Calls(writes).call("insert_into_table", TABLE, stream(1), mode=mode)
    assert place.name in str(caught.value)
    assert kept.exists()
    assert sorted(each.name for each in place.iterdir()) == ["_transactions", "_versions", "data"]
    with pytest.raises(errors.TableNotFoundError):
        insert(writes)


@OVERLAPS_A_DROP
def test_the_first_write_to_a_table_that_is_dropped_meanwhile_fails(
    namespace: MemoryNamespace, after_commit: Callable[[Act], None]
) -> None:
    namespace.declare_table(api.DeclareTableRequest(id=TABLE))
    after_commit(lambda: deregister(another(namespace)))
    with pytest.raises(errors.TableNotFoundError, match="dropped, deregistered or renamed"):
        insert(namespace)


@OVERLAPS_A_DROP
def test_a_write_to_a_table_that_is_deregistered_meanwhile_is_a_version_of_its_files(
    writes: MemoryNamespace, other: MemoryNamespace, after_reading: Callable[[Act], None]
) -> None:
    place = directory(writes)
    after_reading(lambda: deregister(other))
    with pytest.raises(errors.TableNotFoundError, match="the write is version 2 of the files"):
        insert(writes)
    assert lance.dataset(str(place)).to_table()["a"].to_pylist() == [0, 1, 2, 0]


@OVERLAPS_A_DROP
@pytest.mark.parametrize("way", ["created again", "registered elsewhere"])
def test_a_write_to_a_table_whose_name_another_one_has_by_now_is_a_conflict(
    writes: MemoryNamespace, other: MemoryNamespace, after_reading: Callable[[Act], None], way: str
) -> None:
    def replace_table() -> None:
        if way == "created again":
            drop(other)
            create(other, TABLE, rows=1)
            return
        record = other.server.tables[KEY]
        other.server.tables[KEY] = replace(record, location=f"{record.location}2")

    after_reading(replace_table)
    with pytest.raises(errors.ConcurrentModificationError, match="Another table has the name"):
        insert(writes)
    if way == "created again":
        assert rows(other) == [0]


@OVERLAPS_A_DROP
def test_a_write_to_a_table_of_another_tool_that_is_created_again_meanwhile_is_a_conflict(
    writes: MemoryNamespace, after_reading: Callable[[Act], None]
) -> None:
    """Its entry has no id of this library: the catalog's identity distinguishes the two."""
    tables = writes.server.tables
    properties = {k: v for k, v in tables[KEY].properties.items() if k != ENTRY_ID}
    tables[KEY] = tables[KEY].with_properties(properties)
    insert(writes)

    def create_again() -> None:
        tables[KEY] = replace(tables[KEY], identity="another")

    after_reading(create_again)
    with pytest.raises(errors.ConcurrentModificationError, match="Another table has the name"):
        insert(writes)


# -- the second look -------------------------------------------------------------------------------


@pytest.mark.spec("common.md#writes-that-overlap-a-drop")
def test_a_write_after_which_the_catalog_does_not_answer_has_an_unknown_outcome(
    writes: MemoryNamespace, after_commit: Callable[[Act], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    error = errors.ServiceUnavailableError("no answer")
    after_commit(lambda: monkeypatch.setattr(MemoryCatalog, "load_table", raiser(error)))
    with pytest.raises(OutcomeUnknownError, match=r"Version 2 of table .* is in its files"):
        insert(writes)
    monkeypatch.undo()
    assert rows(writes) == [0, 0, 1, 2]


def test_a_write_reads_the_entry_once_more(
    writes: MemoryNamespace, monkeypatch: pytest.MonkeyPatch
) -> None:
    load, loaded = MemoryCatalog.load_table, []

    def load_table(catalog: MemoryCatalog, path: Any) -> Any:
        loaded.append(path)
        return load(catalog, path)

    monkeypatch.setattr(MemoryCatalog, "load_table", load_table)
    insert(writes)
    assert loaded == [KEY, KEY]


def test_a_compaction_is_part_of_a_table_that_is_released_again(
    writes: MemoryNamespace, other: MemoryNamespace
) -> None:
    insert(writes)
    table = writes.tables.load_by_id(TABLE)
    manage(other)
    release(other)
    done = compact(table)
    assert versions(other)[-1] == done.version


# -- load ------------------------------------------------------------------------------------------

WRITERS, INSERTS = 4, 6


def connect_sqlite(path: Path, patch: pytest.MonkeyPatch) -> LanceBridgeNamespace:
    """Return a namespace in a SQLite file: the example of the guide to writing a catalog."""
    patch.syspath_prepend(SQLITE_CATALOG)
    from lance_catalog_sqlite import SqliteNamespace  # noqa: PLC0415 - it is found from here on

    namespace = SqliteNamespace(file=str(path / "catalog.db"), root=str(path / "lake"))
    namespace.create_namespace(api.CreateNamespaceRequest(id=["sales"]))
    return namespace


def test_no_write_is_lost_while_the_manager_of_the_table_changes_again_and_again(
    writes: MemoryNamespace,
) -> None:
    require_no_write_lost(writes, TABLE)


def test_no_write_to_a_table_in_sqlite_is_lost_while_its_manager_changes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with connect_sqlite(tmp_path, monkeypatch) as namespace:
        table = ["sales", "orders"]
        namespace.create_table(api.CreateTableRequest(id=table), stream(3))
        require_no_write_lost(namespace, table)


def require_no_write_lost(ns: LanceBridgeNamespace, table: list[str]) -> None:
    """Insert in threads while another one changes the manager; count what succeeded."""
    left, made, unknown = [WRITERS], [0, 1, 2], []
    attempts = threading.Semaphore(0)

    def write(number: int) -> None:
        for turn in range(INSERTS):
            value = 100 * (number + 1) + turn
            try:
                ns.insert_into_table(api.InsertIntoTableRequest(id=table), ipc(table_of(value)))
                made.append(value)
            except errors.ConcurrentModificationError:
                pass  # it is not visible
            except errors.ServiceUnavailableError:
                unknown.append(value)  # or Lance read a manifest that was quarantined meanwhile
            finally:
                attempts.release()

    def change() -> None:
        while left[0]:
            attempts.acquire(timeout=0.1)
            # Another client commits, or a version is of a writer that has not looked again.
            with suppress(errors.ConcurrentModificationError, errors.InvalidTableStateError):
                if ns.tables.load_by_id(table).managed is None:
                    ns.manage_table(table)
                else:
                    ns.release_table(table)

    def act(number: int) -> None:
        if number == WRITERS:
            change()
            return
        try:
            write(number)
        finally:
            with lock:
                left[0] -= 1

    lock = threading.Lock()
    answers_only(race(act, WRITERS + 1))
    found = lance.dataset(namespace_client=ns, table_id=table).to_table()["a"].to_pylist()
    assert len(found) == len(set(found))
    assert set(made) <= set(found) <= {*made, *unknown}
    assert len(made) > 3
