"""RenameTable on a catalog without rename: copied, then dropped, and undone where that fails."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import lance_namespace as api
import pytest
from lance_namespace import errors

from lance_bridge.errors import OutcomeUnknownError

from .building import DATASET, TABLE, at, count_rows, create
from .memory_catalog import CAPABILITIES, MemoryNamespace, MemoryServer, Moment

COPYING = replace(CAPABILITIES, no_rename="", no_alter="", renames_by_copy=True)
OLD, NEW = tuple(TABLE), at("Renamed")


@pytest.fixture
def copying(namespace: MemoryNamespace, server: MemoryServer) -> MemoryNamespace:
    """A namespace with one table, in a catalog that renames by copying."""
    server.capabilities = COPYING
    create(namespace, TABLE)
    server.effects.clear()
    return namespace


def rename(ns: MemoryNamespace) -> None:
    ns.rename_table(api.RenameTableRequest(id=TABLE, new_table_name="Renamed"))


def test_the_entry_moves_with_its_properties_and_location(
    copying: MemoryNamespace, server: MemoryServer
) -> None:
    before = server.tables[OLD]
    rename(copying)
    after = server.tables[NEW]
    assert server.effects == ["copy_table", "drop_table"]
    assert list(server.tables) == [NEW]
    assert after.location == before.location
    own = {k: v for k, v in before.properties.items() if k != "lance_bridge.id"}
    assert own.items() <= after.properties.items()
    assert count_rows(copying, list(NEW)) == 3


def at_drop(
    error: errors.LanceNamespaceError, moment: Moment = "before", times: int = 1
) -> Callable[[str, Moment], None]:
    """Fail the first removals of an entry."""
    left = [times]

    def fault(change: str, when: Moment) -> None:
        if (change, when) == ("drop_table", moment) and left[0]:
            left[0] -= 1
            raise error

    return fault


@pytest.mark.parametrize(
    "error",
    [
        errors.PermissionDeniedError("may not"),
        errors.ThrottlingError("slowly"),
        errors.InternalError("broken"),
    ],
)
def test_a_refused_removal_undoes_the_copy(
    copying: MemoryNamespace, server: MemoryServer, error: errors.LanceNamespaceError
) -> None:
    before = dict(server.tables)
    server.fault = at_drop(error)
    with pytest.raises(type(error), match=str(error)):
        rename(copying)
    assert server.tables == before
    assert server.effects == ["copy_table", "drop_table"]


@pytest.mark.parametrize("moment", ["before", "after"])
@pytest.mark.parametrize("change", ["copy_table", "drop_table"])
def test_a_lost_reply_neither_doubles_nor_loses_the_entry(
    copying: MemoryNamespace, server: MemoryServer, change: str, moment: Moment
) -> None:
    left = [1]

    def lose(name: str, when: Moment) -> None:
        if (name, when) == (change, moment) and left[0]:
            left[0] -= 1
            raise OutcomeUnknownError("lost")

    server.fault = lose
    rename(copying)
    assert list(server.tables) == [NEW]
    assert server.effects == ["copy_table", "drop_table"]


def test_an_entry_that_was_removed_concurrently_is_not_restored(
    copying: MemoryNamespace, server: MemoryServer
) -> None:
    def vanish(change: str, moment: Moment) -> None:
        if (change, moment) == ("drop_table", "before"):
            server.tables.pop(OLD, None)

    server.fault = vanish
    with pytest.raises(errors.TableNotFoundError):
        rename(copying)
    assert server.tables == {}


def test_an_entry_that_was_modified_concurrently_stays_as_it_is(
    copying: MemoryNamespace, server: MemoryServer
) -> None:
    def change(name: str, moment: Moment) -> None:
        if (name, moment) == ("copy_table", "after"):
            server.tables[OLD] = replace(server.tables[OLD], revision="2")

    server.fault = change
    with pytest.raises(errors.ConcurrentModificationError):
        rename(copying)
    assert [(path, record.revision) for path, record in server.tables.items()] == [(OLD, "2")]


def test_another_clients_entry_of_the_new_name_is_never_removed(
    copying: MemoryNamespace, server: MemoryServer
) -> None:
    theirs = replace(server.tables[OLD], path=NEW)

    def replaced(change: str, moment: Moment) -> None:
        if (change, moment) == ("copy_table", "after"):
            server.tables[NEW] = theirs
            del server.tables[OLD]

    server.fault = replaced
    with pytest.raises(errors.TableNotFoundError):
        rename(copying)
    assert server.tables == {NEW: theirs}


def test_a_copy_that_cannot_be_taken_back_is_reported_with_both_names(
    copying: MemoryNamespace, server: MemoryServer
) -> None:
    server.fault = at_drop(errors.ThrottlingError("slowly"), times=2)
    with pytest.raises(errors.ThrottlingError, match=r"Renamed.*both names.*deregister"):
        rename(copying)
    assert set(server.tables) == {OLD, NEW}
    with pytest.raises(errors.InvalidTableStateError, match="overlaps"):
        copying.drop_table(api.DropTableRequest(id=TABLE))


def test_a_taken_name_is_refused_and_nothing_changes(
    copying: MemoryNamespace, server: MemoryServer
) -> None:
    create(copying, [*DATASET, "Renamed"])
    before = dict(server.tables)
    with pytest.raises(errors.TableAlreadyExistsError):
        rename(copying)
    assert server.tables == before
