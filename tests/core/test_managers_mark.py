"""The file in a managed table's storage that says which entry of which catalog manages it."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import lance
import lance_namespace as api
import pyarrow as pa
import pytest
from lance_namespace import errors

from lance_bridge.catalog import NamespaceRecord
from lance_bridge.errors import ManagedElsewhereError
from lance_bridge.records import FORCE, MANAGER, MARK, visible_properties
from lance_bridge.storage.lance_format import MARK_FILE

from .managed_tables import (
    MANAGED,
    NEW,
    another,
    append,
    append_past_the_catalog,
    create_managed,
    directory,
    insert,
    rows,
    state,
    versions,
)
from .memory_catalog import (
    CAPABILITIES,
    SERVERS,
    TABLE,
    MemoryNamespace,
    count_rows,
    create,
    raiser,
    server_of,
    start_server,
)

pytestmark = [
    pytest.mark.quick,
    pytest.mark.usefixtures("able"),
    pytest.mark.spec("managed.md#the-mark-of-the-manager"),
]

SECOND = [*TABLE[:-1], "second"]


@pytest.fixture
def elsewhere(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[MemoryNamespace]:
    """A second catalog."""
    name = f"second:{request.node.nodeid}"
    start_server(name, replace(CAPABILITIES, no_alter="", no_rename=""))
    yield MemoryNamespace(uri=name, root=str(tmp_path / "second"))
    del SERVERS[name]


@pytest.fixture(params=["the same catalog", "another catalog"])
def other(
    namespace: MemoryNamespace, elsewhere: MemoryNamespace, request: pytest.FixtureRequest
) -> MemoryNamespace:
    """The catalog of a second entry."""
    return namespace if request.param == "the same catalog" else elsewhere


def register(ns: MemoryNamespace, location: Path, **properties: str) -> None:
    request = api.RegisterTableRequest(id=SECOND, location=str(location), properties=properties)
    ns.register_table(request)


def read_mark(ns: MemoryNamespace) -> dict[str, Any]:
    return dict(json.loads((directory(ns) / MARK_FILE).read_text()))


def append_to(ns: MemoryNamespace, table: list[str], *values: int) -> None:
    lance.write_dataset(
        pa.table({"a": list(values)}), namespace_client=ns, table_id=table, mode="append"
    )


def with_second(
    ns: MemoryNamespace, other: MemoryNamespace, *, managed: bool = True
) -> MemoryNamespace:
    """Create a table of rows 0, 1 and 2, and a second, storage-managed entry for it."""
    create(ns, TABLE)
    register(other, directory(ns))
    if managed:
        ns.tables.load_by_id(TABLE).manage()  # as before this library looked for other entries
    return other


# -- the file -------------------------------------------------------------------------------------


def test_a_managed_table_says_who_manages_it(namespace: MemoryNamespace) -> None:
    create_managed(namespace)
    mark = read_mark(namespace)
    assert mark["table"] == TABLE
    assert mark["catalog"] == namespace.connection.catalog.describe_connection()
    assert Path(mark["location"]) == directory(namespace)
    assert mark["since"].startswith("20")
    properties = server_of(namespace).tables[tuple(TABLE)].properties
    assert properties[MARK] == mark["id"]
    assert MARK not in visible_properties(properties)


def test_a_declared_table_has_the_mark_and_takes_its_first_write(
    namespace: MemoryNamespace,
) -> None:
    namespace.declare_table(api.DeclareTableRequest(id=TABLE, properties=MANAGED))
    assert read_mark(namespace)["table"] == TABLE
    described = namespace.describe_table(api.DescribeTableRequest(id=TABLE, check_declared=True))
    assert described.is_only_declared
    lance.write_dataset(
        pa.table({"a": [7]}), namespace_client=namespace, table_id=TABLE, mode="create"
    )
    assert rows(namespace) == [7]


@pytest.mark.parametrize("end", ["release", "deregister", "drop"])
def test_the_mark_ends_with_the_management(namespace: MemoryNamespace, end: str) -> None:
    create_managed(namespace)
    location = directory(namespace)
    if end == "release":
        namespace.release_table(TABLE)
        assert MARK not in server_of(namespace).tables[tuple(TABLE)].properties
    elif end == "deregister":
        namespace.deregister_table(api.DeregisterTableRequest(id=TABLE))
    else:
        namespace.drop_table(api.DropTableRequest(id=TABLE))
        assert not location.exists()
    assert not (location / MARK_FILE).exists()


def test_a_lost_mark_is_written_again_by_the_next_commit(namespace: MemoryNamespace) -> None:
    create_managed(namespace)
    mark = read_mark(namespace)
    (directory(namespace) / MARK_FILE).unlink()
    append(namespace, 8)
    assert read_mark(namespace)["id"] == mark["id"]


def test_a_table_of_an_earlier_release_has_none_and_is_written(namespace: MemoryNamespace) -> None:
    create_managed(namespace)
    tables, key = server_of(namespace).tables, tuple(TABLE)
    kept = {name: value for name, value in tables[key].properties.items() if name != MARK}
    tables[key] = tables[key].with_properties(kept)
    (directory(namespace) / MARK_FILE).unlink()
    append(namespace, 8)
    insert(namespace)
    assert not (directory(namespace) / MARK_FILE).exists()
    assert versions(namespace) == [1, 2, 3]


def test_a_table_that_is_not_managed_in_the_end_has_no_mark(
    namespace: MemoryNamespace, monkeypatch: pytest.MonkeyPatch
) -> None:
    create(namespace, TABLE)
    catalog = type(namespace.connection.catalog)
    monkeypatch.setattr(catalog, "alter_table", raiser(errors.PermissionDeniedError("no")))
    with pytest.raises(errors.PermissionDeniedError):
        namespace.manage_table(TABLE)
    assert not (directory(namespace) / MARK_FILE).exists()


def test_a_rename_is_followed(namespace: MemoryNamespace) -> None:
    create_managed(namespace)
    location, mark = directory(namespace), read_mark(namespace)
    namespace.rename_table(api.RenameTableRequest(id=TABLE, new_table_name="renamed"))
    found = json.loads((location / MARK_FILE).read_text())
    assert (found["id"], found["table"][-1]) == (mark["id"], "renamed")
    append_to(namespace, [*TABLE[:-1], "renamed"], 8)


# -- a second entry -------------------------------------------------------------------------------


@pytest.mark.spec("common.md#registertable")
@pytest.mark.parametrize("properties", [{}, MANAGED])
def test_a_second_entry_is_refused(
    namespace: MemoryNamespace, other: MemoryNamespace, properties: dict[str, str]
) -> None:
    create_managed(namespace)
    before = read_mark(namespace)
    with pytest.raises(ManagedElsewhereError, match=r"by 'eu\.shop\.sales\.Orders' of uri="):
        register(other, directory(namespace), **properties)
    assert tuple(SECOND) not in server_of(other).tables
    assert read_mark(namespace) == before


@pytest.mark.spec("common.md#declaretable")
def test_no_table_is_declared_at_the_location(
    namespace: MemoryNamespace, other: MemoryNamespace
) -> None:
    create_managed(namespace)
    request = api.DeclareTableRequest(id=SECOND, location=str(directory(namespace)))
    with pytest.raises(ManagedElsewhereError, match="is not added"):
        other.declare_table(request)


def test_an_entry_that_another_tool_renamed_is_found(namespace: MemoryNamespace) -> None:
    create_managed(namespace)
    location, tables = directory(namespace), server_of(namespace).tables
    tables[tuple(NEW)] = replace(tables.pop(tuple(TABLE)), path=tuple(NEW))
    with pytest.raises(ManagedElsewhereError, match=r"managed by 'eu\.shop\.sales\.new'"):
        register(namespace, location)


def test_a_mark_whose_entry_is_gone_is_no_obstacle(namespace: MemoryNamespace) -> None:
    create_managed(namespace)
    location = directory(namespace)
    del server_of(namespace).tables[tuple(TABLE)]  # by another tool
    register(namespace, location)
    insert(namespace, SECOND)
    assert not (location / MARK_FILE).exists()
    namespace.manage_table(SECOND)
    assert count_rows(namespace, SECOND) == 4


def test_a_copy_of_the_table_can_be_registered(
    namespace: MemoryNamespace, other: MemoryNamespace, tmp_path: Path
) -> None:
    create_managed(namespace)
    shutil.copytree(directory(namespace), tmp_path / "copy.lance")
    register(other, tmp_path / "copy.lance")
    append_to(other, SECOND, 8)
    other.manage_table(SECOND)
    append_to(other, SECOND, 9)
    assert count_rows(other, SECOND) == 5
    assert rows(namespace) == [0, 1, 2]
    append(namespace, 7)


def test_a_mark_that_cannot_be_read_counts(
    namespace: MemoryNamespace, other: MemoryNamespace
) -> None:
    create_managed(namespace)
    (directory(namespace) / MARK_FILE).write_text("{}")
    with pytest.raises(ManagedElsewhereError, match=r"manager\.json.* cannot be read"):
        register(other, directory(namespace))
    with pytest.raises(ManagedElsewhereError, match="cannot be read"):
        insert(namespace)
    namespace.manage_table(TABLE, force=True)
    insert(namespace)


def drop(ns: MemoryNamespace, table: list[str]) -> None:
    ns.drop_table(api.DropTableRequest(id=table))


@pytest.mark.parametrize("change", [insert, drop])
def test_an_older_second_entry_writes_and_drops_nothing(
    namespace: MemoryNamespace,
    other: MemoryNamespace,
    change: Callable[[MemoryNamespace, list[str]], None],
) -> None:
    with_second(namespace, other)
    with pytest.raises(errors.InvalidTableStateError, match=r"Orders|overlaps"):
        change(other, SECOND)
    assert rows(namespace) == [0, 1, 2]
    assert count_rows(other, SECOND) == 3


def test_an_older_second_entry_cannot_become_the_manager(
    namespace: MemoryNamespace, other: MemoryNamespace
) -> None:
    with_second(namespace, other)
    with pytest.raises(ManagedElsewhereError, match="managed begin --force"):
        other.tables.load_by_id(SECOND).manage()
    append(namespace, 8)


@pytest.mark.spec("operations.md#manage_table")
def test_a_table_with_two_entries_does_not_become_managed(namespace: MemoryNamespace) -> None:
    with_second(namespace, namespace, managed=False)
    with pytest.raises(
        errors.InvalidTableStateError, match=r"'eu\.shop\.sales\.second' has the same"
    ):
        namespace.manage_table(TABLE)
    assert not (directory(namespace) / MARK_FILE).exists()
    namespace.manage_table(TABLE, force=True)
    append(namespace, 8)
    assert rows(namespace, SECOND) == [0, 1, 2, 8]
    with pytest.raises(OSError, match="Commit result"):
        append_to(namespace, SECOND, 9)
    with pytest.raises(ManagedElsewhereError, match="can only be read"):
        insert(namespace, SECOND)
    assert rows(namespace) == [0, 1, 2, 8]


def test_entries_that_cannot_be_read_keep_no_table_from_being_managed(
    namespace: MemoryNamespace,
) -> None:
    create(namespace, TABLE)
    server = server_of(namespace)
    server.namespaces[("eu", "shop", "closed")] = NamespaceRecord(("eu", "shop", "closed"))
    server.closed.add(("eu", "shop", "closed"))
    namespace.manage_table(TABLE)
    append(namespace, 8)


# -- force ----------------------------------------------------------------------------------------


def test_a_forced_entry_only_reads(namespace: MemoryNamespace, other: MemoryNamespace) -> None:
    create_managed(namespace)
    register(other, directory(namespace), **{FORCE: "true"})
    record = server_of(other).tables[tuple(SECOND)]
    assert FORCE not in record.properties
    assert "Orders" in record.properties[MANAGER]
    assert rows(other, SECOND) == [0, 1, 2]
    append(namespace, 8)
    assert rows(other, SECOND) == [0, 1, 2, 8]
    with pytest.raises(ManagedElsewhereError, match=r"can only be read.*Orders"):
        insert(other, SECOND)
    with pytest.raises(OSError, match="Commit result"):  # Lance only logs the namespace's error
        append_to(other, SECOND, 9)
    assert rows(namespace) == [0, 1, 2, 8]
    other.deregister_table(api.DeregisterTableRequest(id=SECOND))
    assert read_mark(namespace)["table"] == TABLE


@pytest.mark.parametrize("how", ["register", "manage", "manage the one that reads"])
def test_a_forced_manager_takes_the_versions(
    namespace: MemoryNamespace, other: MemoryNamespace, how: str
) -> None:
    create_managed(namespace)
    append(namespace, 8)
    if how == "register":
        register(other, directory(namespace), **{FORCE: "true", **MANAGED})
    else:
        force = {} if how == "manage" else {FORCE: "true"}
        if how == "manage":
            namespace.release_table(TABLE)
        register(other, directory(namespace), **force)
        if how == "manage":
            namespace.tables.load_by_id(TABLE).manage()
        other.manage_table(SECOND, force=True)
    append_to(other, SECOND, 9)
    assert rows(other, SECOND) == [0, 1, 2, 8, 9]
    with pytest.raises(ManagedElsewhereError, match="second"):
        insert(namespace)
    with pytest.raises((OSError, ValueError, errors.LanceNamespaceError)):
        append(namespace, 10)
    assert rows(other, SECOND) == [0, 1, 2, 8, 9]
    if other is namespace:
        assert rows(namespace) == [0, 1, 2, 8, 9]


def test_the_former_manager_can_take_them_back(
    namespace: MemoryNamespace, other: MemoryNamespace
) -> None:
    create_managed(namespace)
    register(other, directory(namespace), **{FORCE: "true", **MANAGED})
    append_to(other, SECOND, 9)
    namespace.manage_table(TABLE, force=True)
    append(namespace, 10)
    assert rows(namespace) == [0, 1, 2, 9, 10]
    with pytest.raises(ManagedElsewhereError):
        insert(other, SECOND)


@pytest.mark.parametrize("end", ["release", "deregister", "by another tool"])
def test_a_former_manager_does_not_count_again_by_itself(
    namespace: MemoryNamespace, elsewhere: MemoryNamespace, end: str
) -> None:
    create_managed(namespace)
    register(elsewhere, directory(namespace), **{FORCE: "true", **MANAGED})
    append_to(elsewhere, SECOND, 9)
    if end == "release":
        elsewhere.release_table(SECOND)
        insert(elsewhere, SECOND)
    elif end == "deregister":
        elsewhere.deregister_table(api.DeregisterTableRequest(id=SECOND))
    else:
        del server_of(elsewhere).tables[tuple(SECOND)]
        register(elsewhere, directory(namespace))
        insert(elsewhere, SECOND)
    with pytest.raises(ManagedElsewhereError, match=r"were managed by .*begin --force"):
        insert(namespace)
    with pytest.raises((OSError, ValueError), match="managed begin --force"):
        append(namespace, 10)
    with pytest.raises((OSError, ValueError), match="managed begin --force"):
        rows(namespace)
    namespace.manage_table(TABLE, force=True)
    append(namespace, 10)
    assert {0, 1, 2, 9, 10} <= set(rows(namespace))
    assert count_rows(namespace, TABLE) == (5 if end == "deregister" else 6)


def test_who_managed_before_keeps_no_other_entry_from_managing(
    namespace: MemoryNamespace, elsewhere: MemoryNamespace
) -> None:
    create_managed(namespace)
    register(elsewhere, directory(namespace), **{FORCE: "true", **MANAGED})
    elsewhere.release_table(SECOND)
    elsewhere.manage_table(SECOND)
    append_to(elsewhere, SECOND, 9)
    elsewhere.deregister_table(api.DeregisterTableRequest(id=SECOND))
    register(elsewhere, directory(namespace), **MANAGED)
    append_to(elsewhere, SECOND, 10)
    with pytest.raises(ManagedElsewhereError, match="are managed by"):
        insert(namespace)


def test_a_staged_version_of_the_former_manager_is_kept(
    unfinished: MemoryNamespace,
) -> None:
    location = directory(unfinished)
    assert state(unfinished).staged
    expected = count_rows(another(unfinished), TABLE)
    register(unfinished, location, **{FORCE: "true", **MANAGED})
    assert count_rows(unfinished, SECOND) == expected
    assert len(versions(unfinished)) == 2


@pytest.mark.parametrize("value", ["yes", "1", ""])
def test_the_property_is_true_or_false(namespace: MemoryNamespace, value: str) -> None:
    create(namespace, TABLE)
    with pytest.raises(errors.InvalidInputError, match=r"managed\.force.*true or false"):
        register(namespace, directory(namespace), **{FORCE: value})


def test_what_bypassed_the_catalog_is_not_moved_by_a_former_manager(
    namespace: MemoryNamespace, elsewhere: MemoryNamespace
) -> None:
    create_managed(namespace)
    register(elsewhere, directory(namespace), **{FORCE: "true", **MANAGED})
    append_to(elsewhere, SECOND, 9)
    append_past_the_catalog(namespace, 666)
    before = sorted(directory(namespace).glob("_versions/*"))
    with pytest.raises(ManagedElsewhereError):
        namespace.adopt_out_of_band_versions(TABLE)
    with pytest.raises(ManagedElsewhereError):
        namespace.discard_out_of_band_versions(TABLE)
    with pytest.raises(ManagedElsewhereError):
        insert(namespace)
    count_rows(namespace, TABLE)
    assert sorted(directory(namespace).glob("_versions/*")) == before
