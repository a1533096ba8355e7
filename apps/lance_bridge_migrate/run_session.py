"""The state of one process that runs, verifies or undoes a migration."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import dataclass
from typing import Any

from lance_namespace.errors import (
    ServiceUnavailableError,
    ThrottlingError,
    UnauthenticatedError,
)

from lance_bridge.errors import LanceNamespaceError

from .endpoints import Endpoints
from .journal import Event, Failure, Journal
from .levels import Level
from .migration import MigrationType, NullProgress, Stopped, Work
from .plan import Facts, Item
from .record import Record

_OUTAGES = (ServiceUnavailableError, UnauthenticatedError)
_MAX_CONSECUTIVE_FAILURES = 5
_log = logging.getLogger(__name__)


def cancelled_error(stopped: Stopped) -> ServiceUnavailableError:
    """Return the error of a step that ended early because others cancelled its Spark job."""
    return ServiceUnavailableError(f"{stopped}: its Spark job was cancelled")


@dataclass(frozen=True)
class ChangedSource:
    """An item whose source is not as in the plan, with the error of reading it, if any."""

    item: Item
    error: LanceNamespaceError | None = None


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
        self._limit = FailureLimit(stop_on_error=stop_on_error)
        self.stop_reason = ""
        """Why the run starts no more items, or "" if it does."""

    def note(self, event: Event) -> None:
        """Add an event to the journal and the record."""
        self._journal.append(event)
        with self._lock:
            self.record.apply(event)

    def work(self, item: Item, step: str = "", prefetched: Any = None) -> Work:
        """Return the context of a step of an item."""
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

    def find_changed(self, items: Sequence[Item], at_once: int) -> list[ChangedSource]:
        """Return the items whose source has changed since the plan was made, or is refused.

        Raises:
            ServiceUnavailableError: (17) the source is unavailable. No item is to blame for that,
                nor for Unauthenticated (16) and Throttling (21).
        """
        with ThreadPoolExecutor(at_once) as pool:
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
            return ChangedSource(item, error)
        except Stopped as stopped:
            raise cancelled_error(stopped) from stopped
        return ChangedSource(item) if now != item.fingerprint else None

    def for_each(
        self,
        items: Iterable[Item],
        do: Callable[[Item], None],
        at_once: int,
        *,
        undoing: bool = False,
    ) -> None:
        """Call a function for all items in parallel.

        On Ctrl-C or an error, items in progress finish their current step, and no more are started.
        An item fails if `do` raises `Stopped` although the run is not stopping.
        """
        with ThreadPoolExecutor(at_once) as pool:
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

    def verify(self, items: Sequence[Item], level: Level, at_once: int) -> None:
        """Verify completed items, and record the result."""
        if level is Level.NONE or not items:
            return
        found = self.migration_type.prefetch(self.endpoints, items)
        self.for_each(items, lambda item: self._verify(item, level, found.get(item.key)), at_once)

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
        self.note(Event(event="verified", item=item.key, checks=checks, level=level.value))
        self.succeed()
        self.progress.end(item, None)

    def fail(self, item: Item, error: LanceNamespaceError, *, undoing: bool = False) -> None:
        """Record and report the failure of an item."""
        event = Event(
            event="undo_failed" if undoing else "failed",
            item=item.key,
            error=Failure(code=int(error.code), message=str(error)),
        )
        self.note(event)
        _log.info("'%s' failed", item.name, exc_info=error)
        self.progress.end(item, error)
        with self._lock:
            if not undoing and not self.stop_reason and self._limit.add_failure(error):
                self.stop_reason = f"stopped after the failure of '{item.name}': {error}"
                self.stopping.set()

    def succeed(self) -> None:
        """Count the success of an item, which resets the failure limit."""
        self._limit.add_success()
