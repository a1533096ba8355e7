"""The query processes of a server: which are kept, and when one of them is ended."""

from __future__ import annotations

import logging
import multiprocessing
import pickle
import signal
import socket
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from functools import cache, partial
from typing import Annotated, Any

import psutil
import pyarrow as pa
from lance_namespace.errors import InternalError, InvalidInputError, ServiceUnavailableError
from pydantic import ConfigDict, Field

from lance_bridge.config import Seconds
from lance_bridge.transaction_versions import VersionChanges

from ..errors import unfinished_error
from ..operations import Operation
from .memory import (
    GIB,
    default_memory,
    default_total_memory,
    find_crowding,
    find_excess,
    own_memory,
)
from .process import Channel, ChannelClosedError, Failure, Kind, Query, serve, slow_down
from .runs import Run

_log = logging.getLogger(__name__)

_WATCH_SECONDS = 0.05
_IDLE_SECONDS = 30.0
_WARM_SECONDS = 1.0
_END_SECONDS = 10.0
"""How long the exit code of a process that has ended may take on a busy machine."""
_STALL_SECONDS = 10.0
"""How long a client may read nothing while a principal with fewer queries waits for a process."""
_LONG_SECONDS = 2.0
"""After how much processor time a query gets the lowest priority."""
_MOST_PROCESSES = 16
_PRELOADED = [f"{__package__}.preload", "lance_bridge_server.run.catalogs"]
"""Modules that each process has from its start. The second one defines the sources of queries, and
its import would take most of a process's first query."""
_CLOSED = "closed"
"""The end of a process that is not needed any more."""
_TOTAL = "memory of all queries"
"""The end of a process because all of them took too much memory together."""


def fair_share(count: int) -> int:
    """Return how many of some threads or processes a principal gets: some stay for the others."""
    return max(1, count * 3 // 4)


@dataclass(frozen=True)
class QuerySettings:
    """Limits of the processes that run queries. The fields are keys of the configuration."""

    __pydantic_config__ = ConfigDict(extra="forbid")

    processes: Annotated[int, Field(ge=0, le=256)] = _MOST_PROCESSES
    """How many queries run at once; others wait. With 0, queries run in the server itself: one of
    them can then end it."""
    kept: Annotated[int, Field(ge=0, le=256)] = 2
    """How many processes without a query are kept for the next one."""
    memory_bytes: Annotated[int, Field(gt=0)] | None = None
    """How much memory a query may take; by default a quarter of that of the machine or container,
    between 1 and 4 GiB."""
    total_memory_bytes: Annotated[int, Field(gt=0)] | None = None
    """How much memory all queries may take, in all worker processes together; by default half of
    that of the machine or container."""
    cpu_seconds: Annotated[int, Field(gt=0)] | None = 600
    """How much processor time a query may take."""
    seconds: Seconds = 3600.0
    """How long a query may take, and its rows after that."""


class QueryProcesses:
    """Runs queries in processes. Safe to share between threads.

    Attributes:
        on_end: Called with the reason when a process has ended before its query.
    """

    def __init__(self, settings: QuerySettings, workers: int = 1) -> None:
        """Args: workers: How many worker processes have an equal part of the memory of all."""
        self.settings = settings
        self.on_end: Callable[[str], object] = lambda _: None
        self._memory = settings.memory_bytes or default_memory()
        self._total_memory = (settings.total_memory_bytes or default_total_memory()) // workers
        self._condition = threading.Condition()
        self._idle: list[_Process] = []
        self._running: set[_Process] = set()
        self._starting = 0
        self._owned: Counter[str] = Counter()
        """How many processes run queries of each principal."""
        self._crowding: frozenset[str] = frozenset()
        """The principals that may begin no further query, because theirs take much memory."""
        self._is_closed = False
        self._watcher: threading.Thread | None = None

    def run(self, query: Query, run: Run, upload: Any, changes: VersionChanges) -> Any:
        """Run a query, and return its response or a reader of its rows.

        The reader holds the process until its end, or until it is closed or deleted.

        Args:
            upload: The rows of the request as a file, if the query reads them.
            changes: Gets the versions that the query reads and creates.

        Raises:
            LanceNamespaceError: what the operation raises.
            InvalidInputError: (13) it needs more memory or processor time than it may take.
            ServiceUnavailableError: (17) no process was free in time, or it took too long.
            OutcomeUnknownError: (17) its process ended, and may have made its change.
            InternalError: (18) its process crashed.
        """
        end_at = time.monotonic() + min(run.seconds, self.settings.seconds)
        process = self._acquire(query.operation, query.principal, end_at, run)
        run.watch(process)
        return _Exchange(self, process, run, query, upload, changes).run()

    def warm(self) -> None:
        """Start the processes that are kept, in a thread and after the server has started."""
        timer = threading.Timer(_WARM_SECONDS, self._start_kept)
        timer.daemon = True
        timer.start()

    def _start_kept(self) -> None:
        for _ in range(min(self.settings.kept, self.settings.processes)):
            with self._condition:
                if self._is_closed or self._count + len(self._idle) >= self.settings.kept:
                    return
                self._starting += 1
            process = None
            try:
                process = _Process(self.settings.cpu_seconds)
            finally:
                with self._condition:
                    self._starting -= 1
                    is_closed = self._is_closed
                    if process is not None and not is_closed:
                        self._idle.append(process)
                    self._condition.notify()
            if is_closed:
                process.close()

    def close(self) -> None:
        """End all processes without a query; the others end after theirs."""
        with self._condition:
            self._is_closed = True
            idle, self._idle = self._idle, []
        for each in idle:
            each.close()

    # -- processes ---------------------------------------------------------------------------------

    def _wake(self) -> None:
        with self._condition:
            self._condition.notify_all()

    def _acquire(self, operation: Operation, owner: str, end_at: float, run: Run) -> _Process:
        share = fair_share(self.settings.processes)
        run.on_cancel = self._wake
        with self._condition:
            while (
                self._owned[owner] >= share
                or (self._owned[owner] and owner in self._crowding)
                or (not self._idle and self._count >= self.settings.processes)
            ):
                if run.is_cancelled:
                    raise unfinished_error(f"{operation.name} was cancelled", "", may_change=False)
                left = end_at - time.monotonic()
                self._end_stalled(owner)
                if not self._condition.wait(max(0.0, min(left, _STALL_SECONDS))) and left <= 0:
                    late = f"{operation.name} found no free process in time: the server is busy"
                    raise ServiceUnavailableError(f"{late}; nothing was changed")
            process = self._idle.pop() if self._idle else None
            self._starting += 1
            self._owned[owner] += 1
        try:
            if process is None or not process.is_alive:
                if process is not None:
                    process.close()
                process = _Process(self.settings.cpu_seconds)
        except BaseException:
            with self._condition:
                self._starting -= 1
                self._disown(owner)
            raise
        process.end_at, process.owner, process.began_at = end_at, owner, float("inf")
        process.run = run
        with self._condition:  # one step: others count the process in between
            self._starting -= 1
            self._running.add(process)
            self._condition.notify_all()
            if self._watcher is None:
                self._watcher = threading.Thread(target=self._watch, daemon=True)
                self._watcher.start()
        return process

    def _end_stalled(self, owner: str) -> None:
        """End a query whose client does not read, for a principal with fewer. Call with the lock.

        The one that has been stalled for the longest time, unless it is the only one of its
        principal.
        """
        since = time.monotonic() - _STALL_SECONDS
        stalled = [
            each.run
            for each in self._running
            if each.run is not None
            and each.run.stalled_since < since
            and self._owned[each.owner] > max(1, self._owned[owner])
        ]
        if stalled and not self._idle and self._count >= self.settings.processes:
            _log.warning("A query was ended: its client reads nothing, and others wait")
            min(stalled, key=lambda run: run.stalled_since).cancel()

    def _disown(self, owner: str) -> None:
        """Count a process less for a principal, and wake those that wait. Call with the lock."""
        self._owned[owner] -= 1
        if not self._owned[owner]:
            del self._owned[owner]
        self._condition.notify_all()

    @property
    def _count(self) -> int:
        return len(self._running) + self._starting

    def release(self, process: _Process, *, is_usable: bool, has_ended: bool = False) -> str:
        """Keep a process for the next query, or end it. Return why it ended, or nothing.

        Args:
            has_ended: Whether it has closed its channel, so that its exit code follows.
        """
        is_small = is_usable and process.memory < self._memory // 2 and not process.is_slow
        with self._condition:
            self._running.discard(process)
            process.run = None
            self._disown(process.owner)
            is_kept = is_small and not process.reason and not self._is_closed
            if is_kept:
                process.idle_since = time.monotonic()
                self._idle.append(process)
        if is_kept:
            return ""
        reason = process.close(_END_SECONDS if has_ended else _WATCH_SECONDS)
        if reason != _CLOSED and not is_usable:
            self.on_end("memory" if reason == _TOTAL else reason)
        return reason

    def _watch(self) -> None:
        """End processes that take too much memory or time, and some that have no query."""
        while True:
            time.sleep(_WATCH_SECONDS)
            with self._condition:
                if not self._running and self._idle:
                    self._condition.wait(_IDLE_SECONDS)
                now = time.monotonic()
                running, surplus = list(self._running), self._surplus(now)
                if not running and not self._idle and not self._starting:
                    self._watcher = None
                    return
            for each in running:
                if now > each.end_at:
                    each.end("time")
                elif each.memory > self._memory:
                    each.end("memory")
                else:
                    each.slow_down_if_long()
            self._limit_total_memory([each for each in running if not each.reason])
            for each in surplus:
                each.close()

    def _limit_total_memory(self, running: list[_Process]) -> None:
        """End processes if all take too much memory, and note which principals must wait."""
        with self._condition:
            idle = list(self._idle)
        crowding = frozenset[str]()
        # What they share is counted several times here: the exact sizes take longer to read.
        if sum(each.memory for each in (*idle, *running)) > self._total_memory // 2:
            sizes = {each: each.own_memory for each in running}
            idle_sizes = {each: each.own_memory for each in idle}
            for each in find_excess(self._total_memory, idle_sizes, sizes):
                if each in sizes:
                    each.end(_TOTAL)
                else:
                    self._end_idle(each)
            crowding = find_crowding(self._total_memory, sizes)
        with self._condition:
            if self._crowding - crowding:
                self._condition.notify_all()
            self._crowding = crowding

    def _end_idle(self, process: _Process) -> None:
        with self._condition:
            if process not in self._idle:  # it runs a query now
                return
            self._idle.remove(process)
        process.close()

    def _surplus(self, now: float) -> list[_Process]:
        surplus: list[_Process] = []
        while len(self._idle) > self.settings.kept and (
            now - self._idle[0].idle_since > _IDLE_SECONDS
        ):
            surplus.append(self._idle.pop(0))
        return surplus

    def error_of(self, reason: str, operation: Operation) -> Exception:
        """Return the error of a query whose process ended."""
        limits = {
            "memory": f"needs more than {self._memory / GIB:.1f} GiB of memory",
            "cpu": f"takes more than {self.settings.cpu_seconds} s of processor time",
            _TOTAL: f"was ended: all queries took more than {self._total_memory / GIB:.1f} GiB of "
            "memory, and those of this principal the most",
        }
        if reason == "time":
            why = f"{operation.name} did not finish in time"
        elif reason == "cancelled":
            why = f"The client of {operation.name} disconnected"
        else:
            why = f"{operation.name} " + limits.get(reason, f"ended its process ({reason})")
        if not operation.is_read:
            return unfinished_error(why, "its outcome", may_change=True)
        if reason == _TOTAL:
            return InvalidInputError(
                f"{why}: send fewer queries at once, or ask for fewer rows or columns"
            )
        if reason in limits:
            return InvalidInputError(f"{why}: ask for fewer rows or columns, or a smaller result")
        if reason in ("time", "cancelled"):
            return ServiceUnavailableError(why)
        return InternalError(why)


@dataclass(frozen=True)
class CallerQueries:
    """Runs the queries of one request."""

    processes: QueryProcesses
    source: bytes = field(repr=False)
    """The source of the caller's namespace, as in `Query`."""
    run: Run


class _Process:
    """One process.

    Args:
        cpu_seconds: How much processor time each query may take.

    Attributes:
        end_at: When its query must have ended, on the clock of `time.monotonic`.
        owner: The principal of its query.
        run: Its query, if it has one.
        began_at: How much processor time it had taken before its query opened a table. Infinite
            until then: a new process takes time to start and to connect, which is not the query's.
        is_slow: Whether it has the lowest priority, for good: only a privileged user may raise one.
        reason: Why it was ended.
        idle_since: Since when it has no query, on the same clock.
    """

    def __init__(self, cpu_seconds: int | None) -> None:
        ours, given = socket.socketpair()
        with given:
            arguments = (given, cpu_seconds)
            self._process = _context().Process(target=serve, args=arguments, daemon=True)
            self._process.start()
        self.channel = Channel(ours)
        self.end_at = float("inf")
        self.owner = ""
        self.run: Run | None = None
        self.began_at = float("inf")
        self.is_slow = False
        self.reason = ""
        self.idle_since = 0.0
        self._lock = threading.Lock()
        self._is_closed = False

    @property
    def is_alive(self) -> bool:
        """Whether it can run a query."""
        return bool(self._process.is_alive())

    @property
    def memory(self) -> int:
        """The bytes of its memory, with those that it shares; 0 if it has ended."""
        try:
            return int(psutil.Process(self._process.pid).memory_info().rss)
        except (psutil.Error, ValueError):
            return 0

    @property
    def own_memory(self) -> int:
        """The bytes of its memory, without those that it shares; 0 as in `own_memory`."""
        try:
            return own_memory(self._process.pid)
        except ValueError:  # it is closed
            return 0

    @property
    def cpu_seconds(self) -> float:
        """The processor time that it has taken; 0 if it has ended."""
        try:
            taken = psutil.Process(self._process.pid).cpu_times()
        except (psutil.Error, ValueError):
            return 0.0
        return float(taken.user + taken.system)

    def slow_down_if_long(self) -> None:
        """Let short queries go before this one, if it has taken much processor time."""
        if self.is_slow or self.cpu_seconds - self.began_at < _LONG_SECONDS:
            return
        self.is_slow = True
        with suppress(psutil.Error, ValueError, OSError):
            slow_down(self._process.pid)

    def end(self, reason: str) -> None:
        """End it at once, unless it has ended."""
        with self._lock:
            if not self._is_closed:
                self.reason = self.reason or reason
                self._process.kill()

    def close(self, seconds: float = _WATCH_SECONDS) -> str:
        """End it, release its resources, and return why it ended.

        Args:
            seconds: How long it may take to end by itself.
        """
        self.channel.close()
        with self._lock:
            self._is_closed = True
            self._process.join(seconds)
            if self._process.exitcode is None:
                self._process.kill()
                self._process.join()
                self.reason = self.reason or _CLOSED
            code = self._process.exitcode or 0
            self._process.close()
        if not self.reason:
            is_time = -code == getattr(signal, "SIGXCPU", 0)
            self.reason = "cpu" if is_time else f"signal {-code}" if code < 0 else f"exit {code}"
        return self.reason


@dataclass
class _Exchange:
    """The messages of one query."""

    processes: QueryProcesses
    process: _Process
    active: Run
    query: Query
    upload: Any
    changes: VersionChanges
    is_released: bool = False
    lock: threading.Lock = field(default_factory=threading.Lock)

    def run(self) -> Any:
        """Send the query, and return its response or a reader of its rows."""
        is_held = False
        try:
            self.process.channel.send(Kind.QUERY, self.query)
            kind, size = self._next()
            content = pickle.loads(self.process.channel.receive_content(size))
            if kind is Kind.BEGIN:
                self._record(content)
                # The request has its answer; its client may take longer to read the rows.
                self.process.end_at = time.monotonic() + self.processes.settings.seconds
                reader = self._reader()
                if not self.active.hold(partial(self._release, is_usable=False)):
                    raise self._ended()
                is_held = True
                return reader
            self._release(is_usable=True)
            self._record(content.changes)
            if kind is Kind.ERROR:
                raise self._failure(content)
            return content.value
        except ChannelClosedError:
            raise self._ended() from None
        finally:
            if not is_held:
                self._release(is_usable=False)

    def _reader(self) -> pa.RecordBatchReader:
        file = _RowsFile(self._next_rows, self.process.channel)
        batches = _Batches(file, lambda: self._release(is_usable=False))
        return pa.RecordBatchReader.from_batches(batches.schema, batches)

    def _next_rows(self) -> int:
        """Return the size of the next piece of rows, or 0 at the end of the query."""
        try:
            kind, size = self._next()
            if kind is Kind.ROWS:
                return size
            content = pickle.loads(self.process.channel.receive_content(size))
        except ChannelClosedError:
            raise self._ended() from None
        self._release(is_usable=True)
        if kind is Kind.ERROR:
            raise self._failure(content)
        return 0

    def _next(self) -> tuple[Kind, int]:
        """Return the head of the next message that is about the result."""
        while True:
            kind, size = self.process.channel.receive_head()
            if kind is Kind.READ:
                self._send_piece(pickle.loads(self.process.channel.receive_content(size)))
            elif kind is Kind.LOG:
                record = pickle.loads(self.process.channel.receive_content(size))
                logging.getLogger(record["name"]).handle(logging.makeLogRecord(record))
            elif kind is Kind.OPENED:
                self._note_opened()
            else:
                return kind, size

    def _note_opened(self) -> None:
        if self.active.needs_catalog():  # else it opens a table once more
            self.active.note_opened()
            self.process.began_at = self.process.cpu_seconds

    def _send_piece(self, size: int) -> None:
        try:
            parts = self.upload.read_parts(size)
        except Exception as error:  # noqa: BLE001 - the process raises it where it reads
            self.process.channel.send(Kind.ERROR, error)
        else:
            self.process.channel.send_parts(Kind.PIECE, parts)

    def _record(self, changes: VersionChanges) -> None:
        self.changes.update(changes)
        self.changes.read = changes.read

    def _failure(self, failure: Failure) -> Exception:
        if failure.trace:
            _log.error("%s failed in its process\n%s", self.query.operation.name, failure.trace)
        return failure.error

    def _ended(self) -> Exception:
        reason = self._release(is_usable=False, has_ended=True)
        operation = self.query.operation
        _log.warning("The process of %s ended: %s", operation.name, reason)
        return self.processes.error_of(reason, operation)

    def _release(self, *, is_usable: bool, has_ended: bool = False) -> str:
        with self.lock:
            if self.is_released:
                return self.process.reason
            self.is_released = True
        self.active.watch(None)
        return self.processes.release(self.process, is_usable=is_usable, has_ended=has_ended)


class _Batches:
    """The batches of a result.

    Args:
        end: Releases the process, unless the last message has. It is called at the latest when
            nothing refers to the batches any more.
    """

    def __init__(self, file: _RowsFile, end: Callable[[], object]) -> None:
        self._end = end
        self._file = file
        self._rows = pa.ipc.open_stream(file)
        self.schema = self._rows.schema

    def __iter__(self) -> Iterator[pa.RecordBatch]:
        return self

    def __next__(self) -> pa.RecordBatch:
        try:
            return self._rows.read_next_batch()
        except StopIteration:
            self._file.read(1)  # Arrow does not read beyond the end of the stream
            raise

    def __del__(self) -> None:
        self._end()


class _RowsFile:
    """The rows of a result as a file for Arrow."""

    closed = False

    def __init__(self, next_piece: Callable[[], int], channel: Channel) -> None:
        self._next_piece = next_piece
        self._channel = channel
        self._left = 0
        self._is_complete = False

    def readable(self) -> bool:
        return True

    def read(self, size: int) -> memoryview:
        """Return ``size`` bytes, or fewer at the end."""
        content = memoryview(bytearray(size))
        filled = 0
        while filled < size and not self._is_complete:
            if not self._left:
                self._left = self._next_piece()
                self._is_complete = not self._left
                continue
            end = min(size, filled + self._left)
            count = self._channel.receive_into(content[filled:end])
            filled += count
            self._left -= count
        return content[:filled]


@cache
def _context() -> Any:
    """Return the way of starting processes: a fork of a small process that has loaded Lance."""
    if "forkserver" not in multiprocessing.get_all_start_methods():
        return multiprocessing.get_context("spawn")
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(_PRELOADED)
    return context
