"""Running: one runner at a time, failures that do not stop others, Ctrl-C, and what is kept."""

from __future__ import annotations

import signal
import threading
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import lance_namespace as api
import pytest
from lance_namespace.errors import (
    ConcurrentModificationError,
    InvalidInputError,
    InvalidTableStateError,
)
from migrate.building import Run, counts_of, registering, write
from migrate.places import Place
from migrate.running import Runner, job_of

from lance_bridge_migrate import Item, Level, Migrations, RunOptions, State, execute, verify
from lance_bridge_migrate.endpoints import address_of, catalog_at
from lance_bridge_migrate.migration import NullProgress

pytestmark = pytest.mark.servers


@pytest.mark.spec("migration.md#journal")
def test_two_runners_at_once_are_refused_and_a_killed_one_gives_way(
    hive: Place, lake: Path, migrations: Migrations, runner: Runner, tmp_path: Path
) -> None:
    write(lake, "a", "b")
    with registering(lake, hive, migrations) as run:
        reached = str(tmp_path / "reached")
        with runner.paused(job_of(run.migration, waits_at=6, reached=reached)):
            assert run.migration.is_running
            before = hive.entries()
            refused = pytest.raises(ConcurrentModificationError, match="another process")
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
def test_ctrl_c_ends_after_the_current_steps_and_notes_the_state(
    hive: Place, lake: Path, migrations: Migrations
) -> None:
    write(lake, *"abcdef")
    with registering(lake, hive, migrations) as run:
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
def test_what_is_done_is_not_done_again(hive: Place, lake: Path, migrations: Migrations) -> None:
    write(lake, "a")
    with registering(lake, hive, migrations) as run:
        run.execute()
        before = hive.entries()
        again = run.execute()
        assert again.state is State.DONE
        assert hive.entries() == before
        events = [line for line in _journal(run) if '"started"' in line]
        assert len(events) == 2


def _journal(run: Run) -> list[str]:
    return (run.migration.directory / "journal.jsonl").read_text().splitlines()


@pytest.mark.spec("migration.md#undoing")
def test_a_migration_that_was_undone_is_not_run_again(
    hive: Place, lake: Path, migrations: Migrations
) -> None:
    write(lake, "a")
    with registering(lake, hive, migrations) as run:
        run.execute()
        run.undo()
        assert run.undo().state is State.UNDONE
        with pytest.raises(InvalidInputError, match="was undone"):
            run.execute()
        with pytest.raises(InvalidTableStateError, match="nothing to verify"):
            verify(run.type, run.endpoints, run.migration)
    assert hive.entries() == {}


@pytest.mark.spec("migration.md#undoing")
def test_a_namespace_that_others_use_stays_when_it_is_undone(
    hive: Place, lake: Path, migrations: Migrations, tmp_path: Path
) -> None:
    write(lake, "a")
    with registering(lake, hive, migrations) as run, hive.connect() as namespace:
        run.execute()
        request = api.DeclareTableRequest(
            id=list(hive.table("others")), location=str(tmp_path / "others.lance")
        )
        namespace.declare_table(request)
        assert run.undo().state is State.UNDONE
    assert set(hive.entries()) == {hive.prefix, f"{hive.prefix}.others"}


@pytest.mark.spec("migration.md#verifying")
def test_what_differed_is_verified_again_by_the_next_run(
    hive: Place, lake: Path, migrations: Migrations
) -> None:
    write(lake, "a", "b")
    own, away = hive.table("a"), hive.table("away")
    with registering(lake, hive, migrations) as run, hive.connect() as namespace:

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
    with pytest.raises(InvalidInputError, match="plan again"), catalog_at(address, other):
        raise AssertionError("not reached")
