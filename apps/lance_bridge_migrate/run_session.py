"""One process at work on a migration: what running, verifying and undoing have in common."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from typing import Any

from lance_namespace.errors import (
    NamespaceNotFoundError,
    ServiceUnavailableError,
    TableNotFoundError,
    UnauthenticatedError,
)

from lance_bridge.errors import LanceNamespaceError

from .endpoints import Endpoints
from .journal import Event, Failure, Journal
from .levels import Level
from .migration import MigrationType, NullProgress, Stopped, Work
from .plan import Facts, Item
from .record import Record

_OF_ALL_TABLES = (ServiceUnavailableError, UnauthenticatedError)
_MAX_CONSECUTIVE_FAILURES = 5
_log = logging.getLogger(__name__)


class FailureLimit:
    """Counts failures in a row that would hit all tables: the catalog or storage does not answer.

    Without it, a thousand tables would each wait for the same timeout. Safe to use from many
    threads.

    Args:
        stop_on_error: Whether one failure of any kind is the limit.
    """

    def __init__(self, *, stop_on_error: bool = False) -> None:
        self._stop_on_error = stop_on_error
        self._in_a_row = 0
        self._lock = threading.Lock()

    def add_success(self) -> None:
        """Note that something answers."""
        with self._lock:
            self._in_a_row = 0

    def is_reached_by(self, error: LanceNamespaceError) -> bool:
        """Note a failure; return whether the run is to stop because of it."""
        with self._lock:
            self._in_a_row = self._in_a_row + 1 if isinstance(error, _OF_ALL_TABLES) else 0
            return self._stop_on_error or self._in_a_row >= _MAX_CONSECUTIVE_FAILURES


class RunSession:
    """One process at work on one migration. Safe to use from many threads."""

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
        self._limit = FailureLimit(stop_on_error=stop_on_error)
        self.stop_reason = ""
        """Why the run starts no more items, or ""."""

    def note(self, event: Event) -> None:
        """Add an event to journal and record."""
        self._journal.append(event)
        with self._lock:
            self.record.apply(event)

    def work(self, item: Item, step: str = "", prefetched: Any = None) -> Work:
        """Return what a step of an item works with."""
        state = self.record.items[item.key]

        def keep(facts: Facts) -> None:
            self.note(Event(event="note", item=item.key, step=step or None, facts=facts))

        return Work(
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

    def changed(self, items: Sequence[Item], at_once: int) -> list[Item]:
        """Return the items whose source has changed since the plan was made."""

        def is_changed(item: Item) -> bool:
            if not item.fingerprint:
                return False
            try:
                now = self.migration_type.fingerprint(self.endpoints, item)
            except (TableNotFoundError, NamespaceNotFoundError):
                return True
            return now != item.fingerprint

        with ThreadPoolExecutor(at_once) as pool:
            # An error cancels the calls that have not begun: they would wait for it, too.
            found = list(pool.map(is_changed, items))
        return [item for item, changed in zip(items, found, strict=True) if changed]

    def each(self, items: Iterable[Item], do: Callable[[Item], None], at_once: int) -> None:
        """Call a function for all items, several at once.

        Ctrl-C, or whatever else ends it early, lets items in progress end their current step, and
        starts no more.
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
        """Verify items that are done, and note the result."""
        if level is Level.NONE or not items:
            return
        found = self.migration_type.prefetch(self.endpoints, items)
        self.each(items, lambda item: self._verify(item, level, found.get(item.key)), at_once)

    def _verify(self, item: Item, level: Level, prefetched: Any) -> None:
        if self.stopping.is_set():
            return
        self.progress.step(item, "verify")
        try:
            checks = tuple(
                self.migration_type.verify(self.work(item, prefetched=prefetched), level)
            )
        except LanceNamespaceError as error:
            self.fail(item, error)
            return
        except Stopped:
            return
        self.note(Event(event="verified", item=item.key, checks=checks, level=level.value))
        self.progress.end(item, None)

    def fail(self, item: Item, error: LanceNamespaceError, *, undoing: bool = False) -> None:
        """Note and report that an item failed."""
        event = Event(
            event="undo_failed" if undoing else "failed",
            item=item.key,
            error=Failure(code=int(error.code), message=str(error)),
        )
        self.note(event)
        _log.info("'%s' failed", item.name, exc_info=error)
        self.progress.end(item, error)
        with self._lock:
            if not undoing and not self.stop_reason and self._limit.is_reached_by(error):
                self.stop_reason = f"stopped after the failure of '{item.name}': {error}"
                self.stopping.set()

    def succeed(self) -> None:
        """Note that an item is done: then not everything fails."""
        self._limit.add_success()
