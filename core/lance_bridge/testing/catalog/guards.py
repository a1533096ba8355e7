"""Cases: of two changes of one revision, exactly one is made."""

from __future__ import annotations

import time
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor, wait
from dataclasses import replace

import pytest
from lance_namespace import ErrorCode, LanceNamespaceError

from ...catalog import GUARD, TableRecord
from ..calls import answer_of, described, refused
from ..cases import needs
from ..concurrency import DEADLINE, LOCK_SECONDS, ROUNDS, arrives, check_one_winner, race
from ..target import RawEntry
from .workspace import (
    CatalogCases,
    Workspace,
    faults_of,
    require_properties,
    require_same,
    skip_if,
    with_properties,
)

_CHANGED = ErrorCode.CONCURRENT_MODIFICATION
SECOND_CHANGES: dict[str, Callable[[TableRecord], TableRecord]] = {
    "another value": lambda record: with_properties(record, count="2"),
    "the same value": lambda record: with_properties(record, count="1"),
    "no change": lambda record: record,
    "another property": lambda record: with_properties(record, other="2"),
    "another location": lambda record: replace(record, location=f"{record.location}x"),
    "without the guard": lambda record: record.with_properties(
        {key: value for key, value in record.properties.items() if key != GUARD}
    ),
}


class GuardCases(CatalogCases):
    """Entries with a `GUARD`, on which commits of tables depend."""

    def test_finding_the_guard_changes_nothing(self, guardable: Workspace) -> None:
        record = guardable.create("t", {"author": "Ines"})
        guard = guardable.catalog.commit_guard(record)
        assert isinstance(guard, str)
        assert guard
        require_same(guardable.catalog.load_table(record.path), record)
        assert guardable.catalog.commit_guard(record) == guard

    def test_the_guard_of_a_missing_table_is_table_not_found(self, guardable: Workspace) -> None:
        record = guardable.create()
        guardable.catalog.drop_table(record)
        with refused(ErrorCode.TABLE_NOT_FOUND, _CHANGED, naming="t"):
            guardable.catalog.commit_guard(record)

    def test_a_guarded_entry_keeps_what_it_is(self, guardable: Workspace) -> None:
        before = guardable.create("t", {"count": "0"})
        guard = guardable.catalog.commit_guard(before)
        after = guardable.set(before, **{GUARD: guard})
        assert after.identity == before.identity
        assert after.location == before.location
        assert after.is_external
        require_properties(after.properties, {**before.properties, GUARD: guard})
        require_same(guardable.scanned("t"), after)

    # -- one after the other ---------------------------------------------------------------------

    def test_the_second_change_of_one_revision_is_refused(self, guardable: Workspace) -> None:
        catalog, path, complaints = guardable.catalog, guardable.guard().path, {}
        entries = []
        for name, change in SECOND_CHANGES.items():
            first, second = catalog.load_table(path), guardable.connect().load_table(path)
            catalog.alter_table(with_properties(first, count="1"))
            after = catalog.load_table(path)
            complaints[name] = answer_of(catalog.alter_table, change(second), [_CHANGED], "t")
            entries.append((catalog.load_table(path), after))
        guardable.compare(complaints)
        for found, wanted in entries:
            require_same(found, wanted)

    def test_a_change_is_refused_though_the_values_are_back(self, guardable: Workspace) -> None:
        stale = guardable.guard()
        changed = guardable.set(stale, count="1")
        back = guardable.set(changed, count="0")
        assert dict(back.properties) == dict(stale.properties)
        with refused(_CHANGED, naming="t"):
            guardable.catalog.alter_table(with_properties(stale, count="5"))
        require_same(guardable.catalog.load_table(stale.path), back)

    def test_a_change_that_writes_the_same_values_is_a_change(self, guardable: Workspace) -> None:
        stale = guardable.guard()
        guardable.catalog.alter_table(guardable.catalog.load_table(stale.path))
        again = guardable.catalog.load_table(stale.path)
        assert again.revision is None or again.revision != stale.revision
        with refused(_CHANGED, naming="t"):
            guardable.catalog.alter_table(with_properties(stale, count="5"))

    def test_of_two_that_give_an_entry_its_guard_one_succeeds(self, guardable: Workspace) -> None:
        path = guardable.create("t", {"count": "0"}).path
        first, second = guardable.catalog.load_table(path), guardable.catalog.load_table(path)
        guard = guardable.catalog.commit_guard(first)
        after = guardable.set(first, **{GUARD: guard, "count": "1"})
        with refused(_CHANGED, naming="t"):
            guardable.catalog.alter_table(with_properties(second, **{GUARD: guard, "count": "2"}))
        require_same(guardable.catalog.load_table(path), after)

    def test_a_record_of_a_dropped_table_changes_no_later_one(self, guardable: Workspace) -> None:
        stale = guardable.guard()
        guardable.catalog.drop_table(stale)
        time.sleep(guardable.target.identity_resolution)
        later = guardable.guard()
        with refused(_CHANGED, ErrorCode.INVALID_TABLE_STATE, naming="t"):
            guardable.catalog.alter_table(with_properties(stale, count="5"))
        require_same(guardable.catalog.load_table(later.path), later)

    def test_an_unknown_guard_is_refused(self, guardable: Workspace) -> None:
        record = guardable.create()
        strange = with_properties(record, **{GUARD: "a guard that no catalog knows"})
        with refused(ErrorCode.INVALID_TABLE_STATE, ErrorCode.INVALID_INPUT):
            guardable.catalog.alter_table(strange)
        require_same(guardable.catalog.load_table(record.path), record)

    @needs("write_entry")
    @pytest.mark.parametrize("given", ["a known guard", "no guard"])
    def test_an_entry_with_an_unknown_guard_is_not_changed(
        self, guardable: Workspace, given: str
    ) -> None:
        """The guard of the entry also counts: another version of the adapter may have set it."""
        record = guardable.record("t", {GUARD: "a guard of another version"})
        guardable.target.write_entry(record.path, RawEntry(record.location, record.properties))
        before = guardable.catalog.load_table(record.path)
        own = {key: value for key, value in before.properties.items() if key != GUARD}
        if given == "a known guard":
            own[GUARD] = guardable.catalog.commit_guard(guardable.create("other"))
        with refused(ErrorCode.INVALID_TABLE_STATE, ErrorCode.INVALID_INPUT):
            guardable.catalog.alter_table(before.with_properties(own))
        require_same(guardable.catalog.load_table(record.path), before)

    def test_a_revision_is_compared_without_a_guard(self, alterable: Workspace) -> None:
        stale = alterable.create("t", {"count": "0"})
        if stale.revision is None:
            pytest.skip("entries without a guard have no revision in this catalog")
        after = alterable.set(stale, count="1")
        with refused(_CHANGED, naming="t"):
            alterable.catalog.alter_table(with_properties(stale, other="2"))
        require_same(alterable.catalog.load_table(stale.path), after)

    def test_a_change_of_ownership_compares_the_revision(self, guardable: Workspace) -> None:
        stale = guardable.guard()
        ownership = guardable.catalog.load_ownership(stale.path)
        if not ownership:
            pytest.skip("load_ownership returns nothing for this catalog's entries")
        after = guardable.set(stale, count="1")
        with refused(_CHANGED, naming="t"):
            guardable.catalog.alter_ownership(with_properties(stale, count="2"), ownership)
        require_same(guardable.catalog.load_table(stale.path), after)

    # -- rename ----------------------------------------------------------------------------------

    def test_a_stale_record_cannot_be_renamed(self, guardable: Workspace) -> None:
        skip_if(guardable, "no_rename")
        stale = guardable.guard()
        after = guardable.set(stale, count="1")
        with refused(_CHANGED, naming="t"):
            guardable.move(stale, guardable.table("new"))
        assert guardable.names() == ["t"]
        require_same(guardable.catalog.load_table(stale.path), after)

    def test_a_rename_is_a_change_of_the_revision(self, guardable: Workspace) -> None:
        skip_if(guardable, "no_rename", "renames_by_copy")
        stale = guardable.guard()
        changed, new = with_properties(stale, count="5"), guardable.table("new")
        guardable.catalog.rename_table(stale, new)
        renamed = guardable.catalog.load_table(new)
        with refused(_CHANGED, naming="new"):
            guardable.catalog.alter_table(replace(changed, path=new))
        guardable.catalog.rename_table(renamed, stale.path)
        back = guardable.catalog.load_table(stale.path)
        with refused(_CHANGED, naming="t"):
            guardable.catalog.alter_table(changed)
        require_same(guardable.catalog.load_table(stale.path), back)

    def test_a_record_from_before_the_guard_cannot_be_renamed(self, guardable: Workspace) -> None:
        skip_if(guardable, "no_rename", "renames_by_copy")
        stale = guardable.create("t", {"count": "0"})
        after = guardable.set(stale, **{GUARD: guardable.catalog.commit_guard(stale)})
        with refused(_CHANGED, naming="t"):
            guardable.catalog.rename_table(stale, guardable.table("new"))
        require_same(guardable.catalog.load_table(stale.path), after)

    def test_a_renamed_entry_is_still_compared(self, guardable: Workspace) -> None:
        skip_if(guardable, "no_rename", "renames_by_copy")
        stale = guardable.guard()
        guardable.catalog.rename_table(stale, guardable.table("new"))
        with refused(ErrorCode.TABLE_NOT_FOUND, _CHANGED, naming="t"):
            guardable.catalog.alter_table(with_properties(stale, count="5"))
        renamed = guardable.catalog.load_table(guardable.table("new"))
        require_properties(renamed.properties, stale.properties)
        assert renamed.revision is not None, "a guarded entry has no revision after its rename"
        after = guardable.set(renamed, count="1")
        with refused(_CHANGED, naming="new"):
            guardable.catalog.alter_table(with_properties(renamed, count="2"))
        require_same(guardable.catalog.load_table(renamed.path), after)

    def test_an_entry_without_a_guard_is_renamed_though_it_has_changed(
        self, workspace: Workspace
    ) -> None:
        skip_if(workspace, "no_alter", "no_rename", "renames_by_copy")
        stale = workspace.create()
        workspace.set(stale, author="Ines")
        workspace.catalog.rename_table(stale, workspace.table("new"))
        renamed = workspace.catalog.load_table(workspace.table("new"))
        assert renamed.properties["author"] == "Ines", "the rename took the change back"

    def test_of_many_changes_at_once_one_is_made(self, guardable: Workspace) -> None:
        record = guardable.guard()
        for turn in range(ROUNDS):
            seen = record

            def change(number: int, seen: TableRecord = seen, turn: int = turn) -> None:
                guardable.catalog.alter_table(with_properties(seen, count=f"{turn}.{number}"))

            winner = check_one_winner(race(change), _CHANGED)
            record = guardable.catalog.load_table(record.path)
            assert record.properties["count"] == f"{turn}.{winner}"

    def test_counters_at_once_lose_no_count(self, guardable: Workspace) -> None:
        path = guardable.guard().path

        def count(_: int) -> None:
            for _ in range(ROUNDS):
                _add_one(guardable, path)

        failed = [a for a in race(count, 3) if isinstance(a, LanceNamespaceError)]
        assert not failed, described(failed[0])
        assert guardable.catalog.load_table(path).properties["count"] == str(3 * ROUNDS)

    @needs("faults")
    def test_a_change_that_is_overtaken_on_its_way_is_refused(self, guardable: Workspace) -> None:
        """The server must compare: a comparison before the request is too early."""
        record = guardable.guard()
        with (
            faults_of(guardable.target, "hold_next_change") as faults,
            ThreadPoolExecutor(2) as pool,
        ):
            slow_record = faults.catalog.load_table(record.path)
            with faults.hold_next_change() as held:
                slow = pool.submit(
                    faults.catalog.alter_table, with_properties(slow_record, count="slow")
                )
                try:
                    assert arrives(held.arrived, slow), "no change was sent"
                    other = guardable.connect()
                    quick = pool.submit(other.alter_table, with_properties(record, count="quick"))
                    wait([quick], LOCK_SECONDS)
                finally:
                    held.release.set()
                made = {"slow": _succeeded(slow), "quick": _succeeded(quick)}
        winners = [name for name, is_made in made.items() if is_made]
        assert len(winners) == 1, f"changes that were made: {winners}"
        found = guardable.catalog.load_table(record.path)
        assert found.properties["count"] == winners[0]


def _add_one(workspace: Workspace, path: tuple[str, ...]) -> None:
    for _ in range(1000):
        record = workspace.catalog.load_table(path)
        more = str(int(record.properties["count"]) + 1)
        try:
            workspace.catalog.alter_table(with_properties(record, count=more))
        except LanceNamespaceError as error:
            if error.code != _CHANGED:
                raise
        else:
            return
    raise AssertionError("no change was made in 1000 attempts")


def _succeeded(call: Future[None]) -> bool:
    """Return whether a change was made; raise its error unless the other change caused it."""
    error = call.exception(DEADLINE)
    if error is None:
        return True
    if isinstance(error, LanceNamespaceError) and error.code == _CHANGED:
        return False
    raise error
