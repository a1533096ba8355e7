"""Running: one runner at a time, failures, exit codes and Ctrl-C, and kills at every moment."""

from __future__ import annotations

import signal
import threading
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import lance_namespace as api
import pytest
import typer
from lance_namespace import errors
from lance_namespace.errors import (
    InvalidInputError,
    InvalidTableStateError,
    LanceNamespaceError,
    PermissionDeniedError,
    ServiceUnavailableError,
    ThrottlingError,
    UnauthenticatedError,
)
from migrate.runner import Job, Runner, job_of, secrets_of

from lance_bridge_migrate import (
    Endpoints,
    Item,
    Level,
    Migration,
    Migrations,
    Plan,
    Record,
    RunOptions,
    State,
    execute,
    undo,
    verify,
)
from lance_bridge_migrate.commands.running import exit_by_state
from lance_bridge_migrate.endpoints import address_of, catalog_at
from lance_bridge_migrate.migration import (
    MigrationType,
    NullProgress,
    Step,
    StepContext,
    Stopped,
    Survey,
)
from lance_bridge_migrate.plan import Address, Options, new_id, now
from lance_bridge_migrate.record import Check

from .places import (
    Entries,
    Place,
    Run,
    between,
    counts_of,
    error_of,
    files,
    in_place,
    make_foreign_table,
    plan_registration,
    planned,
    register_rows,
    select,
    write,
)

pytestmark = [pytest.mark.servers, pytest.mark.spec("migration.md#running")]

ADDRESS = Address(name="none")
ENDPOINTS = Endpoints(None, None, ADDRESS, ADDRESS)
TABLES = 40
FINGERPRINT = "as planned"
SECONDS = 60.0
Errors = Mapping[str, LanceNamespaceError | Stopped]
"""What is raised for some tables, by name."""


@pytest.mark.spec("migration.md#journal")
def test_two_runners_at_once_are_refused_and_a_killed_one_gives_way(
    hive: Place, runner: Runner, tmp_path: Path
) -> None:
    write(hive.lake, "a", "b")
    with plan_registration(hive) as run:
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
    with plan_registration(hive) as run:
        with pytest.raises(KeyboardInterrupt):
            execute(
                run.type, run.endpoints, run.migration, RunOptions(parallelism=1), Interrupting("b")
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
    with plan_registration(hive) as run:
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
    with plan_registration(hive) as run:
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
    with plan_registration(hive) as run, hive.connect() as namespace:
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
    with plan_registration(hive) as run, hive.connect() as namespace:

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
        return Case(plan_registration(place), place, place.prefix)
    if what == "entries to glue":
        hive: Place = request.getfixturevalue("hive")
        register_rows(hive, "a")
        entries = planned("entries", between(hive, place), place.migrations, **select(hive))
        return Case(entries, place, hive.prefix, hive, {"target": own})
    if what == "marks in hive":
        make_foreign_table(place, "upper_case_type", "stored_as_managed_table")
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


# -- runs and undos that fail ----------------------------------------------------------------------


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

    def verify(self, work: StepContext, level: Level) -> Sequence[Check]:  # noqa: ARG002 - as declared
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

    def _touch(self, work: StepContext) -> None:
        with self._lock:
            self.started.append(work.item.source[-1])
        error = self.errors.get(work.item.source[-1])
        if error is not None:
            raise error

    def _undo(self, work: StepContext) -> None:
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


def fail_tables(error: LanceNamespaceError, numbers: range = range(TABLES)) -> dict[str, Any]:
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


@pytest.mark.quick
def test_a_run_ends_after_a_few_tables_where_nothing_answers(migration: Migration) -> None:
    touch = Touch(fail_tables(ServiceUnavailableError("no answer")))
    record = run(migration, touch, parallelism=2)
    assert 5 <= len(touch.started) <= 7
    assert record.counts[State.PLANNED] == TABLES - len(touch.started)
    assert "no answer" in record.runs[-1].stop_reason
    assert migration.record().runs[-1].stop_reason == record.runs[-1].stop_reason
    touch = Touch({})
    assert run(migration, touch).state is State.DONE
    assert len(touch.started) == TABLES


@pytest.mark.quick
def test_tables_that_fail_one_by_one_do_not_end_a_run(migration: Migration) -> None:
    bad = fail_tables(ServiceUnavailableError("broken"), range(0, TABLES, 2))
    bad |= fail_tables(InvalidInputError("wrong"), range(30, TABLES))
    record = run(migration, Touch(bad), parallelism=1)
    assert record.runs[-1].stop_reason == ""
    assert record.counts == {State.FAILED: len(bad), State.DONE: TABLES - len(bad)}


@pytest.mark.quick
def test_tables_that_ended_a_run_do_not_keep_the_next_from_the_others(migration: Migration) -> None:
    broken = fail_tables(ServiceUnavailableError("broken"), range(5))
    assert run(migration, Touch(broken), parallelism=1).counts[State.PLANNED] == TABLES - 5
    record = run(migration, Touch(broken), parallelism=1)
    assert record.counts == {State.FAILED: 5, State.DONE: TABLES - 5}


@pytest.mark.quick
def test_a_run_ends_with_the_first_error_where_it_is_to(migration: Migration) -> None:
    touch = Touch({"t03": InvalidInputError("wrong")})
    record = run(migration, touch, parallelism=1, stop_on_error=True)
    assert touch.started == ["t00", "t01", "t02", "t03"]
    assert "'db.t03'" in record.runs[-1].stop_reason


# -- verification --------------------------------------------------------------------------------


class Announced(NullProgress):
    """Keeps what a run or a verification announces."""

    def __init__(self) -> None:
        self.texts: list[str] = []

    def announce(self, text: str) -> None:
        self.texts.append(text)


@pytest.mark.quick
@pytest.mark.spec("migration.md#verifying")
def test_tables_that_fail_one_by_one_do_not_end_a_verification(migration: Migration) -> None:
    touch = Touch({})
    touch.verify_errors = fail_tables(ServiceUnavailableError("broken"), range(0, TABLES, 2))
    record = execute(touch, ENDPOINTS, migration, RunOptions(parallelism=1))
    half = TABLES // 2
    assert record.runs[-1].stop_reason == ""
    assert record.counts == {State.FAILED: half, State.DONE: half}
    announced = Announced()
    record = verify(touch, ENDPOINTS, migration, parallelism=1, progress=announced)
    assert record.counts == {State.FAILED: half, State.DONE: half}
    assert announced.texts == []


@pytest.mark.quick
@pytest.mark.spec("migration.md#verifying")
def test_a_verification_that_ends_where_nothing_answers_says_so(migration: Migration) -> None:
    touch, announced = Touch({}), Announced()
    run(migration, touch)
    touch.verify_errors = fail_tables(ServiceUnavailableError("no answer"))
    record = verify(touch, ENDPOINTS, migration, parallelism=1, progress=announced)
    assert record.counts == {State.FAILED: 5, State.DONE: TABLES - 5}
    [text] = announced.texts
    assert text == (
        "The verification was stopped after the failure of 'db.t04': no answer. "
        "Verify again to compare the other items"
    )


# -- sources that changed ------------------------------------------------------------------------


@pytest.mark.quick
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
    run(migration, touch, parallelism=1, stop_on_error=True)
    touch.sources = changed
    record = run(migration, touch)
    failed = {key: each.error.code for key, each in record.items.items() if each.error is not None}
    assert failed == {"db/t00": 13, "db/t01": 14, "db/t02": 15, "db/t03": 14, "db/t04": 14}
    assert record.counts == {State.FAILED: 5, State.DONE: TABLES - 5}
    assert "it is no Lance table" in str(record.items["db/t01"].error)


@pytest.mark.quick
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
    run(migration, touch, parallelism=1, stop_on_error=True)
    touch.sources = {"t01": error}
    with pytest.raises(LanceNamespaceError, match=str(error)):
        run(migration, touch)
    assert migration.record().counts[State.PLANNED] == TABLES - 1


# -- jobs that were cancelled --------------------------------------------------------------------


@pytest.mark.quick
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

    def _touch(self, work: StepContext) -> None:
        name = work.item.source[-1]
        if name == "t00":
            assert self._second.wait(SECONDS)
        elif name == "t01":
            self._second.set()
            assert work.stopping.wait(SECONDS)
        super()._touch(work)


@pytest.mark.quick
def test_a_step_that_ends_early_because_the_run_stops_has_not_failed(migration: Migration) -> None:
    record = run(migration, StopsWithTheRun(), parallelism=2, stop_on_error=True)
    assert record.items["db/t00"].state is State.FAILED
    assert record.items["db/t01"].state is State.STARTED


# -- exit codes ----------------------------------------------------------------------------------


@pytest.mark.quick
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


@pytest.mark.quick
@pytest.mark.spec("migration.md#from-python")
def test_a_complete_undo_exits_with_0_although_an_item_had_failed(migration: Migration) -> None:
    touch = Touch({"t00": InvalidInputError("wrong")})
    run(migration, touch, parallelism=1, stop_on_error=True)
    touch.sources = {"t01": "changed"}
    record = run(migration, touch)
    assert exit_code_of(record) == 1
    assert not record.items["db/t01"].has_started
    record = undo(touch, ENDPOINTS, migration)
    assert record.counts == {State.FAILED: 1, State.UNDONE: TABLES - 1}
    assert exit_code_of(record) == 0


@pytest.mark.quick
@pytest.mark.spec("migration.md#from-python")
def test_a_migration_that_is_not_done_exits_with_1(migration: Migration) -> None:
    class Killed(BaseException):
        """Stands for the death of the process."""

    class Dying(Touch):
        def _touch(self, work: StepContext) -> None:
            if work.item.source[-1] == "t05":
                raise Killed
            super()._touch(work)

    with pytest.raises(Killed):
        run(migration, Dying({}), parallelism=1)
    record = verify(Touch({}), ENDPOINTS, migration)
    assert record.state is State.STARTED
    assert exit_code_of(record) == 1
