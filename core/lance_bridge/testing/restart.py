"""Cases: the server is killed and restarted."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor, wait

from lance_namespace import (
    ErrorCode,
    LanceNamespaceError,
    NamespaceNotFoundError,
    ServiceUnavailableError,
    TableAlreadyExistsError,
    TableNotFoundError,
)

from .calls import Calls, code_of, described
from .cases import Cases, Namespace, needs, same_location

THREADS = 8
OPERATIONS = 50
"""Minimum number of operations of each thread."""
_LOST = (
    "What the server had acknowledged is gone after it was killed: it answers before it writes to "
    "its disk. Unity Catalog with H2, as it is shipped, does so for up to 0.5 s: append "
    "';WRITE_DELAY=0' to hibernate.connection.url in etc/conf/hibernate.properties"
)


@needs("stop_server", "start_server")
class RestartCases(Cases):
    """What survives a restart of the server, and what callers see of it.

    Every acknowledged change must survive. A server that replies before it writes may fail here.
    """

    def test_the_first_call_of_an_idle_client_after_a_restart_succeeds(self, ns: Namespace) -> None:
        table_id = ns.with_rows()
        before = ns.location(table_id)
        changing = Calls(ns.target.connect())
        changing.list_tables(ns.id)
        ns.target.stop_server()
        ns.target.start_server()
        try:
            location = ns.location(table_id)
        except (NamespaceNotFoundError, TableNotFoundError) as error:
            raise AssertionError(f"{described(error)}. {_LOST}") from error
        assert same_location(location, before)
        declared = changing.declare_table(ns.table("new")).location
        assert same_location(ns.location(ns.table("new")), declared)
        changing.close()

    def test_calls_while_the_server_is_down_are_service_unavailable(self, ns: Namespace) -> None:
        table_id, missing = ns.with_rows(), ns.missing_namespace()
        ns.target.stop_server()
        try:
            calls: list[Callable[[], object]] = [
                lambda: ns.describe_table(table_id),
                lambda: ns.list_tables(ns.id),
                lambda: ns.declare_table(ns.table("new")),
                lambda: ns.table_exists(ns.table("missing")),
                lambda: ns.namespace_exists(missing),
            ]
            with ThreadPoolExecutor(len(calls)) as pool:
                codes = list(pool.map(code_of, calls))
        finally:
            ns.target.start_server()
        assert codes == [ErrorCode.SERVICE_UNAVAILABLE] * len(calls)
        assert ns.ids(table_id) == [0, 1, 2]

    def test_threads_work_on_through_a_restart(self, ns: Namespace) -> None:
        workers = [_Worker(ns, number) for number in range(THREADS)]
        seconds = ns.target.restart_deadline
        with ThreadPoolExecutor(THREADS) as pool:
            futures = [pool.submit(worker.run) for worker in workers]
            try:
                _wait_until(lambda: all(w.done >= 5 for w in workers), futures, seconds)
                ns.target.stop_server()
                ns.target.start_server()
            finally:
                for worker in workers:
                    worker.end_within(seconds)
            _, hanging = wait(futures, timeout=seconds + 30)
            assert not hanging, f"{len(hanging)} threads hang"
        for future in futures:
            future.result()
        wrong = [worker.wrong for worker in workers if worker.wrong]
        assert not wrong, f"{wrong}. If it contradicts what was answered just before: {_LOST}"
        assert all(worker.done >= OPERATIONS for worker in workers)


class _Worker:
    """A thread that declares, describes, lists and deregisters its own table, and tracks its state.

    It knows the location of its table, or that there is none, until an error leaves that unknown.
    """

    def __init__(self, ns: Namespace, number: int) -> None:
        self.ns = ns
        self.table_id = ns.table(f"t{number}")
        self.done = 0
        self._restarted = threading.Event()
        self._deadline = 0.0
        """When the thread ends, by the monotonic clock, if the server has restarted."""
        self.wrong: list[str] = []
        self._known = True
        self._location: str | None = None

    def end_within(self, seconds: float) -> None:
        """End the thread within a time from now: the server has restarted."""
        self._deadline = time.monotonic() + seconds
        self._restarted.set()

    def run(self) -> None:
        """Work until the restart is over and enough was done, with successful calls after it."""
        good_since = 0
        turn = 0
        while not self._restarted.is_set() or time.monotonic() < self._deadline:
            if self._restarted.is_set() and good_since >= 8 and self.done >= OPERATIONS:
                return
            succeeded = self._step(turn)
            turn += succeeded
            good_since += succeeded and self._restarted.is_set()
            self.done += 1
        self.wrong.append("no success after the restart before the deadline")

    def _step(self, turn: int) -> bool:
        step = (self._declare, self._describe, self._list, self._deregister)[turn % 4]
        try:
            step()
        except ServiceUnavailableError:
            self._known = self._known and step in (self._describe, self._list)
            return False
        except LanceNamespaceError as error:
            self.wrong.append(described(error))
        return True

    def _declare(self) -> None:
        try:
            location = self.ns.declare_table(self.table_id).location
        except TableAlreadyExistsError:
            if self._known or self.ns.features.declare_again:
                raise
            self._describe()
            return
        self._check_own(location, "declare")
        self._known, self._location = True, location

    def _describe(self) -> None:
        self._compare(lambda: self.ns.describe_table(self.table_id).location, "describe")

    def _deregister(self) -> None:
        self._compare(lambda: self.ns.deregister_table(self.table_id).location, "deregister")
        self._location = None

    def _list(self) -> None:
        listed = self.table_id[-1] in self.ns.list_tables(self.ns.id).tables
        if self._known and listed != (self._location is not None):
            self.wrong.append(f"list says {listed}, expected {self._location}")

    def _compare(self, call: Callable[[], str | None], what: str) -> None:
        """Record a response that contradicts the known state, then adopt it."""
        try:
            found = call()
        except TableNotFoundError:
            found = None
        self._check_own(found, what)
        if self._known and not same_location(found, self._location):
            self.wrong.append(f"{what}: expected {self._location}, got {found}")
        self._known, self._location = True, found

    def _check_own(self, found: str | None, what: str) -> None:
        """Record a response about another table."""
        if found is not None and self.table_id[-1] not in found.rstrip("/").rpartition("/")[2]:
            self.wrong.append(f"{what} of {self.table_id[-1]} answered {found}")


def _wait_until(condition: Callable[[], bool], futures: list[Future[None]], seconds: float) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, "the threads made no progress before the restart"
        wait(futures, timeout=0.01)
