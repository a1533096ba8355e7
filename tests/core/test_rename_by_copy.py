"""RenameTable on a catalog without rename: copied, then dropped, and undone where that fails."""

from __future__ import annotations

from dataclasses import replace

import lance_namespace as api
import pytest
from lance_namespace import errors

from lance_bridge.errors import OutcomeUnknownError

from .building import TABLE, at, at_change, count_rows, create, raising
from .memory_catalog import CAPABILITIES, MemoryNamespace, MemoryServer, Moment

pytestmark = [pytest.mark.quick, pytest.mark.spec("glue.md#rename-by-copy")]

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


@pytest.mark.spec("glue.md#renametable")
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
    at_change(server, "drop_table", "before", raising(error))
    with pytest.raises(type(error), match=str(error)):
        rename(copying)
    assert server.tables == before
    assert server.effects == ["copy_table", "drop_table"]


@pytest.mark.parametrize("moment", ["before", "after"])
@pytest.mark.parametrize("change", ["copy_table", "drop_table"])
def test_a_lost_reply_neither_doubles_nor_loses_the_entry(
    copying: MemoryNamespace, change: str, moment: Moment
) -> None:
    at_change(copying, change, moment, raising(OutcomeUnknownError("lost")))
    rename(copying)
    assert list(copying.server.tables) == [NEW]
    assert copying.server.effects == ["copy_table", "drop_table"]


@pytest.mark.spec("common.md#renametable")
def test_an_entry_that_was_removed_concurrently_is_not_restored(copying: MemoryNamespace) -> None:
    at_change(copying, "drop_table", "before", lambda: copying.server.tables.pop(OLD))
    with pytest.raises(errors.TableNotFoundError):
        rename(copying)
    assert copying.server.tables == {}


@pytest.mark.spec("common.md#renametable")
def test_an_entry_that_was_modified_concurrently_stays_as_it_is(
    copying: MemoryNamespace, server: MemoryServer
) -> None:
    def change() -> None:
        server.tables[OLD] = replace(server.tables[OLD], revision="2")

    at_change(server, "copy_table", "after", change)
    with pytest.raises(errors.ConcurrentModificationError):
        rename(copying)
    assert [(path, record.revision) for path, record in server.tables.items()] == [(OLD, "2")]


def test_another_clients_entry_of_the_new_name_is_never_removed(
    copying: MemoryNamespace, server: MemoryServer
) -> None:
    theirs = replace(server.tables[OLD], path=NEW)

    def replace_copy() -> None:
        server.tables[NEW] = theirs
        del server.tables[OLD]

    at_change(server, "copy_table", "after", replace_copy)
    with pytest.raises(errors.TableNotFoundError):
        rename(copying)
    assert server.tables == {NEW: theirs}


@pytest.mark.spec("glue.md#renametable")
def test_a_copy_that_cannot_be_taken_back_is_reported_with_both_names(
    copying: MemoryNamespace,
) -> None:
    def slow_down() -> None:
        at_change(copying, "drop_table", "before", raising(slowly))
        raise slowly

    slowly = errors.ThrottlingError("slowly")
    at_change(copying, "drop_table", "before", slow_down)
    with pytest.raises(errors.ThrottlingError, match=r"Renamed.*both names.*deregister"):
        rename(copying)
    assert set(copying.server.tables) == {OLD, NEW}
    with pytest.raises(errors.InvalidTableStateError, match="overlaps"):
        copying.drop_table(api.DropTableRequest(id=TABLE))
