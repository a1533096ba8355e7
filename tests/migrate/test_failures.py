"""Runs and undos that fail: where they end, what the next one does, and their exit codes."""

from __future__ import annotations

import threading
from collections.abc import Mapping, Sequence
from typing import Any

import pytest
import typer
from lance_namespace.errors import (
    InvalidInputError,
    InvalidTableStateError,
    PermissionDeniedError,
    ServiceUnavailableError,
    ThrottlingError,
    UnauthenticatedError,
)
from migrate.building import error_of

from lance_bridge.errors import LanceNamespaceError
from lance_bridge_migrate import (
    Endpoints,
    Migration,
    Migrations,
    Plan,
    Record,
    RunOptions,
    execute,
    undo,
    verify,
)
from lance_bridge_migrate.commands.running import exit_by_state
from lance_bridge_migrate.journal import Check
from lance_bridge_migrate.levels import Level
from lance_bridge_migrate.migration import (
    MigrationType,
    NullProgress,
    Options,
    Step,
    Stopped,
    Survey,
    Work,
)
from lance_bridge_migrate.plan import Address, Item, new_id, now
from lance_bridge_migrate.record import State

pytestmark = [pytest.mark.quick, pytest.mark.spec("migration.md#running")]

ADDRESS = Address(name="none")
ENDPOINTS = Endpoints(None, None, ADDRESS, ADDRESS)
TABLES = 40
FINGERPRINT = "as planned"
SECONDS = 60.0
Errors = Mapping[str, LanceNamespaceError | Stopped]
"""What is raised for some tables, by name."""


class Touch(MigrationType):
    """A migration that changes nothing, and fails where it should.

    Attributes:
        errors: Raised by steps; `undo_errors`, by undoing them, and `verify_errors`, by verifying.
        sources: The fingerprints of sources that have changed, or the errors of reading them.
        started: The names of tables whose step was started.
    """

    name = "touch"
    options_type = Options

    def __init__(self, errors: Errors) -> None:
        self.errors = errors
        self.undo_errors: Errors = {}
        self.verify_errors: Errors = {}
        self.sources: Mapping[str, str | LanceNamespaceError | Stopped] = {}
        self.started: list[str] = []
        self._lock = threading.Lock()

    def survey(self, *_: Any) -> Survey:
        raise NotImplementedError

    def verify(self, work: Work, level: Level) -> Sequence[Check]:  # noqa: ARG002 - as declared
        error = self.verify_errors.get(work.item.source[-1])
        if error is not None:
            raise error
        return ()

    def fingerprint(self, endpoints: Endpoints, item: Item) -> str:  # noqa: ARG002 - as declared
        now = self.sources.get(item.source[-1], FINGERPRINT)
        if isinstance(now, Exception):
            raise now
        return now

    def steps(self, item: Item) -> Sequence[Step]:  # noqa: ARG002 - as declared
        return [Step("touch", self._touch, self._undo)]

    def _touch(self, work: Work) -> None:
        with self._lock:
            self.started.append(work.item.source[-1])
        error = self.errors.get(work.item.source[-1])
        if error is not None:
            raise error

    def _undo(self, work: Work) -> None:
        error = self.undo_errors.get(work.item.source[-1])
        if error is not None:
            raise error


@pytest.fixture
def migration(migrations: Migrations) -> Migration:
    names = [f"t{number:02}" for number in range(TABLES)]
    items = tuple(
        Item(source=("db", each), target=("db", each), fingerprint=FINGERPRINT) for each in names
    )
    plan = Plan(id=new_id("touch"), type="touch", created=now(), source=ADDRESS, target=ADDRESS,
                items=items)  # fmt: skip
    return migrations.add(plan)


def failing(error: LanceNamespaceError, numbers: range = range(TABLES)) -> dict[str, Any]:
    """Return that tables of some numbers fail."""
    return {f"t{number:02}": error for number in numbers}


def run(migration: Migration, touch: Touch, **options: Any) -> Record:
    return execute(touch, ENDPOINTS, migration, RunOptions(verify=Level.NONE, **options))


def exit_code_of(record: Record) -> int:
    """Return the exit code of a command that ends with a record."""
    try:
        exit_by_state(record)
    except typer.Exit as ended:
        return ended.exit_code
    return 0


def test_a_run_ends_after_a_few_tables_where_nothing_answers(migration: Migration) -> None:
    touch = Touch(failing(ServiceUnavailableError("no answer")))
    record = run(migration, touch, at_once=2)
    assert 5 <= len(touch.started) <= 7
    assert record.counts[State.PLANNED] == TABLES - len(touch.started)
    assert "no answer" in record.runs[-1].stop_reason
    assert migration.record().runs[-1].stop_reason == record.runs[-1].stop_reason
    touch = Touch({})
    assert run(migration, touch).state is State.DONE
    assert len(touch.started) == TABLES


def test_tables_that_fail_one_by_one_do_not_end_a_run(migration: Migration) -> None:
    bad = failing(ServiceUnavailableError("broken"), range(0, TABLES, 2))
    bad |= failing(InvalidInputError("wrong"), range(30, TABLES))
    record = run(migration, Touch(bad), at_once=1)
    assert record.runs[-1].stop_reason == ""
    assert record.counts == {State.FAILED: len(bad), State.DONE: TABLES - len(bad)}


def test_tables_that_ended_a_run_do_not_keep_the_next_from_the_others(migration: Migration) -> None:
    broken = failing(ServiceUnavailableError("broken"), range(5))
    assert run(migration, Touch(broken), at_once=1).counts[State.PLANNED] == TABLES - 5
    record = run(migration, Touch(broken), at_once=1)
    assert record.counts == {State.FAILED: 5, State.DONE: TABLES - 5}


def test_a_run_ends_with_the_first_error_where_it_is_to(migration: Migration) -> None:
    touch = Touch({"t03": InvalidInputError("wrong")})
    record = run(migration, touch, at_once=1, stop_on_error=True)
    assert touch.started == ["t00", "t01", "t02", "t03"]
    assert "'db.t03'" in record.runs[-1].stop_reason


# -- verification --------------------------------------------------------------------------------


class Announced(NullProgress):
    """Keeps what a run or a verification announces."""

    def __init__(self) -> None:
        self.texts: list[str] = []

    def announce(self, text: str) -> None:
        self.texts.append(text)


@pytest.mark.spec("migration.md#verifying")
def test_tables_that_fail_one_by_one_do_not_end_a_verification(migration: Migration) -> None:
    touch = Touch({})
    touch.verify_errors = failing(ServiceUnavailableError("broken"), range(0, TABLES, 2))
    record = execute(touch, ENDPOINTS, migration, RunOptions(at_once=1))
    half = TABLES // 2
    assert record.runs[-1].stop_reason == ""
    assert record.counts == {State.FAILED: half, State.DONE: half}
    announced = Announced()
    record = verify(touch, ENDPOINTS, migration, at_once=1, progress=announced)
    assert record.counts == {State.FAILED: half, State.DONE: half}
    assert announced.texts == []


@pytest.mark.spec("migration.md#verifying")
def test_a_verification_that_ends_where_nothing_answers_says_so(migration: Migration) -> None:
    touch, announced = Touch({}), Announced()
    run(migration, touch)
    touch.verify_errors = failing(ServiceUnavailableError("no answer"))
    record = verify(touch, ENDPOINTS, migration, at_once=1, progress=announced)
    assert record.counts == {State.FAILED: 5, State.DONE: TABLES - 5}
    [text] = announced.texts
    assert text == (
        "The verification was stopped after the failure of 'db.t04': no answer. "
        "Verify again to compare the other items"
    )


# -- sources that changed ------------------------------------------------------------------------


@pytest.mark.spec("migration.md#plan")
def test_only_tables_whose_source_cannot_be_read_fail_in_a_later_run(migration: Migration) -> None:
    touch = Touch({"t00": InvalidInputError("wrong")})
    touch.sources = {
        "t01": InvalidInputError("it is no Lance table"),
        "t02": PermissionDeniedError("it may not be read"),
        "t03": InvalidTableStateError("its manifest is damaged"),
        "t04": "changed",
    }
    with pytest.raises(PermissionDeniedError):
        run(migration, touch)
    assert migration.record().state is State.PLANNED
    changed, touch.sources = touch.sources, {}
    run(migration, touch, at_once=1, stop_on_error=True)
    touch.sources = changed
    record = run(migration, touch)
    failed = {key: each.error.code for key, each in record.items.items() if each.error is not None}
    assert failed == {"db/t00": 13, "db/t01": 14, "db/t02": 15, "db/t03": 14, "db/t04": 14}
    assert record.counts == {State.FAILED: 5, State.DONE: TABLES - 5}
    assert "it is no Lance table" in str(record.items["db/t01"].error)


@pytest.mark.spec("migration.md#plan")
@pytest.mark.parametrize(
    "error",
    [
        ServiceUnavailableError("no answer"),
        UnauthenticatedError("expired"),
        ThrottlingError("too many requests"),
        Stopped("'t01' cannot be described"),
    ],
    ids=str,
)
def test_a_run_ends_where_the_source_does_not_respond(
    migration: Migration, error: LanceNamespaceError | Stopped
) -> None:
    touch = Touch({"t00": InvalidInputError("wrong")})
    run(migration, touch, at_once=1, stop_on_error=True)
    touch.sources = {"t01": error}
    with pytest.raises(LanceNamespaceError, match=str(error)):
        run(migration, touch)
    assert migration.record().counts[State.PLANNED] == TABLES - 1


# -- jobs that were cancelled --------------------------------------------------------------------


def test_a_step_whose_spark_job_others_cancel_fails(migration: Migration) -> None:
    touch = Touch({"t03": Stopped("The rows of 'db.t03' are not written")})
    record = run(migration, touch)
    error = error_of(record, "db/t03")
    assert error.message == "The rows of 'db.t03' are not written: its Spark job was cancelled"
    assert record.counts == {State.FAILED: 1, State.DONE: TABLES - 1}
    assert exit_code_of(record) == 1
    assert run(migration, Touch({})).state is State.DONE


class StopsWithTheRun(Touch):
    """Its first table fails once its second has started, which ends when the run stops."""

    def __init__(self) -> None:
        super().__init__({"t00": InvalidInputError("wrong"), "t01": Stopped()})
        self._second = threading.Event()

    def _touch(self, work: Work) -> None:
        name = work.item.source[-1]
        if name == "t00":
            assert self._second.wait(SECONDS)
        elif name == "t01":
            self._second.set()
            assert work.stopping.wait(SECONDS)
        super()._touch(work)


def test_a_step_that_ends_early_because_the_run_stops_has_not_failed(migration: Migration) -> None:
    record = run(migration, StopsWithTheRun(), at_once=2, stop_on_error=True)
    assert record.items["db/t00"].state is State.FAILED
    assert record.items["db/t01"].state is State.STARTED


# -- exit codes ----------------------------------------------------------------------------------


@pytest.mark.spec("migration.md#from-python")
@pytest.mark.parametrize(
    "error", [ServiceUnavailableError("no answer"), Stopped("The table is not dropped")], ids=str
)
def test_an_undo_that_fails_exits_with_1(
    migration: Migration, error: LanceNamespaceError | Stopped
) -> None:
    touch = Touch({})
    assert exit_code_of(run(migration, touch)) == 0
    touch.undo_errors = {"t03": error}
    record = undo(touch, ENDPOINTS, migration)
    assert str(error) in str(record.items["db/t03"].error)
    assert record.counts == {State.UNDOING: 1, State.UNDONE: TABLES - 1}
    assert exit_code_of(record) == 1
    touch.undo_errors = {}
    assert exit_code_of(undo(touch, ENDPOINTS, migration)) == 0


@pytest.mark.spec("migration.md#from-python")
def test_a_complete_undo_exits_with_0_although_an_item_had_failed(migration: Migration) -> None:
    touch = Touch({"t00": InvalidInputError("wrong")})
    run(migration, touch, at_once=1, stop_on_error=True)
    touch.sources = {"t01": "changed"}
    record = run(migration, touch)
    assert exit_code_of(record) == 1
    assert not record.items["db/t01"].has_started
    record = undo(touch, ENDPOINTS, migration)
    assert record.counts == {State.FAILED: 1, State.UNDONE: TABLES - 1}
    assert exit_code_of(record) == 0


@pytest.mark.spec("migration.md#from-python")
def test_a_migration_that_is_not_done_exits_with_1(migration: Migration) -> None:
    class Killed(BaseException):
        """Stands for the death of the process."""

    class Dying(Touch):
        def _touch(self, work: Work) -> None:
            if work.item.source[-1] == "t05":
                raise Killed
            super()._touch(work)

    with pytest.raises(Killed):
        run(migration, Dying({}), at_once=1)
    record = verify(Touch({}), ENDPOINTS, migration)
    assert record.state is State.STARTED
    assert exit_code_of(record) == 1
