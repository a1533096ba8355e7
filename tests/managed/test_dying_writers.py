"""Writers that are killed at each step of the protocol: the table reads right, and is written on.

On Glue, and slowly on Hive 2.3: after the entry is set, nothing depends on how it was compared. The
adapter's tests show the commit record of Hive 3.1 whose writer died.
"""

from __future__ import annotations

from dataclasses import replace

import lance
import lance_namespace as api
import pytest
from lance_namespace.errors import ConcurrentModificationError, InvalidTableStateError
from managed import death
from managed.building import FIRST, Table, location_of, require_exactly, rows_of, staged_in
from managed.conftest import GLUE, NewTable
from managed.writer import row
from managed.writers import Writers

from lance_bridge import managed_state as state
from lance_bridge.testing.build import ipc

pytestmark = pytest.mark.servers

CATALOGS = [GLUE, pytest.param("2.3", marks=pytest.mark.slow)]
DEAD, NEXT = 7, 8
"""Writers."""


@pytest.mark.parametrize("catalog", CATALOGS)
@pytest.mark.parametrize("step", death.STEPS)
def test_a_commit_whose_writer_was_killed_is_made_whole_or_not_at_all(
    catalog: str, step: str, new_table: NewTable, writers: Writers
) -> None:
    table = new_table(catalog)
    # Even rows are appended by pylance, odd ones inserted by the namespace.
    number = (death.STEPS.index(step) + (catalog != GLUE)) % 2
    assert writers.run([table.job(DEAD, number, number, step=step, dies_at=number)]) == []
    committed = [] if step == death.STAGED else [(DEAD, number)]
    assert table.state().version == 1 + len(committed)
    with table.connect() as namespace:
        assert list(staged_in(namespace, table).values()) == [step == death.NAMED]
        assert rows_of(namespace, table) == [FIRST, *committed]
    [report] = writers.run([table.job(NEXT, 0, 2)])
    assert (report.beaten, report.unsure) == (0, {})
    require_exactly(table, [*committed, *((NEXT, each) for each in range(3))])
    with table.connect() as namespace:
        # What was never committed stays: that its writer is dead cannot be known.
        assert len(staged_in(namespace, table)) == 1 - len(committed)


@pytest.mark.parametrize("catalog", CATALOGS)
def test_a_table_whose_holder_was_killed_is_written_to_after_a_while(
    catalog: str, new_table: NewTable, writers: Writers, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = new_table(catalog)
    with table.connect() as namespace:
        lance.write_dataset(row(666, 0), location_of(namespace, table), mode="append")
        assert writers.run([table.job(DEAD, 0, 0, step=death.SETTING_ASIDE, dies_at=0)]) == []
        held = table.state()
        assert held.is_held
        assert held.brief
        assert rows_of(namespace, table) == [FIRST]
        require_refused(table)
        assert table.state() == held
        end_holds(monkeypatch)
        namespace.insert_into_table(api.InsertIntoTableRequest(id=table.id), ipc(row(NEXT, 0)))
        assert len(namespace.list_out_of_band_versions(table.id).quarantined) == 1
        namespace.discard_out_of_band_versions(table.id)
    require_exactly(table, [(NEXT, 0)])


@pytest.mark.parametrize("catalog", CATALOGS)
def test_a_rename_whose_process_was_killed_before_it_has_not_happened(
    catalog: str, new_table: NewTable, writers: Writers, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = new_table(catalog)
    job = table.job(DEAD, 0, -1, step=death.RENAMING, rename_to="other")
    assert writers.run([job]) == []
    assert table.state().is_held
    require_refused(table)
    end_holds(monkeypatch)
    with table.connect() as namespace:
        namespace.insert_into_table(api.InsertIntoTableRequest(id=table.id), ipc(row(NEXT, 0)))
    require_exactly(table, [(NEXT, 0)])


@pytest.mark.parametrize("kept", ["t", pytest.param("other", marks=pytest.mark.slow)])
def test_a_rename_by_copy_whose_process_was_killed_half_way_loses_no_commit(
    kept: str, new_table: NewTable, writers: Writers, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = new_table(GLUE)
    assert writers.run([table.job(DEAD, 0, -1, step=death.COPIED, rename_to="other")]) == []
    end_holds(monkeypatch)
    names = {name: replace(table, id=[*table.id[:-1], name]) for name in ("t", "other")}
    with table.connect() as namespace:
        for each in names.values():
            # Under one name, nothing would be seen of a commit under the other.
            with pytest.raises(InvalidTableStateError, match="deregister"):
                namespace.insert_into_table(
                    api.InsertIntoTableRequest(id=each.id), ipc(row(NEXT, 0))
                )
            assert rows_of(namespace, each) == [FIRST]
        left = names.pop(kept)
        [dropped] = names.values()
        namespace.deregister_table(api.DeregisterTableRequest(id=dropped.id))
        namespace.insert_into_table(api.InsertIntoTableRequest(id=left.id), ipc(row(NEXT, 0)))
    require_exactly(left, [(NEXT, 0)])


def require_refused(table: Table) -> None:
    """Check that no writer can commit."""
    with table.connect() as namespace, pytest.raises(ConcurrentModificationError, match="renamed"):
        namespace.insert_into_table(api.InsertIntoTableRequest(id=table.id), ipc(row(NEXT, 9)))


def end_holds(monkeypatch: pytest.MonkeyPatch) -> None:
    """Take holds for over at once, in this process, instead of after minutes."""
    monkeypatch.setattr(state, "HOLD_SECONDS", 0)
    monkeypatch.setattr(state, "BRIEF_SECONDS", 0)
