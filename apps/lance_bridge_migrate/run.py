"""Carrying out a plan: item by item, step by step, from wherever an earlier run ended."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from typing import Any

from lance_namespace.errors import (
    ConcurrentModificationError,
    InvalidTableStateError,
    NamespaceNotFoundError,
    TableNotFoundError,
)

from lance_bridge.errors import LanceNamespaceError, invalid

from .failures import FailureLimit
from .journal import Event, Failure, Journal
from .kind import AnyKind, Ends, Nobody, Step, Stopped, Watcher, Work
from .levels import Level
from .plan import Facts, Item, Plan, new_id, now, without_clashes
from .record import ItemState, Record
from .run_options import RunOptions, options_of_last_run
from .state import Migration

_SHOWN = 5
_log = logging.getLogger(__name__)

AnyEnds = Ends[Any, Any]
AnyWork = Work[Any, Any, Any]
AnyStep = Step[Any, Any, Any]


def make_plan(
    kind: AnyKind, ends: AnyEnds, options: dict[str, Any] | None = None, follows: str | None = None
) -> Plan:
    """Find out what a migration would do, by reading only.

    Args:
        options: Those of the kind, as JSON has them.
        follows: The identifier of the migration that this one continues.

    Raises:
        InvalidInputError: (13) bad options.
        LanceNamespaceError: The source or the target cannot be read.
    """
    checked = kind.checked_options(options or {})
    found = kind.survey(ends, checked)
    return Plan(
        id=new_id(kind.name),
        kind=kind.name,
        created=now(),
        source=ends.source_address,
        target=ends.target_address,
        options=checked.model_dump(mode="json"),
        items=without_clashes(found.items),
        notes=tuple(found.notes),
        follows=follows,
    )


class Session:
    """One process at work on one migration: what running, verifying and undoing have in common.

    Safe to use from many threads.
    """

    def __init__(
        self,
        kind: AnyKind,
        ends: AnyEnds,
        record: Record,
        journal: Journal,
        watcher: Watcher | None = None,
        *,
        stop_on_error: bool = False,
    ) -> None:
        self.kind = kind
        self.ends = ends
        self.record = record
        self.watcher = watcher or Nobody()
        self.stopping = threading.Event()
        self._journal = journal
        self._options = kind.checked_options(record.plan.options)
        self._lock = threading.Lock()
        self._limit = FailureLimit(stop_on_error=stop_on_error)
        self.gave_up = ""
        """Why the run begins no more items, or ""."""

    def note(self, event: Event) -> None:
        """Add an event to journal and record."""
        self._journal.append(event)
        with self._lock:
            self.record.apply(event)

    def work(self, item: Item, step: str = "", seen: Any = None) -> AnyWork:
        """Return what a step of an item works with."""
        state = self.record.items[item.key]

        def keep(facts: Facts) -> None:
            self.note(Event(event="note", item=item.key, step=step or None, facts=facts))

        return Work(
            ends=self.ends,
            plan=self.record.plan,
            options=self._options,
            item=item,
            mark=self.record.plan.mark(item),
            facts=dict(state.facts),
            keep=keep,
            watcher=self.watcher,
            stopping=self.stopping,
            is_repeated=step in state.steps,
            seen=seen,
        )

    def changed(self, items: Sequence[Item], at_once: int) -> list[Item]:
        """Return those whose source is not what it was when the plan was made."""

        def is_changed(item: Item) -> bool:
            if not item.fingerprint:
                return False
            try:
                now = self.kind.fingerprint(self.ends, self._options, item)
            except (TableNotFoundError, NamespaceNotFoundError):
                return True
            return now != item.fingerprint

        with ThreadPoolExecutor(at_once) as pool:
            try:
                found = list(pool.map(is_changed, items))
            except LanceNamespaceError:
                # What does not answer for one would have each of the others wait, too.
                pool.shutdown(wait=True, cancel_futures=True)
                raise
        return [item for item, changed in zip(items, found, strict=True) if changed]

    def each(self, items: Iterable[Item], do: Callable[[Item], None], at_once: int) -> None:
        """Do something for all items, several at once.

        Whatever ends it early, such as Ctrl-C, lets those end that are being worked on, by their
        step, and begins no more.
        """
        with ThreadPoolExecutor(at_once) as pool:
            futures = [pool.submit(do, item) for item in items]
            try:
                for future in as_completed(futures):
                    future.result()
            except BaseException:
                self.stopping.set()
                for future in futures:
                    future.cancel()
                raise

    def verify(self, items: Sequence[Item], level: Level, at_once: int) -> None:
        """Verify items that are done, and note what came of it."""
        if level is Level.NONE or not items:
            return
        seen = self.kind.look(self.ends, items)
        self.each(items, lambda item: self._verify(item, level, seen.get(item.key)), at_once)

    def _verify(self, item: Item, level: Level, seen: Any) -> None:
        if self.stopping.is_set():
            return
        self.watcher.step(item, "verify")
        try:
            checks = tuple(self.kind.verify(self.work(item, seen=seen), level))
        except LanceNamespaceError as error:
            self.fail(item, error)
            return
        except Stopped:
            return
        self.note(Event(event="verified", item=item.key, checks=checks, level=level.value))
        self.watcher.end(item, None)

    def fail(self, item: Item, error: LanceNamespaceError, *, undoing: bool = False) -> None:
        """Note that an item failed, and tell."""
        event = Event(
            event="undo_failed" if undoing else "failed",
            item=item.key,
            error=Failure(code=int(error.code), message=str(error)),
        )
        self.note(event)
        _log.info("'%s' failed", item.name, exc_info=error)
        self.watcher.end(item, error)
        with self._lock:
            if not undoing and not self.gave_up and self._limit.is_reached_by(error):
                self.gave_up = f"stopped after the failure of '{item.name}': {error}"
                self.stopping.set()

    def succeed(self) -> None:
        """Note that an item needs no more attention, so that failures are not all of them."""
        self._limit.add_success()


def execute(
    kind: AnyKind,
    ends: AnyEnds,
    migration: Migration,
    options: RunOptions | None = None,
    watcher: Watcher | None = None,
) -> Record:
    """Carry out a plan, or go on with one whose run ended early; what is done is not done again.

    An item that fails is noted, and the others are gone on with; the next run tries it again.

    Args:
        options: Those of the last run where there was one, else the defaults.

    Raises:
        InvalidInputError: (13) items are blocked, or the migration was undone.
        ConcurrentModificationError: (14) another process runs it; or a source changed since the
            plan was made, so that nothing was begun.
        ServiceUnavailableError: (17) the journal cannot be written.
        KeyboardInterrupt: Ctrl-C; all is noted by then.
    """
    with migration.journal() as journal:
        record = migration.record()
        if record.undo_has_begun:
            raise invalid(f"Migration {record.plan.id} was undone, or is being undone: plan anew")
        chosen = options or options_of_last_run(record)
        record.plan.require_startable(skip_blocked=chosen.skip_blocked)
        session = Session(kind, ends, record, journal, watcher, stop_on_error=chosen.stop_on_error)
        _run(session, chosen, _leave_out_changed(session, chosen))
        return record


def _leave_out_changed(session: Session, options: RunOptions) -> set[str]:
    """Fail the items that must not be begun. Before the first run, any of them refuses it."""
    waiting = [
        each.item
        for each in session.record.items.values()
        if each.item.is_to_do and not _has_read(session.kind, each)
    ]
    count = sum(bool(item.fingerprint) for item in waiting)
    session.watcher.announce(f"comparing {count} sources with the plan")
    refused = session.changed(waiting, options.at_once)
    error = _source_changed(refused)
    if refused and not session.record.runs:
        raise error
    session.note(Event(event="run", facts=options.model_dump(mode="json")))
    for item in refused:
        session.fail(item, error)
    return {item.key for item in refused}


def _source_changed(items: Sequence[Item]) -> ConcurrentModificationError:
    shown = ", ".join(item.name for item in items[:_SHOWN])
    more = f" and {len(items) - _SHOWN} more" if len(items) > _SHOWN else ""
    return ConcurrentModificationError(
        f"The source changed since the plan was made, of {shown}{more}: plan anew"
    )


def _has_read(kind: AnyKind, state: ItemState) -> bool:
    """Return whether an item needs its source no more, or changes it by itself."""
    if kind.reading_step is None or state.is_done:
        return state.has_begun
    step = state.steps.get(kind.reading_step)
    return step is not None and step.done is not None


def _run(session: Session, options: RunOptions, left_out: set[str]) -> None:
    states = session.record.items
    phases = [
        [
            item
            for item in phase
            if item.key not in left_out and not _is_over(states[item.key], options)
        ]
        for phase in session.record.plan.phases()
    ]
    total = sum(len(phase) for phase in phases)
    session.watcher.announce(f"migrating {total} items, {options.at_once} at a time")
    session.watcher.begin(total)
    try:
        for phase in phases:
            _run_phase(session, phase, options)
    except KeyboardInterrupt:
        session.note(Event(event="stopped"))
        raise
    session.note(
        Event(event="ended", facts={"gave_up": session.gave_up} if session.gave_up else {})
    )


def _is_over(state: ItemState, options: RunOptions) -> bool:
    is_verified = state.verified is not None or options.verify is Level.NONE
    return state.is_done and state.error is None and is_verified


def _run_phase(session: Session, items: Sequence[Item], options: RunOptions) -> None:
    """Carry items out, and verify those that are done then."""
    states, verifies = session.record.items, options.verify is not Level.NONE

    def run(item: Item) -> None:
        _run_item(session, item, is_watched=not verifies)

    left = [item for item in items if not states[item.key].is_done]
    # Those that failed before come last: they may be what an earlier run gave up after.
    left.sort(key=lambda item: states[item.key].error is not None)
    session.each(left, run, options.at_once)
    done = [item for item in items if states[item.key].is_done]
    session.verify(done, options.verify, options.at_once)


def _run_item(session: Session, item: Item, *, is_watched: bool) -> None:
    """Do an item's steps; ``is_watched`` where nothing is left to do for it then."""
    if session.stopping.is_set():
        return
    try:
        is_done = _run_steps(session, item)
    except LanceNamespaceError as error:
        session.fail(item, error)
    except Stopped:
        return
    else:
        if is_done:
            session.succeed()
        if is_done and is_watched:
            session.watcher.end(item, None)


def _run_steps(session: Session, item: Item) -> bool:
    """Do what is left of an item's steps; return False where the run is to stop before the end."""
    steps = session.kind.steps(item)
    for step in steps:
        before = session.record.items[item.key].steps.get(step.name)
        if before is not None and before.done is not None:
            continue
        if session.stopping.is_set():
            return False
        _run_step(session, item, step, is_last=step is steps[-1])
    return True


def _run_step(session: Session, item: Item, step: AnyStep, *, is_last: bool) -> None:
    work = session.work(item, step.name)
    session.watcher.step(item, step.name)
    session.note(Event(event="begun", item=item.key, step=step.name))
    begun = time.perf_counter()
    facts = step.do(work) or {}
    session.note(
        Event(
            event="done",
            item=item.key,
            step=step.name,
            facts=facts,
            seconds=round(time.perf_counter() - begun, 3),
            is_last=is_last,
        )
    )


def verify(
    kind: AnyKind,
    ends: AnyEnds,
    migration: Migration,
    level: Level = Level.COUNTS,
    *,
    at_once: int = 8,
    watcher: Watcher | None = None,
) -> Record:
    """Compare all items that are done with their sources again, and note what came of it.

    Raises:
        InvalidTableStateError: (19) nothing is done yet, or it was undone.
        ConcurrentModificationError: (14) another process runs the migration.
    """
    with migration.journal() as journal:
        record = migration.record()
        done = [each.item for each in record.items.values() if each.is_done and not each.undo_begun]
        if not done:
            raise InvalidTableStateError(
                f"Migration {record.plan.id} has nothing to verify: it is {record.state.value}"
            )
        session = Session(kind, ends, record, journal, watcher)
        session.watcher.begin(len(done))
        session.verify(done, level, at_once)
        return record
