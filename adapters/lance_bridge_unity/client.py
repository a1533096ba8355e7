"""Requests to a Unity Catalog server: authentication, and retries if they are safe.

Databricks' SDK is used for authentication only (`Login`): it repeats changes whose reply was lost
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
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import quote

import requests
from databricks.sdk import errors as sdk_errors
from databricks.sdk.core import Config
from lance_namespace.errors import UnauthenticatedError
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
from lance_bridge.secret_renewal import Renewal

from .config import UnityConfig
from .errors import ErrorReply, LostReply

logger = logging.getLogger(__name__)

Json = dict[str, Any]

_CONNECTIONS = 32
_SHOWN = 200
_TIMED_OUT = re.compile(r"Read timed out\.(?: \(read timeout=([0-9.]+)\))?")
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
    text = _TIMED_OUT.sub(_no_reply, text)
    return LostReply(f"{address}: {text}", sent=_attempt.is_sent, change=change)


def _no_reply(timed_out: re.Match[str]) -> str:
    return f"no reply within {float(timed_out[1]):.3g} s" if timed_out[1] else "no reply in time"


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


# -- authentication --------------------------------------------------------------------------------

_SHOWN_OF_SDK = 300
_WORKSPACE_HEADER = "X-Databricks-Workspace-Id"
_CACHE_SECONDS = 1.0
"""How long credentials of the SDK are reused; they are valid for at least 40 seconds."""

_SDK_FAILURES = (OSError, ValueError, NotImplementedError, LookupError, TypeError, AttributeError)
"""What the SDK raises: OSError for its own errors, the others for unexpected replies."""
_OUTAGES = (
    requests.RequestException,
    TimeoutError,
    NotImplementedError,
    LookupError,
    TypeError,
    AttributeError,
    sdk_errors.InternalError,
    sdk_errors.TooManyRequests,
    sdk_errors.TemporarilyUnavailable,
    sdk_errors.DeadlineExceeded,
)
_OUTAGE_TEXT = re.compile(
    r"b['\"]|unknown: |unable to parse |(?:server_error|temporarily_unavailable)\b"
)
"""The beginning of the SDK's message for an error of a token server other than a refusal."""


@dataclass(frozen=True)
class Access:
    """The server's address (without a trailing slash), and the headers with credentials."""

    address: str
    headers: dict[str, str] = field(repr=False)
    config: UnityConfig | None = field(default=None, repr=False)
    """The configuration with the secrets from which the headers were made."""


class Login:
    """Provides the address and credentials. Safe to share between threads, and across a fork."""

    def __init__(self, config: UnityConfig) -> None:
        self._config = config
        self._secrets = config.renewal
        self._seconds = config.connect_timeout + config.read_timeout
        self.restart_in_child()
        restart_in_children(self)

    def restart_in_child(self) -> None:
        """Implement `Restartable`: the SDK has locks and connections of its own."""
        self._lock = threading.Lock()
        self._sdk: Config | None = None
        self._access: Access | None = None
        self._good_until = 0.0

    def access(self) -> Access:
        """Return the address and headers for a request; one thread fetches them for all.

        Raises:
            UnauthenticatedError: there are no credentials, or they are refused.
            LostReply: no server answered.
        """
        config = self._secrets.config
        if not config.uses_sdk:
            bearer = config.bearer.get_secret_value() if config.bearer else None
            headers = {"Authorization": f"Bearer {bearer}"} if bearer else {}
            return Access(self._config.address or "", headers, config)
        if not self._lock.acquire(timeout=self._seconds):
            raise self._timed_out()
        try:
            if self._access is not None and self._access.config is not self._secrets.config:
                self._access = self._sdk = None
            if self._access is None or time.monotonic() >= self._good_until:
                self._access = None
                self._access = self._authenticate_with_current_secret()
                self._good_until = time.monotonic() + _CACHE_SECONDS
            return self._access
        finally:
            self._lock.release()

    def renew(self, access: Access) -> Renewal:
        """Replace credentials that the server refused."""
        config = access.config or self._config
        if config.bearer or not config.uses_sdk:
            return self._secrets.renew(config)
        with self._lock:
            if self._access is access:  # otherwise another thread has renewed it
                self._access = self._sdk = None
        return Renewal(changed=True, advice="")

    def _authenticate_with_current_secret(self) -> Access:
        """Authenticate; read the secret again if it is refused."""
        config = self._secrets.config
        try:
            return self._authenticate(config)
        except UnauthenticatedError as error:
            renewal = self._secrets.renew(config)
            if not renewal.changed:
                raise _advise(error, renewal) from error.__cause__
        try:
            return self._authenticate(self._secrets.config)
        except UnauthenticatedError as error:
            raise _advise(error, renewal) from error.__cause__

    def _authenticate(self, config: UnityConfig) -> Access:
        """Authenticate with the SDK, within a time limit, which it lacks for tokens."""
        results: list[tuple[Config, Access]] = []
        failures: list[Exception] = []
        known = self._sdk

        def authenticate() -> None:
            try:
                sdk = known or self._sdk_config(config)
                # The configured address: the SDK removes its path.
                address = self._config.address or str(sdk.host).rstrip("/")
                headers = dict(sdk.authenticate())
                if workspace := getattr(sdk, "workspace_id", None):  # missing in older releases
                    headers[_WORKSPACE_HEADER] = workspace
                results.append((sdk, Access(address, headers, config)))
            except _SDK_FAILURES as error:
                failures.append(error)

        # A daemon: a token server that never responds must not keep the process alive.
        worker = threading.Thread(target=authenticate, name="unity-login", daemon=True)
        worker.start()
        worker.join(self._seconds)
        # Discarded after a failure: it may have wrong addresses, or still be waiting.
        self._sdk = None
        if failures:
            raise self._to_error(failures[0]) from failures[0]
        if not results:
            raise self._timed_out()
        self._sdk, access = results[0]
        return access

    def _sdk_config(self, config: UnityConfig) -> Config:
        secret = config.client_secret
        return Config(
            host=self._config.address,
            token=config.bearer.get_secret_value() if config.bearer else None,
            profile=config.profile,
            client_id=config.client_id,
            client_secret=secret.get_secret_value() if secret else None,
            # Otherwise other credentials in the environment would be an error.
            auth_type="pat" if config.bearer else "oauth-m2m" if config.client_id else None,
            http_timeout_seconds=config.read_timeout,
            # The client retries all of this; the SDK accepts whole seconds above zero.
            retry_timeout_seconds=1,
            product="lance-bridge",
        )

    def _to_error(self, error: Exception) -> Exception:
        if _is_outage(error):
            where = f" from {self._config.address}" if self._config.address else ""
            text = f"credentials could not be fetched{where}: {_text(error)}"
            return LostReply(text, sent=False, change=False)
        profile = f" of profile '{self._config.profile}'" if self._config.profile else ""
        return UnauthenticatedError(
            f"Unity Catalog's credentials{profile} are missing or not accepted: {_text(error)}. "
            "Set token, or client_id and client_secret, or profile"
        )

    def _timed_out(self) -> LostReply:
        text = f"credentials could not be fetched within {self._seconds:g} seconds"
        return LostReply(text, sent=False, change=False)


def _advise(error: UnauthenticatedError, renewal: Renewal) -> UnauthenticatedError:
    return UnauthenticatedError(f"{error}. {renewal.advice}") if renewal.advice else error


def _text(error: BaseException) -> str:
    if "Invalid URL 'None'" in str(error):
        return "the server did not say where it issues tokens"
    # The SDK then lists every setting; secrets are masked, but it is long.
    return str(error).split(". Config:")[0].split(". Env:")[0][:_SHOWN_OF_SDK]


def _is_outage(error: BaseException) -> bool:
    """Return True if a server sent no readable reply; False if it refused the credentials."""
    if isinstance(error, _OUTAGES) or _OUTAGE_TEXT.match(str(error)):
        return True
    return error.__cause__ is not None and _is_outage(error.__cause__)
