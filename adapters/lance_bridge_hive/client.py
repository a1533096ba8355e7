"""Calls to a metastore, over one pool of connections.

Calls use the bindings that the configuration requires. Each connection of the pool is lent to one
thread at a time; calls are retried if that is allowed.
"""

from __future__ import annotations

import logging
import struct
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Any, TypeVar

import hmsclient.genthrift.hive_metastore.ttypes as hms_types
from lance_namespace.errors import LanceNamespaceError, ServiceUnavailableError
from tenacity import (
    Retrying,
    retry_if_exception,
    stop_after_attempt,
    stop_before_delay,
    wait_random,
)
from thrift.protocol.TProtocol import TProtocolException
from thrift.Thrift import TApplicationException, TException
from thrift.transport.TTransport import TTransportException

from lance_bridge.attempts import attempt_seconds
from lance_bridge.errors import unsupported
from lance_bridge.forks import restart_in_children

from .config import Endpoint, HiveConfig
from .connection import Connection, open_connection
from .errors import (
    AttemptFailed,
    Fault,
    classify_call_error,
    classify_opening_error,
    is_vanished_row,
    retry,
    translate_errors,
)
from .sockets import tls_context

T = TypeVar("T")
logger = logging.getLogger(__name__)

_MAX_READS = 10
"""Attempts at a read while rows are being deleted; each attempt meets fewer of them."""
_LONGEST_PAUSE = 0.2


class Calls:
    """Sends calls by name. Raises Thrift errors unchanged."""

    def __init__(self, config: HiveConfig, pool: ClientPool | None = None) -> None:
        self._config = config
        self.pool = pool or ClientPool(config)
        self._has_catalogs = False
        self._retrying = Retrying(
            retry=retry_if_exception(is_vanished_row),
            stop=stop_after_attempt(_MAX_READS) | stop_before_delay(config.retry_timeout),
            wait=wait_random(0, _LONGEST_PAUSE),
            reraise=True,
        )

    @property
    def types(self) -> Any:
        """The bindings in use: hmsclient's, or pymetastore's with catalogs."""
        if not self._config.catalog_levels:
            return hms_types
        from pymetastore.hive_metastore import ttypes  # noqa: PLC0415 - large, and seldom needed

        return ttypes

    def close(self) -> None:
        """Close all connections."""
        self.pool.close()

    def read(self, name: str, operation: Callable[[Any], T]) -> T:
        """Make a read-only call, which may be retried.

        It is also retried, within ``client.retry-timeout``, if a row was deleted while the
        metastore read it.
        """
        result: T = self._retrying(self._call, name, operation, repeatable=True)
        return result

    def change(self, name: str, operation: Callable[[Any], T]) -> T:
        """Make a call that changes something. Raises OutcomeUnknownError if its reply is lost."""
        return self._call(name, operation, repeatable=False)

    def _call(self, name: str, operation: Callable[[Any], T], *, repeatable: bool) -> T:
        if not self._config.catalog_levels:
            return self.pool.call(lambda c: operation(c.hms), name=name, repeatable=repeatable)
        self._require_catalogs()
        return self.pool.call(
            lambda c: _with_hmsclient_errors(operation, c.catalogs),
            name=name,
            repeatable=repeatable,
        )

    def _require_catalogs(self) -> None:
        """Raise UnsupportedOperationError for Hive 2, which ignores catalogs in requests."""
        if self._has_catalogs:
            return

        def probe(connection: Connection) -> None:
            _with_hmsclient_errors(lambda c: c.get_catalogs(), connection.catalogs)

        with translate_errors("list catalogs"):
            try:
                self.pool.call(probe, name="get_catalogs", repeatable=True)
            except TApplicationException as error:
                if error.type != TApplicationException.UNKNOWN_METHOD:
                    raise
                raise unsupported(
                    f"The metastore at {self._config.uri} is older than Hive 3 and has no "
                    "catalogs: leave out catalog_levels"
                ) from error
        self._has_catalogs = True


def _with_hmsclient_errors(operation: Callable[[Any], T], client: Any) -> T:
    """Run an operation with pymetastore's client, but raise hmsclient's errors.

    Errors of newer Thrift bindings are immutable, and contextlib sets attributes on an error that
    passes through a context manager, which would raise a TypeError.
    """
    try:
        return operation(client)
    except TApplicationException:
        raise  # an error of Thrift itself; a new one would lack its type
    except TException as error:
        error_type = getattr(hms_types, type(error).__name__, None)
        if error_type is None:
            raise
        raise error_type(message=getattr(error, "message", str(error))) from error


# -- the pool of connections -----------------------------------------------------------------------

_FAILURE_SECONDS = 10.0
"""How long a failed endpoint is tried last, in seconds."""
_OPENING_ERRORS = (TException, OSError, EOFError, ValueError, struct.error)
_BREAKING_ERRORS = (TTransportException, TApplicationException, TProtocolException)


class ClientPool:
    """Up to ``client.pool-size`` connections to the metastores of one configuration.

    Opens nothing before the first call. Safe to share between threads; after a fork, the child
    starts with no connections.
    """

    def __init__(self, config: HiveConfig) -> None:
        """Raises InvalidInputError if a file of ``tls.*`` is unusable."""
        self._config = config
        self._secrets = config.renewal
        self._endpoints = config.endpoints
        self._tls = tls_context(config)
        self._generation = 0
        self._start()
        restart_in_children(self)

    def __repr__(self) -> str:
        return f"ClientPool({self.describe()})"

    def describe(self) -> str:
        """Return the URIs, comma-separated, without secrets."""
        return ",".join(map(str, self._endpoints))

    def call(self, operation: Callable[[Connection], T], *, name: str, repeatable: bool) -> T:
        """Run ``operation`` on a connection and return its result.

        ``name`` is the name of the call, for messages. A ``repeatable`` operation is retried for
        ``client.retry-timeout`` if the connection fails. Others are retried only if the request
        cannot have reached a metastore.

        Takes at most ``client.retry-timeout`` plus, for the last attempt, ``client.timeout`` (wait
        for a free connection), ``client.connect-timeout`` for each URI, and ``client.timeout`` for
        each Thrift call in ``operation``. In `lance_bridge.attempts.one_attempt`, it is attempted
        once, and needs no free connection of the pool.

        Raises:
            OutcomeUnknownError: it is not repeatable, was sent, and the reply was lost.
            ServiceUnavailableError: no metastore answered in time.
            UnauthenticatedError: no metastore accepts these credentials.
            PermissionDeniedError: HTTP status 403.
            TException: What the metastore declares, and TApplicationException, unchanged.
        """
        started = time.monotonic()
        try:
            # Most calls end here. The retries below cost as much as a fast call.
            return self._attempt(operation, repeatable)
        except AttemptFailed as failed:
            first = failed
        seconds = self._config.retry_timeout
        if attempt_seconds() is not None:
            seconds = 0.0
            self.close()  # idle connections may be broken in the same way
        try:
            attempt = partial(self._attempt, operation, repeatable)
            return retry(attempt, first, name, started, seconds)
        finally:
            # Its traceback refers to this frame: the cycle would keep the connections of a
            # discarded pool open until garbage collection.
            del first

    def close(self) -> None:
        """Close idle connections now, and lent ones when they are returned. Can be reused."""
        with self._lock:
            self._generation += 1
            idle = list(self._idle)
            self._idle.clear()
        for connection in idle:
            connection.close()

    # ---------------------------------------------------------------------------------------------

    def _start(self) -> None:
        self._lock = threading.Lock()
        self._slots = FairSlots(self._config.pool_size)
        self._idle: deque[Connection] = deque()
        self._failover = Failover(self._endpoints)

    def restart_in_child(self) -> None:
        """Implement `lance_bridge.forks.Restartable`."""
        # The parent still uses these connections: two processes on one would mix up replies.
        # Closing the child's copies of the descriptors does not affect the server.
        inherited = self._idle
        self._generation += 1
        self._start()
        for connection in inherited:
            connection.close()

    def _attempt(self, operation: Callable[[Connection], T], repeatable: bool) -> T:
        """Make one attempt, and another one with new secrets if a metastore refuses the old."""
        try:
            return self._attempt_once(operation, repeatable)
        except AttemptFailed as failed:
            if not failed.is_refused_login:
                raise
            renewal = self._secrets.renew(failed.login)
            if not renewal.changed:
                failed.advice = renewal.advice
                raise
        try:
            return self._attempt_once(operation, repeatable)
        except AttemptFailed as failed:
            if failed.is_refused_login:
                failed.advice = renewal.advice
            raise

    def _attempt_once(self, operation: Callable[[Connection], T], repeatable: bool) -> T:
        with self._slot():
            connection = self._acquire()
            try:
                result = operation(connection)
            except BaseException as error:
                known = self._failover.has_replied(connection.endpoint)
                fault = classify_call_error(error, connection, known=known)
                # Declared errors, and errors of the operation itself, leave the connection usable.
                intact = isinstance(error, Exception) and not isinstance(error, _BREAKING_ERRORS)
                self._release(connection, usable=intact)
                if fault is None:
                    raise
                raise self._attempt_failed(fault, connection, repeatable) from error
            self._release(connection, usable=True)
            return result

    def _attempt_failed(
        self, fault: Fault, connection: Connection, repeatable: bool
    ) -> AttemptFailed:
        self._failover.record_failure(connection.endpoint)
        refused = fault.refused and not connection.was_answered
        sent = connection.request_was_sent and not refused
        unknown = sent and not repeatable
        return AttemptFailed([(connection.endpoint, fault)], connection.login, unknown=unknown)

    @contextmanager
    def _slot(self) -> Iterator[None]:
        if attempt_seconds() is not None:
            yield
            return
        slots = self._slots
        if not slots.acquire(timeout=self._config.timeout):
            raise ServiceUnavailableError(
                f"All {self._config.pool_size} connections to {self.describe()} were in use for "
                f"{self._config.timeout:g} s: raise client.pool-size, or make fewer calls at once"
            )
        try:
            yield
        finally:
            slots.release()

    def _acquire(self) -> Connection:
        """Return the usable connection that was used last, or a new one."""
        login = self._secrets.config
        while True:
            with self._lock:
                connection = self._idle.pop() if self._idle else None
                generation = self._generation
            if connection is None:
                return self._open(login, generation).lend()
            # Over HTTP, each request has the token that the connection was opened with.
            if connection.login is login and connection.is_usable(self._config.idle_timeout):
                return connection.lend()
            connection.close()

    def _open(self, login: HiveConfig, generation: int) -> Connection:
        faults: list[tuple[Endpoint, Fault]] = []
        for endpoint in self._failover.candidates():
            try:
                opened = open_connection(endpoint, login, self._tls, generation)
            except LanceNamespaceError:
                raise
            except _OPENING_ERRORS as error:
                self._failover.record_failure(endpoint)
                known = self._failover.has_replied(endpoint)
                faults.append((endpoint, classify_opening_error(error, endpoint, known=known)))
                cause = error
            else:
                self._failover.record_success(endpoint)
                return opened
        raise AttemptFailed(faults, login, unknown=False, unreachable=True) from cause

    def _release(self, connection: Connection, *, usable: bool) -> None:
        if usable and connection.first_bytes:
            self._failover.record_reply(connection.endpoint)
        if usable and connection.is_idle:
            connection.give_back()
            with self._lock:
                if connection.generation == self._generation:
                    self._idle.append(connection)
                    return
        connection.close()


class Failover:
    """The endpoints of one pool and their last results. Safe to share between threads."""

    def __init__(self, endpoints: Sequence[Endpoint]) -> None:
        self._lock = threading.Lock()
        self._order = list(endpoints)
        self._failed: dict[Endpoint, float] = {}
        self._replied: set[Endpoint] = set()

    def candidates(self) -> list[Endpoint]:
        """Return all endpoints: the last that was reached first, recent failures last."""
        now = time.monotonic()
        with self._lock:
            return sorted(
                self._order,
                key=lambda e: now - self._failed.get(e, -_FAILURE_SECONDS) < _FAILURE_SECONDS,
            )

    def record_success(self, endpoint: Endpoint) -> None:
        """Record that ``endpoint`` was reached: it is tried first from now on."""
        with self._lock:
            self._failed.pop(endpoint, None)
            if self._order[0] != endpoint:
                self._order.remove(endpoint)
                self._order.insert(0, endpoint)

    def record_reply(self, endpoint: Endpoint) -> None:
        """Record that ``endpoint`` replied to a call."""
        with self._lock:
            self._replied.add(endpoint)

    def has_replied(self, endpoint: Endpoint) -> bool:
        """Return True if ``endpoint`` ever replied to a call, so that the settings fit it."""
        with self._lock:
            return endpoint in self._replied

    def record_failure(self, endpoint: Endpoint) -> None:
        """Record that ``endpoint`` failed."""
        with self._lock:
            self._failed[endpoint] = time.monotonic()


class FairSlots:
    """A semaphore that serves waiting threads in order.

    With `threading.Semaphore`, threads that call without a pause get a slot again at once, while
    other threads wait for seconds.
    """

    def __init__(self, count: int) -> None:
        self._free = count
        self._lock = threading.Lock()
        self._waiting: deque[threading.Lock] = deque()

    def acquire(self, timeout: float) -> bool:
        """Take a slot within ``timeout`` seconds; return False if none became free."""
        with self._lock:
            if self._free:
                self._free -= 1
                return True
            turn = threading.Lock()
            turn.acquire()
            self._waiting.append(turn)
        try:
            acquired = turn.acquire(timeout=timeout)
        except BaseException:
            # For example Ctrl-C: pass a slot that was just assigned to the next thread.
            if not self._stop_waiting(turn):
                self.release()
            raise
        return acquired or not self._stop_waiting(turn)

    def _stop_waiting(self, turn: threading.Lock) -> bool:
        """Stop waiting; return False if a slot was just assigned."""
        with self._lock:
            if turn in self._waiting:
                self._waiting.remove(turn)
                return True
            return False

    def release(self) -> None:
        """Assign the slot to the thread that has waited longest, or mark it as free."""
        with self._lock:
            if self._waiting:
                self._waiting.popleft().release()
            else:
                self._free += 1
