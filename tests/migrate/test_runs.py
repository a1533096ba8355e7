"""Running: one runner at a time, failures and Ctrl-C, and runs that are killed at every moment."""

from __future__ import annotations

import signal
import threading
from collections.abc import Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import lance_namespace as api
import pytest
from lance_namespace import errors
from migrate.building import (
    Run,
    between,
    counts_of,
    in_place,
    make_theirs,
    planned,
    register_rows,
    registering,
    select,
    write,
)
from migrate.places import Entries, Place, files
from migrate.runner import Job
from migrate.running import Runner, job_of, secrets_of

from lance_bridge_migrate import Item, Level, RunOptions, State, execute, verify
from lance_bridge_migrate.endpoints import address_of, catalog_at
from lance_bridge_migrate.migration import NullProgress

pytestmark = pytest.mark.servers


@pytest.mark.spec("migration.md#journal")
def test_two_runners_at_once_are_refused_and_a_killed_one_gives_way(
    hive: Place, runner: Runner, tmp_path: Path
) -> None:
    write(hive.lake, "a", "b")
    with registering(hive) as run:
        reached = str(tmp_path / "reached")
        with runner.paused(job_of(run.migration, waits_at=6, reached=reached)):
            assert run.migration.is_running
            before = hive.entries()
            refused = pytest.raises(errors.ConcurrentModificationError, match="another process")
            with refused:
                run.execute()
            with refused:
                run.undo()
            with refused:
                verify(run.type, run.endpoints, run.migration)
            assert run.migration.record().state is State.STARTED
            assert hive.entries() == before
        assert counts_of(run.execute()) == {"done": 3}


class Interrupting(NullProgress):
    """Presses Ctrl-C when a step of an item begins."""

    def __init__(self, key: str) -> None:
        self.key = key

    def step(self, item: Item, name: str) -> None:  # noqa: ARG002 - of any name
        if item.key == self.key:
            # Not to the process, but to the thread that Python handles signals in.
            signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGINT)


@pytest.mark.spec("migration.md#running")
def test_ctrl_c_ends_after_the_current_steps_and_notes_the_state(hive: Place) -> None:
    write(hive.lake, *"abcdef")
    with registering(hive) as run:
        with pytest.raises(KeyboardInterrupt):
            execute(
                run.type, run.endpoints, run.migration, RunOptions(at_once=1), Interrupting("b")
            )
        record = run.migration.record()
        assert record.runs[-1].ended is not None
        states = [record.items[key].state for key in "ab"]
        assert states == [State.DONE, State.DONE]
        left = [each for each in record.items.values() if each.state is State.PLANNED]
        assert left, "no more were started"
        assert all(each.state is not State.STARTED for each in record.items.values())
        assert counts_of(run.execute()) == {"done": 7}


@pytest.mark.spec("migration.md#running")
def test_what_is_done_is_not_done_again(hive: Place) -> None:
    write(hive.lake, "a")
    with registering(hive) as run:
        run.execute()
        before = hive.entries()
        again = run.execute()
        assert again.state is State.DONE
        assert hive.entries() == before
        journal = (run.migration.directory / "journal.jsonl").read_text().splitlines()
        assert len([line for line in journal if '"started"' in line]) == 2


@pytest.mark.spec("migration.md#undoing")
def test_a_migration_that_was_undone_is_not_run_again(hive: Place) -> None:
    write(hive.lake, "a")
    with registering(hive) as run:
        run.execute()
        run.undo()
        assert run.undo().state is State.UNDONE
        with pytest.raises(errors.InvalidInputError, match="was undone"):
            run.execute()
        with pytest.raises(errors.InvalidTableStateError, match="nothing to verify"):
            verify(run.type, run.endpoints, run.migration)
    assert hive.entries() == {}


@pytest.mark.spec("migration.md#undoing")
def test_a_namespace_that_others_use_stays_when_it_is_undone(hive: Place, tmp_path: Path) -> None:
    write(hive.lake, "a")
    with registering(hive) as run, hive.connect() as namespace:
        run.execute()
        request = api.DeclareTableRequest(
            id=list(hive.table("others")), location=str(tmp_path / "others.lance")
        )
        namespace.declare_table(request)
        assert run.undo().state is State.UNDONE
    assert set(hive.entries()) == {hive.prefix, f"{hive.prefix}.others"}


@pytest.mark.spec("migration.md#verifying")
def test_what_differed_is_verified_again_by_the_next_run(hive: Place) -> None:
    write(hive.lake, "a", "b")
    own, away = hive.table("a"), hive.table("away")
    with registering(hive) as run, hive.connect() as namespace:

        def rename(one: Sequence[str], other: Sequence[str]) -> None:
            request = api.RenameTableRequest(id=list(one), new_table_name=other[-1])
            namespace.rename_table(request)

        assert run.execute(verify="none").items["a"].verified is None
        rename(own, away)
        record = verify(run.type, run.endpoints, run.migration, Level.CHECKSUMS)
        assert counts_of(record) == {"differs": 1, "done": 2}
        [check] = record.items["a"].checks
        assert (check.name, check.ok, check.found) == ("entry", False, None)
        rename(away, own)
        assert counts_of(run.execute(verify="checksums")) == {"done": 3}


@pytest.mark.spec("migration.md#plan")
def test_a_plan_is_not_carried_out_on_another_catalog(hive: Place, tmp_path: Path) -> None:
    with hive.connect() as namespace:
        address = address_of(namespace)
    other: dict[str, Any] = {"root": str(tmp_path)}
    with pytest.raises(errors.InvalidInputError, match="plan again"), catalog_at(address, other):
        raise AssertionError("not reached")


# -- deaths ----------------------------------------------------------------------------------------


@dataclass
class Case:
    """One migration to be killed.

    Attributes:
        planned: The migration.
        target: What it changes, and `prefix` is of the namespaces that appear there.
        source: The place whose entries must not change, where that is another one than the target.
    """

    planned: AbstractContextManager[Run]
    target: Place
    prefix: str
    source: Place | None = None
    secrets: dict[str, dict[str, str]] = field(default_factory=dict)

    def state(self) -> Entries:
        """Return what the target holds, without values that are others each time."""
        found = replace(self.target, prefix=self.prefix).state()
        for entry in found.values():
            entry["parameters"].pop("lance_bridge.revision", None)
            entry["parameters"].pop("transient_lastDdlTime", None)
        return found

    def job(self, run: Run, action: str = "execute", dies_at: int = -1) -> Job:
        return job_of(run.migration, action, dies_at=dies_at, **self.secrets)


@pytest.fixture(
    params=[
        "register in hive", "entries to glue", "register in unity", "marks in hive",
        "to the catalog in hive", "to the storage in glue",
    ]
)  # fmt: skip
def case(request: pytest.FixtureRequest) -> Case:
    what: str = request.param
    place: Place = request.getfixturevalue(what.rsplit(" ", 1)[1])
    own = secrets_of(place)
    if what.startswith("register"):
        write(place.lake, "a", "b")
        return Case(registering(place), place, place.prefix)
    if what == "entries to glue":
        hive: Place = request.getfixturevalue("hive")
        register_rows(hive, "a")
        entries = planned("entries", between(hive, place), place.migrations, **select(hive))
        return Case(entries, place, hive.prefix, hive, {"target": own})
    if what == "marks in hive":
        make_theirs(place, "upper_case_type", "stored_as_managed_table")
        return Case(in_place("properties", place), place, place.prefix)
    table = register_rows(place, "a")
    if what.startswith("to the storage"):
        with place.connect() as namespace:
            namespace.manage_table(table)
    managing = in_place("management", place, to=what.split(" ")[2])
    return Case(managing, place, place.prefix, secrets={"source": own, "target": own})


@pytest.mark.slow
def test_killed_at_any_moment_and_run_again_it_ends_as_if_it_had_not_been(
    case: Case, runner: Runner
) -> None:
    source = case.source.entries() if case.source else None
    before, data = case.state(), files(case.target.lake)
    with case.planned as run:
        moments = runner.moments_of(case.job(run))
        done = case.state()
        assert done != before
        assert run.undo().state is State.UNDONE
        assert case.state() == before
        for moment in range(moments):
            run.plan_again()
            runner.kill(case.job(run, dies_at=moment))
            record = run.execute()
            assert record.state is State.DONE, moment
            assert case.state() == done, moment
            assert run.undo().state is State.UNDONE, moment
            assert case.state() == before, moment
    if case.source:
        assert case.source.entries() == source
    assert files(case.target.lake) == data


@pytest.mark.slow
def test_undoing_that_is_killed_at_any_moment_is_resumed(case: Case, runner: Runner) -> None:
    before, data = case.state(), files(case.target.lake)
    with case.planned as run:
        run.execute()
        moments = runner.moments_of(case.job(run, "undo"))
        assert case.state() == before
        for moment in range(moments):
            run.plan_again()
            run.execute()
            runner.kill(case.job(run, "undo", dies_at=moment))
            assert run.undo().state is State.UNDONE, moment
            assert case.state() == before, moment
    assert files(case.target.lake) == data
