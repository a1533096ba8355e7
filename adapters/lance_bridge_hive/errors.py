"""Errors of a metastore and of connections to it: their translation, and which calls are retried.

Hive has few error types, and the meaning of most depends on the call that raised them. `catalog.py`
handles those; this module translates all others. A failure of the connection is classified by what
a caller can do about it, and some of them are retried. What the metastore itself returns is no such
failure: `Calls` retries some of that.
"""

from __future__ import annotations

import logging
import re
import ssl
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TypeVar

from lance_namespace.errors import (
    ConcurrentModificationError,
    InternalError,
    LanceNamespaceError,
    PermissionDeniedError,
    ServiceUnavailableError,
    UnauthenticatedError,
    UnsupportedOperationError,
)
from tenacity import Retrying, retry_if_exception, stop_before_delay, wait_exponential, wait_random
from thrift.protocol.TProtocol import TProtocolException
from thrift.Thrift import TApplicationException, TException
from thrift.transport.TTransport import TTransportException

from lance_bridge.errors import OutcomeUnknownError, invalid, reason_in

from .config import Endpoint, HiveConfig, Scheme
from .connection import Connection, HttpRefused, ReplyMismatch
from .sasl import SaslRefused
from .sockets import describe

T = TypeVar("T")

logger = logging.getLogger(__name__)

_NO_FILE_SYSTEM = re.compile(r"No FileSystem for scheme:? ?\"?(\w+)")
_REFUSED = re.compile(r"permission denied|AccessControlException|not authorized", re.I)
_BAD_INPUT = re.compile(
    # Locations that are no valid path or host, or where no directory can be created.
    r"managed warehouse|is not a directory or unable to create one|ParentNotDirectoryException"
    r"|FileAlreadyExistsException|Unable to create database path|Failed to create external path"
    r"|Can not create a Path from|URISyntaxException|UnknownHostException|Wrong FS:"
    # Properties of tables in Hive's own format.
    r"|ACID compliant format",
    re.I,
)
_PARAMETERS_NOT_STORED = re.compile(r"\bTABLE_PARAMS\b|too long|truncation", re.I)
_ALWAYS_STORED = 4000
"""The length of a parameter's value that every database schema of Hive can store."""
_VANISHED_ROW = re.compile(
    # DataNucleus, if another transaction deleted the row of an object after a query found it:
    # releases 4 and 5 (Hive up to 4.0), release 6, and class names, which any release may print.
    r"No such database row"
    r"|Object with id \".*\" not found|No such object (?:for id|\(identity)"
    r"|(?:JDO|Nucleus)ObjectNotFoundException"
)
_CONFLICT = re.compile(
    # Conflicts of two transactions in PostgreSQL, MySQL, Oracle and Derby.
    r"deadlock|lock wait timeout|lock could not be obtained|could not serialize"
    r"|duplicate (?:key|entry)|unique constraint",
    re.I,
)
_BAD_REQUEST = {"InvalidObjectException", "InvalidInputException", "InvalidOperationException"}


def name_of(error: BaseException) -> str:
    """Return the Thrift name of an error, whose class differs between the bindings."""
    return type(error).__name__


def is_a(error: BaseException, *names: str) -> bool:
    """Return True if an error has one of these Thrift names."""
    return name_of(error) in names


def text_of(error: BaseException) -> str:
    """Return the reason in the metastore's message."""
    return reason_in(_whole_text(error))


def _whole_text(error: BaseException) -> str:
    return str(getattr(error, "message", None) or error).strip()


def is_vanished_row(error: BaseException) -> bool:
    """Return True if another transaction deleted a row that the metastore was reading."""
    return is_a(error, "MetaException") and bool(_VANISHED_ROW.search(_whole_text(error)))


@contextmanager
def map_errors(errors: Mapping[str, LanceNamespaceError]) -> Iterator[None]:
    """Raise the errors that errors of the metastore mean for this call; others pass.

    Args:
        errors: What to raise, by the Thrift name of the metastore's error.
    """
    try:
        yield
    except TException as error:
        meant = errors.get(name_of(error))
        if meant is None:
            raise
        raise meant from error


@contextmanager
def translate_errors(what: str) -> Iterator[None]:
    """Translate every Thrift error to one of the library.

    Args:
        what: The action, with its object: "create table 'db.t'".
    """
    try:
        yield
    except TApplicationException as error:
        if error.type == TApplicationException.UNKNOWN_METHOD:
            raise UnsupportedOperationError(
                f"The metastore lacks a call that is required to {what}: {text_of(error)}"
            ) from error
        raise InternalError(f"The metastore failed to {what}: {text_of(error)}") from error
    except TException as error:
        raise _classify(error, what) from error


def _classify(error: TException, what: str) -> Exception:
    text = text_of(error)
    scheme = _NO_FILE_SYSTEM.search(text)
    if scheme:
        return UnsupportedOperationError(
            f"The metastore cannot {what}: it has no file system for '{scheme[1]}://'. Its "
            f"administrator must add the Hadoop connector for {scheme[1]} to its class path"
        )
    if _REFUSED.search(text):
        return PermissionDeniedError(f"The metastore refused to {what}: {text}")
    is_conflict = is_a(error, "MetaException") and _CONFLICT.search(_whole_text(error))
    if is_vanished_row(error) or is_conflict:
        return ConcurrentModificationError(
            f"The metastore could not {what}: its entries were modified concurrently; "
            f"reload them and retry ({text})"
        )
    if name_of(error) in _BAD_REQUEST or _BAD_INPUT.search(_whole_text(error)):
        return invalid(f"The metastore cannot {what}: {text}")
    return InternalError(f"The metastore failed to {what}: {name_of(error)}: {text}")


def refuse_long_values(error: TException, parameters: Mapping[str, str]) -> None:
    """Raise InvalidInputError if a value was too long for the metastore's own database.

    The limit depends on the release and the database, so only a failure reveals it.
    """
    longest = max(parameters, key=lambda key: len(parameters[key]), default=None)
    if longest is None or len(parameters[longest]) <= _ALWAYS_STORED:
        return
    if _PARAMETERS_NOT_STORED.search(_whole_text(error)):
        raise invalid(
            f"The value of property {longest[:60]!r} has {len(parameters[longest])} characters, "
            f"which is more than the metastore can store"
        ) from error


# -- retries of calls that fail --------------------------------------------------------------------

_FIRST_PAUSE, _LONGEST_PAUSE = 0.05, 2.0
_TOO_LARGE = "its reply has, or announces, a size that client.max-message-size does not allow"
_NO_ANSWER = (
    "The metastore did not respond",
    "Try again, or check that it runs and that uri has its address",
)
_UNUSABLE = ("The metastore cannot be used", "")
_WHAT_FAILED: dict[type[LanceNamespaceError], tuple[str, str]] = {
    UnauthenticatedError: ("The metastore refused the credentials", ""),
    PermissionDeniedError: ("The metastore denied access", ""),
}
"""What the message of an error begins with, and what it advises."""
_HINTS: dict[Scheme, str] = {
    "thrift": "do client.framed, tls.enabled and auth.mechanism fit this metastore?",
    "http": "is it a metastore's HTTP transport, without TLS?",
    "https": "is it a metastore's HTTP transport?",
}


@dataclass(frozen=True)
class Fault:
    """A failure of the connection, not of the call.

    ``permanent``: another attempt would fail in the same way. ``refused``: the server rejected the
    call before it did anything. ``advises``: the text says what to check.
    """

    text: str
    error: type[LanceNamespaceError] = ServiceUnavailableError
    permanent: bool = False
    refused: bool = False
    advises: bool = False


class AttemptFailed(Exception):
    """One attempt at a call found no connection, or lost it.

    ``login``: the configuration with the secrets that it used. ``unreachable``: no metastore
    accepted a connection. ``advice`` is a sentence for the message.
    """

    def __init__(
        self,
        faults: list[tuple[Endpoint, Fault]],
        login: HiveConfig,
        *,
        unknown: bool,
        unreachable: bool = False,
    ) -> None:
        super().__init__()
        self.faults = faults
        self.login = login
        self.advice = ""
        self.unreachable = unreachable
        self.unknown = unknown
        self.again = not unknown and not all(fault.permanent for _, fault in faults)

    @property
    def is_refused_login(self) -> bool:
        """True if a metastore refused the credentials, and none did anything."""
        refused = any(fault.error is UnauthenticatedError for _, fault in self.faults)
        return refused and not self.unknown


def retry(
    attempt: Callable[[], T], first: AttemptFailed, name: str, started: float, seconds: float
) -> T:
    """Repeat a call whose first attempt failed, until ``seconds`` after it was started.

    A call that may not be repeated, and one that every metastore will refuse, is not.
    """
    left = seconds - (time.monotonic() - started)
    if not first.again or left <= 0:
        raise _final_error(name, first, 1, started) from first.__cause__
    warn = _unreachable_warning(seconds)
    warn(first)
    attempts = Retrying(
        retry=retry_if_exception(lambda e: isinstance(e, AttemptFailed) and e.again),
        before_sleep=lambda state: warn(state.outcome.exception() if state.outcome else None),
        stop=stop_before_delay(left),
        wait=wait_exponential(_FIRST_PAUSE, _LONGEST_PAUSE) + wait_random(0, _FIRST_PAUSE),
        reraise=True,
    )
    try:
        return attempts(attempt)
    except AttemptFailed as failed:
        tried = 1 + attempts.statistics["attempt_number"]
        raise _final_error(name, failed, tried, started) from failed.__cause__


def _unreachable_warning(seconds: float) -> Callable[[BaseException | None], None]:
    """Return a function that logs, once, that no metastore can be reached.

    Connections that a restart of the metastore closed are replaced silently.
    """
    logged = False

    def warn(failed: BaseException | None) -> None:
        nonlocal logged
        if logged or not (isinstance(failed, AttemptFailed) and failed.unreachable):
            return
        logged = True
        logger.warning(
            "The metastore cannot be reached (%s); trying again for up to %g s "
            "(client.retry-timeout)",
            _causes(failed), seconds,
        )  # fmt: skip

    return warn


def _final_error(
    name: str, failed: AttemptFailed, tried: int, started: float
) -> LanceNamespaceError:
    causes, elapsed = _causes(failed), time.monotonic() - started
    logger.debug("%s failed, tried %d times in %.1f s: %s", name, tried, elapsed, causes)
    if failed.unknown:
        return OutcomeUnknownError(
            f"A change ({name}) was sent to the metastore and its reply was lost, so it may have "
            f"happened or not: {causes}"
        )
    types = [fault.error for _, fault in failed.faults]
    error_type = next(
        (t for t in types if t is not ServiceUnavailableError), ServiceUnavailableError
    )
    what, advice = _WHAT_FAILED.get(error_type, _NO_ANSWER)
    if error_type is ServiceUnavailableError and not failed.again:
        what, advice = _UNUSABLE
    elif any(fault.advises for _, fault in failed.faults):
        advice = ""
    if what == _NO_ANSWER[0] and (tried > 1 or elapsed >= 1):
        what = f"{what} within {elapsed:.1f} s"
    return error_type(". ".join(filter(None, [f"{what}: {causes}", failed.advice or advice])))


def _causes(failed: AttemptFailed) -> str:
    return "; ".join(f"{endpoint}: {fault.text}" for endpoint, fault in failed.faults)


# -- failures of a connection ------------------------------------------------------------------


def classify_opening_error(error: Exception, endpoint: Endpoint, *, known: bool) -> Fault:
    """Classify an error of opening a connection.

    ``known``: ``endpoint`` has replied before, with the same settings.
    """
    if isinstance(error, SaslRefused):
        return Fault(str(error.message), UnauthenticatedError, permanent=True)
    if isinstance(error, OSError):
        return _os_fault(error, endpoint)
    if isinstance(error, TTransportException):
        return _transport_fault(error, endpoint, known)
    if isinstance(error, TException) and not isinstance(error, TProtocolException):
        return Fault(f"set_ugi was refused: {error}", UnauthenticatedError, permanent=True)
    return Fault(f"its reply cannot be parsed ({_error_name(error)})", permanent=True)


def classify_call_error(
    error: BaseException, connection: Connection, *, known: bool
) -> Fault | None:
    """Classify an error of a call; return None if the metastore returned it.

    It returns TApplicationException and the exceptions that it declares. ``known`` as for
    :func:`classify_opening_error`.
    """
    if isinstance(error, TTransportException):
        return _transport_fault(error, connection.endpoint, known or bool(connection.first_bytes))
    if isinstance(error, ReplyMismatch):
        return Fault(str(error.message))
    if isinstance(error, TApplicationException):
        return None
    broken = isinstance(error, TProtocolException) or (
        isinstance(error, Exception) and connection.awaits_reply
    )
    if broken:
        guess = "" if connection.endpoint.is_http else _guess_server(connection.first_bytes)
        too_large = _TOO_LARGE if isinstance(error, OverflowError) else ""
        undecodable = f"its reply cannot be decoded ({_error_name(error)})"
        return Fault(guess or too_large or undecodable, permanent=True)
    return None


def _error_name(error: BaseException) -> str:
    return getattr(error, "message", None) or type(error).__name__


def _hint(error: TTransportException, endpoint: Endpoint) -> str:
    """Return what to check if a server has never sent anything."""
    fits = _HINTS[endpoint.scheme]
    if error.type == TTransportException.TIMED_OUT:
        return f" (is it stopped or overloaded? if not, {fits})"
    return f" ({fits})"


def _transport_fault(error: TTransportException, endpoint: Endpoint, known: bool) -> Fault:
    if isinstance(error, HttpRefused):
        return _http_fault(error)
    if isinstance(error.inner, ssl.SSLError):
        return _os_fault(error.inner, endpoint)
    if error.type in (TTransportException.SIZE_LIMIT, TTransportException.NEGATIVE_SIZE):
        return Fault(_TOO_LARGE, permanent=True)
    hint = "" if known else _hint(error, endpoint)
    return Fault(f"{error.message}{hint}", advises=not known)


def _http_fault(error: HttpRefused) -> Fault:
    text = str(error.message)
    if error.status == 401:
        return Fault(
            f"{text}: check http.token", UnauthenticatedError, permanent=True, refused=True
        )
    if error.status == 403:
        return Fault(text, PermissionDeniedError, permanent=True, refused=True)
    if error.status < 500 and error.status not in (408, 429):
        return Fault(f"{text}: check the path in uri", permanent=True, refused=True)
    return Fault(text)


def _os_fault(error: OSError, endpoint: Endpoint) -> Fault:
    if isinstance(error, ssl.SSLCertVerificationError):
        return Fault(f"{describe(error)} (check tls.ca-file and the host in uri)", permanent=True)
    if isinstance(error, ssl.SSLError):
        return _tls_fault(error, endpoint)
    return Fault(describe(error))


def _tls_fault(error: ssl.SSLError, endpoint: Endpoint) -> Fault:
    reason = (error.reason or "").upper()
    if "ALERT" in reason and ("CERT" in reason or "UNKNOWN_CA" in reason):
        text = f"it does not accept the client's certificate ({reason}): check tls.cert-file"
        return Fault(text, UnauthenticatedError, permanent=True)
    if reason in ("WRONG_VERSION_NUMBER", "RECORD_LAYER_FAILURE", "HTTP_REQUEST"):
        remedy = "write http://" if endpoint.is_http else "check tls.enabled"
        return Fault(f"it does not speak TLS: {remedy}", permanent=True)
    # With TLS 1.3 a server that rejects the certificate may close before its alert is read.
    setting = "https://" if endpoint.is_http else "tls.enabled"
    return Fault(f"{describe(error)} (check {setting} and tls.cert-file)")


def _guess_server(first: bytes) -> str:
    """Return what the first bytes of a reply reveal about the server, or an empty string."""
    if first.startswith(b"HTTP/"):
        return "it speaks HTTP, not Thrift: for Hive 4's HTTP transport write http://"
    if first[:2] == b"\x15\x03":
        return "it answers with a TLS alert: set tls.enabled=true"
    if first[:1] in (b"\x03", b"\x04") and first[1:3] == b"\0\0":
        return "it requires SASL: set auth.mechanism"
    return ""
