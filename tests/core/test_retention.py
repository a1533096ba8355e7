"""Dropped tables that are kept for some time, taken back or deleted."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from lance_namespace.errors import (
    ConcurrentModificationError,
    InvalidInputError,
    InvalidTableStateError,
    NamespaceNotEmptyError,
    TableAlreadyExistsError,
    TableNotFoundError,
    UnsupportedOperationError,
)

from lance_bridge.catalog import NamespaceRecord
from lance_bridge.errors import OutcomeUnknownError
from lance_bridge.tables.namespaces import change_properties
from lance_bridge.tables.retention import DroppedTable
from lance_bridge.testing.calls import Calls

from .memory_catalog import (
    CAPABILITIES,
    DATASET,
    TABLE,
    MemoryNamespace,
    count_rows,
    create,
    start_server,
    stream,
)

pytestmark = [pytest.mark.quick, pytest.mark.spec("common.md#dropped-tables")]

PATH, SPACE = tuple(TABLE), tuple(DATASET)


def connect(request: pytest.FixtureRequest, lake: Path, **capabilities: Any) -> MemoryNamespace:
    name = request.node.nodeid
    changed = {"no_alter": "", "no_rename": "", **capabilities}
    start_server(name, replace(CAPABILITIES, **changed))
    return MemoryNamespace(uri=name, root=str(lake), **{"drop.retention": "7d"})


@pytest.fixture(params=[False, True], ids=["rename", "copy"])
def namespace(request: pytest.FixtureRequest, tmp_path: Path) -> MemoryNamespace:
    """A namespace of a catalog that renames entries, or copies them."""
    return connect(request, tmp_path / "lake", renames_by_copy=request.param)


def listed(namespace: MemoryNamespace) -> list[str]:
    return list(Calls(namespace).list_tables(DATASET).tables)


def only_dropped(namespace: MemoryNamespace) -> Any:
    [found] = namespace.tables.dropped(SPACE)
    return found


def test_a_dropped_table_is_not_listed_and_can_be_taken_back(namespace: MemoryNamespace) -> None:
    create(namespace, TABLE, properties={"owner.team": "a"})
    api = Calls(namespace)
    before = api.describe_table(TABLE)
    api.drop_table(TABLE)
    assert listed(namespace) == []
    with pytest.raises(TableNotFoundError):
        api.describe_table(TABLE)
    found = only_dropped(namespace)
    assert found.path == PATH
    assert found.kept_until - found.dropped_at == timedelta(days=7)
    assert not found.is_overdue()
    with pytest.raises(TableNotFoundError, match="dropped, and can be taken back"):
        api.describe_table(list(found.entry.path))
    namespace.tables.undrop(PATH)
    assert listed(namespace) == [TABLE[-1]]
    after = api.describe_table(TABLE)
    assert (after.location, after.properties) == (before.location, before.properties)
    assert count_rows(namespace, TABLE) == 3
    assert namespace.tables.dropped(SPACE) == []


def test_its_name_is_free_and_it_comes_back_under_another(namespace: MemoryNamespace) -> None:
    create(namespace, TABLE)
    api = Calls(namespace)
    api.drop_table(TABLE)
    api.create_table(TABLE, stream(5))
    with pytest.raises(TableAlreadyExistsError):
        namespace.tables.undrop(PATH)
    assert only_dropped(namespace).path == PATH
    namespace.tables.undrop(PATH, (*SPACE, "Back"))
    assert count_rows(namespace, [*DATASET, "Back"]) == 3
    assert count_rows(namespace, TABLE) == 5


def test_of_several_with_one_name_the_last_comes_back_first(namespace: MemoryNamespace) -> None:
    api = Calls(namespace)
    for rows in (1, 2, 3):
        api.create_table(TABLE, stream(rows))
        api.drop_table(TABLE)
    last, _, first = namespace.tables.dropped(SPACE)
    assert {last.path, first.path} == {PATH}
    namespace.tables.undrop(first.entry.path, (*SPACE, "First"))
    namespace.tables.undrop(PATH)
    assert count_rows(namespace, [*DATASET, "First"]) == 1
    assert count_rows(namespace, TABLE) == 3


def test_purge_deletes_entry_and_files(namespace: MemoryNamespace) -> None:
    create(namespace, TABLE)
    place = Path(namespace.tables.load(PATH).location.removeprefix("file://"))
    Calls(namespace).drop_table(TABLE)
    assert place.exists()
    namespace.tables.purge(only_dropped(namespace))
    assert not place.exists()
    assert namespace.server.tables == {}


def test_the_overdue_tables_below_a_namespace_are_found(
    namespace: MemoryNamespace, monkeypatch: pytest.MonkeyPatch
) -> None:
    create(namespace, TABLE)
    Calls(namespace).drop_table(TABLE)
    assert list(namespace.tables.overdue()) == []
    monkeypatch.setattr(DroppedTable, "is_overdue", lambda _: True)
    for parent in ((), SPACE[:1], SPACE):
        assert [each.path for each in namespace.tables.overdue(parent)] == [PATH]


@pytest.mark.parametrize(("seconds", "is_overdue"), [(-1, False), (0, True), (1, True)])
def test_a_table_is_overdue_when_its_time_is_over(
    namespace: MemoryNamespace, seconds: int, is_overdue: bool
) -> None:
    create(namespace, TABLE)
    Calls(namespace).drop_table(TABLE)
    found = only_dropped(namespace)
    assert found.is_overdue(found.kept_until + timedelta(seconds=seconds)) is is_overdue


def test_a_drop_can_delete_at_once(namespace: MemoryNamespace) -> None:
    create(namespace, TABLE)
    namespace.tables.drop(PATH, purge=True)
    assert namespace.server.tables == {}


def test_a_table_without_data_is_not_kept(namespace: MemoryNamespace) -> None:
    Calls(namespace).declare_table(TABLE)
    Calls(namespace).drop_table(TABLE)
    assert namespace.server.tables == {}


@pytest.mark.parametrize(("value", "days"), [("0", 0), ("36h", 1.5), ("90d", 90)])
def test_the_property_of_the_namespace_decides(
    request: pytest.FixtureRequest, tmp_path: Path, value: str, days: float
) -> None:
    namespace = connect(request, tmp_path)
    create(namespace, TABLE)
    change_properties(namespace.connection, SPACE, {"Drop.Retention": value}, ())
    Calls(namespace).drop_table(TABLE)
    kept = [each.kept_until - each.dropped_at for each in namespace.tables.dropped(SPACE)]
    assert kept == ([timedelta(days=days)] if days else [])


@pytest.mark.parametrize("value", ["", "7", "d", "-1d", "7 days", "1w", "7d\n", "9999999d"])
def test_a_malformed_retention_is_refused(
    request: pytest.FixtureRequest, tmp_path: Path, value: str
) -> None:
    namespace = connect(request, tmp_path)
    with pytest.raises(InvalidInputError, match=r"drop\.retention"):
        change_properties(namespace.connection, SPACE, {"drop.retention": value}, ())
    with pytest.raises(InvalidInputError, match=r"drop\.retention"):
        MemoryNamespace(uri=request.node.nodeid, **{"drop.retention": value})
    create(namespace, TABLE)
    namespaces = namespace.server.namespaces
    namespaces[SPACE] = replace(namespaces[SPACE], properties={"drop.retention": value})
    with pytest.raises(InvalidTableStateError, match=r"drop\.retention"):
        Calls(namespace).drop_table(TABLE)
    assert count_rows(namespace, TABLE) == 3


@pytest.mark.parametrize("lack", ["no_alter", "no_rename"])
def test_a_catalog_that_cannot_keep_it_drops_nothing(
    request: pytest.FixtureRequest, tmp_path: Path, lack: str
) -> None:
    namespace = connect(request, tmp_path, **{lack: "the server cannot"})
    create(namespace, TABLE)
    with pytest.raises(UnsupportedOperationError, match="the server cannot"):
        Calls(namespace).drop_table(TABLE)
    assert count_rows(namespace, TABLE) == 3
    namespace.tables.drop(PATH, purge=True)
    assert listed(namespace) == []


def test_cascade_deletes_nothing_that_a_drop_would_keep(namespace: MemoryNamespace) -> None:
    create(namespace, TABLE)
    api = Calls(namespace)
    with pytest.raises(InvalidTableStateError, match=r"drop\.retention"):
        api.drop_namespace(DATASET[:1], behavior="Cascade")
    api.drop_table(TABLE)
    for behavior in ("Cascade", "Restrict"):
        with pytest.raises(NamespaceNotEmptyError, match="dropped"):
            api.drop_namespace(DATASET, behavior=behavior)
    namespace.tables.purge(only_dropped(namespace))
    api.drop_namespace(DATASET)


def test_its_files_are_not_deleted_with_another_table(namespace: MemoryNamespace) -> None:
    """Another entry for its location is one that a purge would lose."""
    create(namespace, TABLE)
    api = Calls(namespace)
    place = namespace.tables.load(PATH).location
    second = [*DATASET, "Second"]
    api.register_table(second, place)
    api.drop_table(TABLE)
    with pytest.raises(InvalidTableStateError, match="overlaps"):
        namespace.tables.drop(tuple(second), purge=True)
    assert count_rows(namespace, second) == 3


def test_a_clone_that_was_dropped_keeps_the_files_it_reads(
    namespace: MemoryNamespace, tmp_path: Path
) -> None:
    create(namespace, TABLE)
    source = namespace.tables.load(PATH)
    clone = [*DATASET, "Clone"]
    source.open().shallow_clone(str(tmp_path / "clone.lance"), source.open().version)
    api = Calls(namespace)
    api.register_table(clone, str(tmp_path / "clone.lance"))
    api.drop_table(clone)
    with pytest.raises(InvalidTableStateError, match="clone"):
        namespace.tables.drop(PATH, purge=True)


@pytest.mark.parametrize("call", ["alter_table", "rename_table"])
def test_a_drop_that_fails_leaves_the_table(
    request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, call: str
) -> None:
    namespace = connect(request, tmp_path)
    create(namespace, TABLE)
    catalog = namespace.connection.catalog
    original = getattr(catalog, call)

    def refuse(*_: object) -> None:
        monkeypatch.setattr(catalog, call, original)
        raise ConcurrentModificationError("changed")

    monkeypatch.setattr(catalog, call, refuse)
    with pytest.raises(ConcurrentModificationError):
        Calls(namespace).drop_table(TABLE)
    assert count_rows(namespace, TABLE) == 3
    assert namespace.tables.dropped(SPACE) == []


def test_a_process_that_ends_between_the_two_steps_leaves_a_dropped_table(
    request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    namespace = connect(request, tmp_path)
    create(namespace, TABLE)
    catalog = namespace.connection.catalog

    def end(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(catalog, "rename_table", end)
    with pytest.raises(KeyboardInterrupt):
        Calls(namespace).drop_table(TABLE)
    monkeypatch.undo()
    assert listed(namespace) == []
    with pytest.raises(TableNotFoundError, match="dropped, and can be taken back"):
        Calls(namespace).drop_table(TABLE)
    with pytest.raises(TableAlreadyExistsError, match="take it back under another name"):
        create(namespace, TABLE)
    assert only_dropped(namespace).entry.path == PATH
    namespace.tables.undrop(PATH)
    assert count_rows(namespace, TABLE) == 3


@pytest.mark.parametrize("properties", [{}, {"managed_by": "impl"}], ids=["storage", "catalog"])
def test_a_writer_that_opened_it_before_cannot_commit_to_the_name(
    namespace: MemoryNamespace, properties: Mapping[str, str]
) -> None:
    create(namespace, TABLE, properties=properties)
    before = namespace.tables.load(PATH)
    Calls(namespace).drop_table(TABLE)
    with pytest.raises(TableNotFoundError):
        before.reloaded()
    namespace.tables.undrop(PATH)
    assert count_rows(namespace, TABLE) == 3


def test_a_lost_reply_is_read_back(
    request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    namespace = connect(request, tmp_path)
    create(namespace, TABLE)
    catalog = namespace.connection.catalog
    for call in ("alter_table", "rename_table"):
        original = getattr(catalog, call)

        def lose(*args: Any, original: Any = original) -> None:
            original(*args)
            raise OutcomeUnknownError("no reply")

        monkeypatch.setattr(catalog, call, lose)
    Calls(namespace).drop_table(TABLE)
    assert only_dropped(namespace).path == PATH
    namespace.tables.undrop(PATH)
    assert count_rows(namespace, TABLE) == 3


def test_a_mark_that_cannot_be_read_is_named(
    request: pytest.FixtureRequest, tmp_path: Path
) -> None:
    namespace = connect(request, tmp_path)
    create(namespace, TABLE)
    Calls(namespace).drop_table(TABLE)
    path = only_dropped(namespace).entry.path
    record = namespace.server.tables[path]
    changed = {**record.properties, "lance_bridge.dropped": "{"}
    namespace.server.tables[path] = replace(record, properties=changed)
    with pytest.raises(InvalidTableStateError, match="cannot be read"):
        namespace.tables.dropped(SPACE)


def test_a_protected_namespace_keeps_dropped_tables(namespace: MemoryNamespace) -> None:
    create(namespace, TABLE)
    Calls(namespace).drop_table(TABLE)
    namespace.server.namespaces[SPACE] = NamespaceRecord(SPACE, {"protected": "true"})
    with pytest.raises(InvalidTableStateError, match="protected"):
        namespace.tables.purge(only_dropped(namespace))
    assert only_dropped(namespace).path == PATH
