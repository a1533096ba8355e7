"""Runs end early where nothing answers, and where they are asked to; the next run continues."""

from __future__ import annotations

import threading
from collections.abc import Mapping, Sequence
from typing import Any

import pytest
from lance_namespace.errors import InvalidInputError, ServiceUnavailableError

from lance_bridge.errors import LanceNamespaceError
from lance_bridge_migrate import Endpoints, Migration, Migrations, Plan, Record, RunOptions, execute
from lance_bridge_migrate.journal import Check
from lance_bridge_migrate.levels import Level
from lance_bridge_migrate.migration import MigrationType, Options, Step, Survey, Work
from lance_bridge_migrate.plan import Address, Item, new_id, now
from lance_bridge_migrate.record import State

ADDRESS = Address(name="none")
ENDPOINTS = Endpoints(None, None, ADDRESS, ADDRESS)
TABLES = 40


class Touch(MigrationType):
    """A migration that changes nothing, and fails where it should."""

    name = "touch"
    options_type = Options

    def __init__(self, errors: Mapping[str, LanceNamespaceError]) -> None:
        self.errors = errors
        self.started: list[str] = []
        self._lock = threading.Lock()

    def survey(self, *_: Any) -> Survey:
        raise NotImplementedError

    def verify(self, *_: Any) -> Sequence[Check]:
        raise NotImplementedError

    def steps(self, item: Item) -> Sequence[Step]:  # noqa: ARG002 - as declared
        return [Step("touch", self._touch)]

    def _touch(self, work: Work) -> None:
        with self._lock:
            self.started.append(work.item.source[-1])
        error = self.errors.get(work.item.source[-1])
        if error is not None:
            raise error


@pytest.fixture
def migration(migrations: Migrations) -> Migration:
    names = [f"t{number:02}" for number in range(TABLES)]
    items = tuple(Item(source=("db", each), target=("db", each)) for each in names)
    plan = Plan(id=new_id("touch"), type="touch", created=now(), source=ADDRESS, target=ADDRESS,
                items=items)  # fmt: skip
    return migrations.add(plan)


def run(migration: Migration, touch: Touch, **options: Any) -> Record:
    return execute(touch, ENDPOINTS, migration, RunOptions(verify=Level.NONE, **options))


def test_a_run_ends_after_a_few_tables_where_nothing_answers(migration: Migration) -> None:
    gone = {f"t{number:02}": ServiceUnavailableError("no answer") for number in range(TABLES)}
    touch = Touch(gone)
    record = run(migration, touch, at_once=2)
    assert 5 <= len(touch.started) <= 7
    assert record.counts[State.PLANNED] == TABLES - len(touch.started)
    assert "no answer" in record.runs[-1].stop_reason
    assert migration.record().runs[-1].stop_reason == record.runs[-1].stop_reason
    touch = Touch({})
    assert run(migration, touch).state is State.DONE
    assert len(touch.started) == TABLES


def test_tables_that_fail_one_by_one_do_not_end_a_run(migration: Migration) -> None:
    bad: dict[str, LanceNamespaceError] = {
        f"t{number:02}": ServiceUnavailableError("broken") for number in range(0, TABLES, 2)
    }
    bad |= {f"t{number:02}": InvalidInputError("wrong") for number in range(30, TABLES)}
    record = run(migration, Touch(bad), at_once=1)
    assert record.runs[-1].stop_reason == ""
    assert record.counts == {State.FAILED: len(bad), State.DONE: TABLES - len(bad)}


def test_tables_that_ended_a_run_do_not_keep_the_next_from_the_others(migration: Migration) -> None:
    broken = {f"t{number:02}": ServiceUnavailableError("broken") for number in range(5)}
    assert run(migration, Touch(broken), at_once=1).counts[State.PLANNED] == TABLES - 5
    record = run(migration, Touch(broken), at_once=1)
    assert record.counts == {State.FAILED: 5, State.DONE: TABLES - 5}


def test_a_run_ends_with_the_first_error_where_it_is_to(migration: Migration) -> None:
    touch = Touch({"t03": InvalidInputError("wrong")})
    record = run(migration, touch, at_once=1, stop_on_error=True)
    assert touch.started == ["t00", "t01", "t02", "t03"]
    assert "'db.t03'" in record.runs[-1].stop_reason
