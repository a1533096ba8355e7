"""Plan, execute, verify and undo migrations of any type."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from contextlib import contextmanager
from functools import partial
from typing import Any

from lance_namespace.errors import (
    ConcurrentModificationError,
    InvalidTableStateError,
    LanceNamespaceError,
    PermissionDeniedError,
    ServiceUnavailableError,
    ThrottlingError,
    UnauthenticatedError,
)
from pydantic import Field

from lance_bridge.dotted_names import first_names
from lance_bridge.errors import invalid

from . import Level
from .endpoints import Endpoints
from .migration import MigrationType, NullProgress, Step, StepContext, Stopped
from .plan import Facts, Item, ItemType, Options, Plan, new_id, now, without_clashes
from .record import Event, Failure, ItemState, Journal, Migration, Name, Record
from .targets import namespace_steps

_OUTAGES = (ServiceUnavailableError, UnauthenticatedError)
_MAX_CONSECUTIVE_FAILURES = 5
_log = logging.getLogger(__name__)


def cancelled_error(stopped: Stopped) -> ServiceUnavailableError:
    """Return the error of a step that ended early because others cancelled its Spark job."""
    return ServiceUnavailableError(f"{stopped}: its Spark job was cancelled")


ChangedSource = tuple[Item, "LanceNamespaceError | None"]
"""An item whose source is not as in the plan, with the error of reading it, if any."""


class FailureLimit:
    """Counts consecutive failures because the catalog or the storage is unavailable.

    Without this limit, each of a thousand tables would wait for the same timeout. Thread-safe.

    Args:
        stop_on_error: Whether a single failure of any kind reaches the limit.
    """

    def __init__(self, *, stop_on_error: bool = False) -> None:
        self._stop_on_error = stop_on_error
        self._consecutive = 0
        self._lock = threading.Lock()

    def add_success(self) -> None:
        """Reset the count of consecutive failures."""
        with self._lock:
            self._consecutive = 0

    def add_failure(self, error: LanceNamespaceError) -> bool:
        """Count a failure, and return whether it reaches the limit."""
        with self._lock:
            self._consecutive = self._consecutive + 1 if isinstance(error, _OUTAGES) else 0
            return self._stop_on_error or self._consecutive >= _MAX_CONSECUTIVE_FAILURES


class RunSession:
    """The work of one process on one migration. Thread-safe."""

    def __init__(
        self,
        migration_type: MigrationType,
        endpoints: Endpoints,
        record: Record,
        journal: Journal,
        progress: NullProgress | None = None,
        *,
        stop_on_error: bool = False,
    ) -> None:
        self.migration_type = migration_type
        self.endpoints = endpoints
        self.record = record
        self.progress = progress or NullProgress()
        self.stopping = threading.Event()
        self._journal = journal
        self._options = migration_type.parse_options(record.plan.options)
        self._lock = threading.Lock()
        self.limit = FailureLimit(stop_on_error=stop_on_error)
        self.stop_reason = ""
        """Why the run starts no more items, or "" if it does."""

    def note(self, event: Event) -> None:
        """Add an event to the journal and the record."""
        self._journal.append(event)
        with self._lock:
            self.record.apply(event)

    @contextmanager
    def noting_end(self) -> Iterator[None]:
        """Note the end of a run or undo, which the block does."""
        try:
            yield
        except KeyboardInterrupt:
            self.note(Event(event="stopped"))
            raise
        facts = {"stop_reason": self.stop_reason} if self.stop_reason else {}
        self.note(Event(event="ended", facts=facts))

    def work(self, item: Item, step: str = "", prefetched: Any = None) -> StepContext:
        """Return the context of a step of an item."""
        state = self.record.items[item.key]

        def keep(facts: Facts) -> None:
            self.note(Event(event="note", item=item.key, step=step or None, facts=facts))

        return StepContext(
            endpoints=self.endpoints,
            plan=self.record.plan,
            options=self._options,
            item=item,
            mark=self.record.plan.mark(item),
            facts=dict(state.facts),
            keep=keep,
            progress=self.progress,
            stopping=self.stopping,
            is_repeated=step in state.steps,
            prefetched=prefetched,
        )

    def steps(self, item: Item) -> Sequence[Step]:
        """Return the steps of an item, in order."""
        is_table = item.type is ItemType.TABLE
        return self.migration_type.steps(item) if is_table else namespace_steps()

    def find_changed(self, items: Sequence[Item], parallelism: int) -> list[ChangedSource]:
        """Return the items whose source has changed since the plan was made, or is refused.

        Raises:
            ServiceUnavailableError: (17) the source is unavailable. No item is to blame for that,
                nor for Unauthenticated (16) and Throttling (21).
        """
        with ThreadPoolExecutor(parallelism) as pool:
            # An error cancels the calls that have not started, which may wait for the same timeout.
            found = pool.map(self._compare_source, items)
            return [each for each in found if each is not None]

    def _compare_source(self, item: Item) -> ChangedSource | None:
        if not item.fingerprint:
            return None
        try:
            now = self.migration_type.fingerprint(self.endpoints, item)
        except (*_OUTAGES, ThrottlingError):
            raise
        except LanceNamespaceError as error:
            return item, error
        except Stopped as stopped:
            raise cancelled_error(stopped) from stopped
        return (item, None) if now != item.fingerprint else None

    def for_each(
        self,
        items: Iterable[Item],
        do: Callable[[Item], None],
        parallelism: int,
        *,
        undoing: bool = False,
    ) -> None:
        """Call a function for all items in parallel.

        On Ctrl-C or an error, items in progress finish their current step, and no more are started.
        An item fails if `do` raises `Stopped` although the run is not stopping.
        """
        with ThreadPoolExecutor(parallelism) as pool:
            futures = {pool.submit(do, item): item for item in items}
            try:
                for future in as_completed(futures):
                    try:
                        future.result()
                    except Stopped as stopped:
                        # Decided here, not in `do`: on Ctrl-C, Spark cancels its jobs first, and
                        # then raises KeyboardInterrupt in this thread.
                        if not self.stopping.is_set():
                            self.fail(futures[future], cancelled_error(stopped), undoing=undoing)
            except BaseException:
                self.stopping.set()
                for future in futures:
                    future.cancel()
                raise

    def verify(self, items: Sequence[Item], level: Level, parallelism: int) -> None:
        """Verify completed items, and record the result."""
        if level is Level.NONE or not items:
            return
        found = self.migration_type.prefetch(self.endpoints, items)
        self.for_each(items, partial(self._verify, level, found), parallelism)

    def _verify(self, level: Level, prefetched: Mapping[str, Any], item: Item) -> None:
        if self.stopping.is_set():
            return
        self.progress.step(item, "verify")
        try:
            work = self.work(item, prefetched=prefetched.get(item.key))
            is_table = item.type is ItemType.TABLE
            checks = tuple(self.migration_type.verify(work, level)) if is_table else ()
        except LanceNamespaceError as error:
            self.fail(item, error)
            return
        self.note(Event(event="verified", item=item.key, checks=checks, level=level.value))
        self.limit.add_success()
        self.progress.end(item, None)

    def fail(self, item: Item, error: LanceNamespaceError, *, undoing: bool = False) -> None:
        """Record and report the failure of an item."""
        failure = Failure(code=int(error.code), message=str(error))
        event: Name = "undo_failed" if undoing else "failed"
        self.note(Event(event=event, item=item.key, error=failure))
        _log.info("'%s' failed", item.name, exc_info=error)
        self.progress.end(item, error)
        with self._lock:
            if not undoing and not self.stop_reason and self.limit.add_failure(error):
                self.stop_reason = f"stopped after the failure of '{item.name}': {error}"
                self.stopping.set()


# -- runs ------------------------------------------------------------------------------------------


class RunOptions(Options):
    """The options of a run. They are stored with the run, and are the defaults of the next one.

    Attributes:
        parallelism: The number of items to process in parallel.
        verify: How thoroughly to verify each completed item.
        skip_blocked: Leave out blocked items, and execute the rest.
        stop_on_error: Start no more items after the first failure.
    """

    parallelism: int = Field(default=8, ge=1, le=64)
    verify: Level = Level.COUNTS
    skip_blocked: bool = False
    stop_on_error: bool = False


def options_of_last_run(record: Record) -> RunOptions:
    """Return the options of the last run, or the defaults."""
    runs = [run for run in record.runs if run.event == "run"]
    return RunOptions.model_validate(runs[-1].options) if runs else RunOptions()


def make_plan(
    migration_type: MigrationType,
    endpoints: Endpoints,
    options: dict[str, Any] | None = None,
    follows: str | None = None,
) -> Plan:
    """Return the plan of a migration, made by reading only.

    Args:
        options: The options of the migration, as in JSON.
        follows: The identifier of the migration that this one continues.

    Raises:
        InvalidInputError: (13) bad options.
        LanceNamespaceError: The source or the target cannot be read.
    """
    checked = migration_type.parse_options(options or {})
    found = migration_type.survey(endpoints, checked)
    return Plan(
        id=new_id(migration_type.name),
        type=migration_type.name,
        created=now(),
        source=endpoints.source_address,
        target=endpoints.target_address,
        options=checked.model_dump(mode="json"),
        items=without_clashes(found.items),
        notes=tuple(found.notes),
        follows=follows,
    )


def execute(
    migration_type: MigrationType,
    endpoints: Endpoints,
    migration: Migration,
    options: RunOptions | None = None,
    progress: NullProgress | None = None,
) -> Record:
    """Execute a plan, or continue one whose run ended early. Completed steps are not repeated.

    If an item fails, the run records the error and continues with the other items. The next run
    retries it.

    Args:
        options: By default, those of the last run, if there was one.

    Raises:
        InvalidInputError: (13) items are blocked, or the migration was undone.
        ConcurrentModificationError: (14) another process runs it; or a source changed since the
            plan was made, so that nothing was started.
        PermissionDeniedError: (15) a source may not be read, and this is the first run.
        ServiceUnavailableError: (17) the journal cannot be written, or the source or the target
            is unavailable; likewise UnauthenticatedError (16) and ThrottlingError (21).
        KeyboardInterrupt: Ctrl-C; the journal is complete.
    """
    with migration.journal() as journal:
        record = migration.record()
        if record.undo_has_started:
            raise invalid(f"Migration {record.plan.id} was undone, or is being undone: plan again")
        chosen = options or options_of_last_run(record)
        record.plan.require_startable(skip_blocked=chosen.skip_blocked)
        session = RunSession(
            migration_type, endpoints, record, journal, progress, stop_on_error=chosen.stop_on_error
        )
        _run(session, chosen, _fail_changed_items(session, chosen))
        return record


def _fail_changed_items(session: RunSession, options: RunOptions) -> set[str]:
    """Fail the items whose source has changed, and return their keys.

    Raises:
        ConcurrentModificationError: (14) a source has changed, and this is the first run.
        PermissionDeniedError: (15) a source may not be read, and this is the first run.
    """
    waiting = [
        each.item
        for each in session.record.items.values()
        if each.item.is_to_do and not _has_read(session.migration_type, each)
    ]
    count = sum(bool(item.fingerprint) for item in waiting)
    session.progress.announce(f"comparing {count} sources with the plan")
    changed = session.find_changed(waiting, options.parallelism)
    if changed and not session.record.runs:
        raise _source_error(changed)
    session.note(Event(event="run", facts=options.model_dump(mode="json")))
    for each in changed:
        session.fail(each[0], _source_error([each]))
    return {item.key for item, _ in changed}


def _source_error(changed: Sequence[ChangedSource]) -> LanceNamespaceError:
    """Return the error of items whose source changed, or may not be read."""
    errors = [error for _, error in changed if error is not None]
    for error in errors:
        if isinstance(error, PermissionDeniedError):
            return error
    names = first_names([item.name for item, _ in changed], 5)
    reason = f" ({errors[0]})" if errors else ""
    return ConcurrentModificationError(
        f"The source of {names} has changed since the plan was made{reason}: plan again"
    )


def _has_read(migration_type: MigrationType, state: ItemState) -> bool:
    """Return whether an item no longer needs its source, or may have changed it."""
    if migration_type.reading_step is None or state.is_done:
        return state.has_started
    step = state.steps.get(migration_type.reading_step)
    return step is not None and step.done is not None


def _run(session: RunSession, options: RunOptions, left_out: set[str]) -> None:
    states = session.record.items
    phases = [
        [
            item
            for item in phase
            if item.key not in left_out and not _is_finished(states[item.key], options)
        ]
        for phase in session.record.plan.phases()
    ]
    total = sum(len(phase) for phase in phases)
    session.progress.announce(f"migrating {total} items, {options.parallelism} at a time")
    session.progress.start(total)
    with session.noting_end():
        for phase in phases:
            _run_phase(session, phase, options)


def _is_finished(state: ItemState, options: RunOptions) -> bool:
    # Verify differing items again: the storage may have been temporarily unavailable.
    has_passed = state.verified is not None and all(check.ok for check in state.checks)
    is_verified = has_passed or options.verify is Level.NONE
    return state.is_done and state.error is None and is_verified


def _run_phase(session: RunSession, items: Sequence[Item], options: RunOptions) -> None:
    """Run items, and verify those that are done afterwards."""
    states = session.record.items
    run = partial(_run_item, session, is_final=options.verify is Level.NONE)
    left = [item for item in items if not states[item.key].is_done]
    # Failed items come last, because they may have stopped an earlier run.
    left.sort(key=lambda item: states[item.key].error is not None)
    session.for_each(left, run, options.parallelism)
    done = [item for item in items if states[item.key].is_done]
    session.verify(done, options.verify, options.parallelism)


def _run_item(session: RunSession, item: Item, *, is_final: bool) -> None:
    """Run an item's steps. With ``is_final``, the item ends with the last of them."""
    if session.stopping.is_set():
        return
    try:
        is_done = _run_steps(session, item)
    except LanceNamespaceError as error:
        session.fail(item, error)
    else:
        if is_done:
            session.limit.add_success()
        if is_done and is_final:
            session.progress.end(item, None)


def _run_steps(session: RunSession, item: Item) -> bool:
    """Run the remaining steps of an item; return False if the run should stop before the last."""
    steps = session.steps(item)
    for step in steps:
        before = session.record.items[item.key].steps.get(step.name)
        if before is not None and before.done is not None:
            continue
        if session.stopping.is_set():
            return False
        _run_step(session, item, step, is_last=step is steps[-1])
    return True


def _run_step(session: RunSession, item: Item, step: Step, *, is_last: bool) -> None:
    work = session.work(item, step.name)
    session.progress.step(item, step.name)
    session.note(Event(event="started", item=item.key, step=step.name))
    started = time.perf_counter()
    facts = step.do(work) or {}
    session.note(
        Event(
            event="done",
            item=item.key,
            step=step.name,
            facts=facts,
            seconds=round(time.perf_counter() - started, 3),
            is_last=is_last,
        )
    )


def verify(
    migration_type: MigrationType,
    endpoints: Endpoints,
    migration: Migration,
    level: Level = Level.COUNTS,
    *,
    parallelism: int = 8,
    progress: NullProgress | None = None,
) -> Record:
    """Compare all completed items with their sources, and record the result.

    Raises:
        InvalidTableStateError: (19) no item is done, or the migration was undone.
        ConcurrentModificationError: (14) another process runs the migration.
    """
    with migration.journal() as journal:
        record = migration.record()
        done = [
            each.item for each in record.items.values() if each.is_done and not each.undo_started
        ]
        if not done:
            raise InvalidTableStateError(
                f"Migration {record.plan.id} has nothing to verify: it is {record.state.value}"
            )
        session = RunSession(migration_type, endpoints, record, journal, progress)
        session.progress.start(len(done))
        session.verify(done, level, parallelism)
        if session.stop_reason:
            # The journal keeps a reason only for runs.
            session.progress.announce(
                f"The verification was {session.stop_reason}. Verify again to compare the other "
                "items"
            )
        return record


# -- undoing ---------------------------------------------------------------------------------------


def undo(
    migration_type: MigrationType,
    endpoints: Endpoints,
    migration: Migration,
    *,
    skip_changed: bool = False,
    parallelism: int = 8,
    progress: NullProgress | None = None,
) -> Record:
    """Undo a migration in reverse order, or continue an earlier undo.

    Items that were never started are not changed, nor is the source.

    Args:
        skip_changed: Skip targets that other writers have changed since, and undo the rest.

    Raises:
        InvalidTableStateError: (19) other writers have changed a target since; nothing is undone.
        ConcurrentModificationError: (14) another process runs the migration.
        ServiceUnavailableError: (17) the journal cannot be written.
    """
    with migration.journal() as journal:
        record = migration.record()
        session = RunSession(migration_type, endpoints, record, journal, progress)
        states = record.items.values()
        items = [each.item for each in states if each.has_started and not each.is_undone]
        refused = _check_undo(session, items, parallelism)
        if refused and not skip_changed:
            raise _undo_refused_error(record, refused)
        session.note(Event(event="undo"))
        for item, error in refused.values():
            session.fail(item, error, undoing=True)
        _undo_items(session, [item for item in items if item.key not in refused], parallelism)
        return record


def _steps_to_undo(session: RunSession, item: Item) -> list[Step]:
    """Return the steps that were started and are not undone yet, in reverse order."""
    states = session.record.items[item.key].steps
    started = [step for step in session.steps(item) if step.name in states]
    return [step for step in reversed(started) if states[step.name].undone is None]


_Refusals = dict[str, tuple[Item, LanceNamespaceError]]


def _check_undo(session: RunSession, items: Sequence[Item], parallelism: int) -> _Refusals:
    """Return the items that cannot be undone, each with the error, by item key."""
    found: _Refusals = {}

    def check(item: Item) -> None:
        try:
            for step in _steps_to_undo(session, item):
                if step.check_undo is not None:
                    step.check_undo(session.work(item, step.name))
        except LanceNamespaceError as error:
            found[item.key] = (item, error)
        except Stopped as stopped:
            found[item.key] = (item, cancelled_error(stopped))

    session.for_each(items, check, parallelism)
    return found


def _undo_refused_error(record: Record, refused: _Refusals) -> InvalidTableStateError:
    errors = first_names([str(error) for _, error in refused.values()], 5, "; ")
    return InvalidTableStateError(
        f"Migration {record.plan.id} is not undone: {errors}. Nothing was undone; to undo the "
        "rest, use --skip-changed (skip_changed)"
    )


def _undo_items(session: RunSession, items: Sequence[Item], parallelism: int) -> None:
    wanted = {item.key for item in items}
    phases = [[i for i in phase if i.key in wanted] for phase in session.record.plan.phases()]
    session.progress.start(len(items))
    with session.noting_end():
        for phase in reversed(phases):
            session.for_each(phase, partial(_undo_item, session), parallelism, undoing=True)


def _undo_item(session: RunSession, item: Item) -> None:
    if session.stopping.is_set():
        return
    session.note(Event(event="undo_started", item=item.key))
    try:
        for step in _steps_to_undo(session, item):
            session.progress.step(item, f"undo {step.name}")
            if step.undo is not None:
                step.undo(session.work(item, step.name))
            session.note(Event(event="undo_done", item=item.key, step=step.name))
    except LanceNamespaceError as error:
        session.fail(item, error, undoing=True)
        return
    session.note(Event(event="undo_done", item=item.key))
    session.progress.end(item, None)
