"""Requests to a Unity Catalog server, retried if that is safe.

Databricks' SDK is used for authentication only (`login`): it repeats changes whose reply was lost
and then reports "already exists", hides the status of errors, cannot parse the plain text with
which the open-source server confirms a delete, and does not escape names in URLs.
"""

from __future__ import annotations

import http.client
import io
import logging
import re
import socket
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any
from urllib.parse import quote

import requests
from requests.adapters import HTTPAdapter
from tenacity import (
    RetryCallState,
    Retrying,
    retry_if_exception,
    stop_after_attempt,
    stop_before_delay,
    wait_random_exponential,
)
from urllib3.connection import HTTPConnection, HTTPSConnection
from urllib3.connectionpool import HTTPConnectionPool, HTTPSConnectionPool

from lance_bridge.attempts import attempt_seconds, connect_within_attempt, within_attempt
from lance_bridge.forks import restart_in_children

from .config import UnityConfig
from .errors import ErrorReply, LostReply
from .login import Access, Login

logger = logging.getLogger(__name__)

Json = dict[str, Any]

_CONNECTIONS = 32
_SHOWN = 200
_PREFIXES = re.compile(
    r"^(?:.*?(?:\(host=.*?\)|object at 0x\w+>): )?(?:Failed to establish a new connection: )?"
    r"(?:\[Errno -?\d+\] )?"
)
"""The beginning of urllib3's messages: objects and numbers that mean nothing to users."""
_backoff = wait_random_exponential(multiplier=0.1, max=5)


def route(collection: str, *names: str) -> str:
    """Return the path of an object below the API's path, with its names escaped."""
    return f"/{collection}/{quote('.'.join(names), safe='')}"


@dataclass(frozen=True)
class _Request:
    """A request; the response to a ``silent`` one is not read."""

    method: str
    path: str
    query: Mapping[str, str] | None = None
    body: Json | None = None
    change: bool = False
    silent: bool = False


class Client:
    """Sends requests; safe to share between threads and across a fork.

    Every method raises LostReply, ErrorReply, and UnauthenticatedError without valid credentials.
    A `path` is relative to the server's address.
    """

    def __init__(self, config: UnityConfig) -> None:
        self._config = config
        self._login = Login(config)
        self._timeout = (config.connect_timeout, config.read_timeout)
        self.restart_in_child()
        restart_in_children(self)

    def restart_in_child(self) -> None:
        """Implement `Restartable`: on a shared connection, a process could read another's reply."""
        self._lock = threading.Lock()
        self._session: requests.Session | None = None

    def get(self, path: str, query: Mapping[str, str] | None = None) -> Json:
        """Send a GET request; retried within the configured limits."""
        return self._send_with_retries(_Request("GET", path, query=query), _may_retry_read)

    def ask(self, path: str, body: Json) -> Json:
        """Send a POST request that changes nothing; retried like :meth:`get`."""
        return self._send_with_retries(_Request("POST", path, body=body), _may_retry_read)

    def change(
        self, method: str, path: str, body: Json | None = None, *, silent: bool = False
    ) -> Json:
        """Send a request that changes something; retried only if the server did nothing.

        Args:
            silent: Whether to ignore the content of the response, which may be plain text.
        """
        request = _Request(method, path, body=body, change=True, silent=silent)
        return self._send_with_retries(request, _may_retry_change)

    def pages(self, path: str, key: str, query: Mapping[str, str]) -> Iterator[Json]:
        """Yield the rows of all pages. Databricks may send an empty page before the last."""
        parameters = {**query, "max_results": "0"}  # as many as the server allows
        while True:
            reply = self.get(path, parameters)
            rows = reply.get(key) or []
            if not isinstance(rows, list):
                raise LostReply(f"'{key}' is not a list in the reply", sent=True, change=False)
            yield from (row for row in rows if isinstance(row, dict))
            token = reply.get("next_page_token")
            if not token:
                return
            if token == parameters.get("page_token"):
                raise LostReply("the server repeats a page without end", sent=True, change=False)
            parameters["page_token"] = str(token)

    def close(self) -> None:
        """Close connections; the next request opens new ones."""
        with self._lock:
            session, self._session = self._session, None
        if session is not None:
            session.close()

    def _send_with_retries(self, request: _Request, may: Callable[[BaseException], bool]) -> Json:
        retries = self._config.max_retries if attempt_seconds() is None else 0
        retrying = Retrying(
            retry=retry_if_exception(may),
            stop=stop_after_attempt(1 + retries) | stop_before_delay(self._config.retry_timeout),
            wait=_wait_seconds,
            before_sleep=self._warn_unreachable,
            reraise=True,
        )
        return retrying(self._send_authenticated, request)

    def _warn_unreachable(self, state: RetryCallState) -> None:
        """Log, once per request, that the server accepts no connection."""
        error = state.outcome.exception() if state.outcome else None
        if state.attempt_number == 1 and isinstance(error, LostReply) and not error.was_sent:
            logger.warning(
                "Unity Catalog cannot be reached (%s); trying again up to %d times, for up to %g s "
                "(max_retries, retry_timeout)",
                error, self._config.max_retries, self._config.retry_timeout,
            )  # fmt: skip

    def _send_authenticated(self, request: _Request) -> Json:
        """Send a request; repeat it with new credentials if they have expired."""
        access = self._login.access()
        try:
            return self._send(request, access)
        except ErrorReply as error:
            if not error.is_unauthenticated:
                raise
            renewal = self._login.renew(access)
            if not renewal.changed:
                error.advice = renewal.advice
                raise
        try:
            return self._send(request, self._login.access())
        except ErrorReply as error:
            if error.is_unauthenticated:
                error.advice = renewal.advice
            raise

    def _send(self, request: _Request, access: Access) -> Json:
        change = request.change
        connect, read = self._timeout
        timeout = (connect_within_attempt(connect), within_attempt(read))
        _attempt.is_sent = False
        try:
            response = self._connections().request(
                request.method,
                access.address + request.path,
                params=request.query,
                json=request.body,
                headers={"Accept": "application/json", **access.headers},
                timeout=timeout,
                # A redirected POST would become a GET.
                allow_redirects=False,
            )
        except requests.RequestException as error:
            raise _to_lost_reply(error, access.address, change=change) from error
        if not 200 <= response.status_code < 300:
            raise _to_error_reply(response, change=change)
        if request.silent or response.status_code == 204:
            return {}
        return _parse_json(response, change=change)

    def _connections(self) -> requests.Session:
        with self._lock:
            if self._session is None:
                self._session = new_session()
            return self._session


def _may_retry_read(error: BaseException) -> bool:
    return isinstance(error, LostReply) or (isinstance(error, ErrorReply) and error.is_transient)


def _may_retry_change(error: BaseException) -> bool:
    if isinstance(error, LostReply):
        return not error.may_have_changed
    return isinstance(error, ErrorReply) and error.is_throttled


def _wait_seconds(state: RetryCallState) -> float:
    error = state.outcome.exception() if state.outcome else None
    return max(_backoff(state), error.retry_after if isinstance(error, ErrorReply) else 0.0)


def _to_lost_reply(error: requests.RequestException, address: str, *, change: bool) -> LostReply:
    reason = getattr(error.args[0], "reason", None) if error.args else None  # urllib3's error
    text = _PREFIXES.sub("", str(reason or error))[:_SHOWN]
    return LostReply(f"{address}: {text}", sent=_attempt.is_sent, change=change)


def _parse_json(response: requests.Response, *, change: bool) -> Json:
    try:
        content = response.json()
    except ValueError:
        content = None
    if not isinstance(content, dict):
        raise LostReply("the reply is not a JSON object", sent=True, change=change)
    return content


def _to_error_reply(response: requests.Response, *, change: bool) -> ErrorReply:
    """Return the error in a response. Raises LostReply if it cannot be read."""
    status = response.status_code
    if status < 400:
        text = f"redirects to {response.headers.get('Location', 'nowhere')}: set host to that"
        return ErrorReply(status, "", text, change=change)
    if response.headers.get("Content-Type", "").startswith("application/json"):
        content = _parse_json(response, change=change)
    else:
        content = {"message": response.text}
    delta = content.get("error")
    if isinstance(delta, dict):
        content = {"error_code": delta.get("type"), "message": delta.get("message")}
    after = response.headers.get("Retry-After", "")
    return ErrorReply(
        status,
        str(content.get("error_code") or ""),
        str(content.get("message") or ""),
        change=change,
        retry_after=float(after) if after.isdecimal() else 0.0,
    )


# -- sessions that know whether a request was sent, and with a deadline for each response: the
# -- timeout of a socket restarts with every byte


class _Attempt(threading.local):
    """Whether this thread's request may have reached the server.

    The type of an error does not tell: an SSLError can be about the reply, and urllib3 raises
    ProxyError if a connection through a proxy ends after the request was sent.
    """

    is_sent = False


_attempt = _Attempt()


def new_session() -> requests.Session:
    """Return a session without credentials and retries.

    A response may take as long as the read timeout, from its first byte to its last.
    """
    session = requests.Session()
    session.auth = lambda request: request  # otherwise a .netrc would replace the header
    for scheme in ("http://", "https://"):
        session.mount(scheme, _Adapter(pool_maxsize=_CONNECTIONS, max_retries=0))
    return session


class _Adapter(HTTPAdapter):
    def init_poolmanager(self, *args: Any, **kwargs: Any) -> None:
        super().init_poolmanager(*args, **kwargs)
        self.poolmanager.pool_classes_by_scheme = _POOLS

    def proxy_manager_for(self, *args: Any, **kwargs: Any) -> Any:
        manager = super().proxy_manager_for(*args, **kwargs)
        manager.pool_classes_by_scheme = _POOLS
        return manager


class _Stream(io.RawIOBase):
    """Reads from a socket until its timeout has passed, counted from the stream's creation."""

    def __init__(self, connection: socket.socket, raw: io.RawIOBase) -> None:
        self._socket = connection
        self._raw = raw
        seconds = connection.gettimeout()
        self._deadline = None if seconds is None else time.monotonic() + seconds

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int | None:
        if self._deadline is not None:
            left = self._deadline - time.monotonic()
            if left <= 0:
                raise TimeoutError("timed out while reading a response")
            self._socket.settimeout(left)
        return self._raw.readinto(buffer)

    def close(self) -> None:
        self._raw.close()
        super().close()


class _Response(http.client.HTTPResponse):
    def __init__(self, sock: socket.socket, *args: Any, **kwargs: Any) -> None:
        super().__init__(sock, *args, **kwargs)
        self.fp = io.BufferedReader(_Stream(sock, self.fp.detach()))


class _Http(HTTPConnection):
    response_class = _Response

    def endheaders(self, *args: Any, **kwargs: Any) -> None:
        """Connect if there is no connection, and send the request."""
        if self.sock is None:
            self.connect()
        _attempt.is_sent = True
        super().endheaders(*args, **kwargs)


class _Https(_Http, HTTPSConnection):
    pass


class _HttpPool(HTTPConnectionPool):
    ConnectionCls = _Http


class _HttpsPool(HTTPSConnectionPool):
    ConnectionCls = _Https


_POOLS = {"http": _HttpPool, "https": _HttpsPool}
