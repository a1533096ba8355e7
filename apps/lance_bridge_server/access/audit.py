"""The audit log's destinations: a file, standard output or a logger."""

from __future__ import annotations

import json
import logging
import os
import sys
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import datetime, timezone
from functools import partial
from io import TextIOWrapper
from logging.handlers import (
    BaseRotatingHandler,
    RotatingFileHandler,
    TimedRotatingFileHandler,
    WatchedFileHandler,
)
from pathlib import Path
from typing import Any, Literal

import lance_namespace as api
from lance_namespace.errors import ErrorCode, LanceNamespaceError, ServiceUnavailableError
from starlette.requests import Request
from starlette.types import Scope

from lance_bridge.errors import invalid
from lance_bridge.transaction_versions import VersionChanges, record_version_changes

from ..operations import Operation
from .authentication import Principal
from .permissions import Access, Decision

# -- log -------------------------------------------------------------------------------------------


LOGGER = "lance_bridge.audit"
"""The logger for lines that go neither to a file nor to standard output."""

Rotation = Literal["size", "daily", "external"]

_log = logging.getLogger(__name__)
_TAIL_BYTES = 256 << 10
_ROTATION = threading.Lock()
"""Held while a line is written to a file that this process rotates."""


class _Raising(logging.Handler):
    """Raises exceptions instead of printing them."""

    def handleError(self, record: logging.LogRecord) -> None:  # noqa: ARG002 - of logging
        raise  # noqa: PLE0704 - logging calls this while it handles the exception


class _File(_Raising, logging.FileHandler):
    """Creates files that the owner can read and write, and the group can read."""

    def _open(self) -> TextIOWrapper:
        opener = partial(os.open, mode=0o640)
        return open(self.baseFilename, "a", encoding=self.encoding, opener=opener)


class _RotatedFile(_File, BaseRotatingHandler):
    """Continues in the new file if another handler has rotated the file.

    After a reload, the previous gateway's handler still writes to the file. If both rotated it, the
    second one would replace the rotated file with the new, nearly empty one.
    """

    def _open(self) -> TextIOWrapper:
        stream = super()._open()
        self._opened = os.fstat(stream.fileno())
        return stream

    def emit(self, record: logging.LogRecord) -> None:
        with _ROTATION:
            if self._is_replaced():
                self._leave_file()
            super().emit(record)

    def _is_replaced(self) -> bool:
        try:
            found = os.stat(self.baseFilename)
        except FileNotFoundError:
            return True
        return not os.path.samestat(found, self._opened)

    def _leave_file(self) -> None:
        """Close the stream; logging opens the file again for the next line."""
        if self.stream is not None:
            self.stream.close()
        self.stream = None


class _SizedFile(_RotatedFile, RotatingFileHandler):
    pass


class _DailyFile(_RotatedFile, TimedRotatingFileHandler):
    def _leave_file(self) -> None:
        super()._leave_file()
        self.rolloverAt = self.computeRollover(int(time.time()))


class _WatchedFile(_File, WatchedFileHandler):
    pass


class _Stream(_Raising, logging.StreamHandler[Any]):
    pass


class AuditLog:
    """Writes lines of JSON to a logger. Safe to share between threads.

    Args:
        refuse_changes: Whether a change is refused if its line cannot be written. Otherwise the
            failure is logged and the request continues. Requests that read always continue.
        file: The file that the lines are written to, if any.
    """

    def __init__(
        self, logger: logging.Logger, *, refuse_changes: bool = False, file: Path | None = None
    ) -> None:
        self._logger = logger
        self._refuse_changes = refuse_changes
        self.file = file

    def write(self, line: Mapping[str, Any]) -> None:
        """Write a line, or log an error if that fails."""
        self._try_write(line)

    def write_before_change(self, line: Mapping[str, Any]) -> None:
        """Write a line about a change that has not been made yet.

        Raises:
            ServiceUnavailableError: (17) it was not written, and changes are refused then.
        """
        if not self._try_write(line) and self._refuse_changes:
            message = "The audit log cannot be written; nothing was changed"
            raise ServiceUnavailableError(message)

    def last_lines(self, count: int) -> list[dict[str, Any]]:
        """Return the last lines of the file, latest first, or an empty list if there is no file.

        Only the last 256 KiB of the file are read. Lines that a crash damaged are left out.

        Raises:
            ServiceUnavailableError: (17) the file cannot be read.
        """
        if self.file is None:
            return []
        try:
            with self.file.open("rb") as file:
                size = file.seek(0, os.SEEK_END)
                start = file.seek(max(0, size - _TAIL_BYTES))
                lines = file.read(_TAIL_BYTES).splitlines(keepends=True)
        except OSError as error:
            raise ServiceUnavailableError("The audit log cannot be read") from error
        # The first line may lack its start, and the last one may not be complete yet.
        whole = [each for each in lines[1 if start else 0 :] if each.endswith(b"\n")]
        found = (_parse(each) for each in reversed(whole[-count:]))
        return [each for each in found if each is not None]

    def _try_write(self, line: Mapping[str, Any]) -> bool:
        try:
            self._logger.info("%s", json.dumps(line))
        except Exception as error:  # noqa: BLE001 - a handler may raise anything
            _log.error("A line of the audit log was not written: %s", error)
            return False
        return True

    def close(self) -> None:
        """Close the file."""
        for handler in self._logger.handlers:
            handler.close()


def _parse(line: bytes) -> dict[str, Any] | None:
    """Return a line, or None if a crash left only a part of it."""
    try:
        found: dict[str, Any] = json.loads(line)
    except ValueError:
        return None
    return found


def open_audit_log(
    to: Literal["stdout", "logger"] | Path,
    *,
    rotation: Rotation = "size",
    max_bytes: int = 100 << 20,
    backups: int = 10,
    refuse_changes: bool = False,
) -> AuditLog:
    """Return an audit log.

    Args:
        to: A file, standard output, or the logger `LOGGER` with its own handlers.
        rotation: When a new file replaces the current one: before it exceeds ``max_bytes``, at
            midnight UTC, or by another program, such as logrotate. Only the last works if several
            processes write one file.
        backups: How many replaced files are kept.

    Raises:
        InvalidInputError: (13) the file cannot be opened.
    """
    if to == "logger":
        return AuditLog(logging.getLogger(LOGGER), refuse_changes=refuse_changes)
    logger = logging.Logger(LOGGER)
    try:
        logger.addHandler(_handler(to, rotation, max_bytes, backups))
    except OSError as error:
        raise invalid(f"The audit log cannot be opened: {error}") from error
    file = to if isinstance(to, Path) else None
    return AuditLog(logger, refuse_changes=refuse_changes, file=file)


def _handler(
    to: Literal["stdout"] | Path, rotation: Rotation, max_bytes: int, backups: int
) -> logging.Handler:
    if to == "stdout":
        return _Stream(sys.stdout)
    if rotation == "size":
        return _SizedFile(to, maxBytes=max_bytes, backupCount=backups, encoding="utf-8")
    if rotation == "daily":
        return _DailyFile(to, when="midnight", utc=True, backupCount=backups, encoding="utf-8")
    return _WatchedFile(to, encoding="utf-8")


# -- trail -----------------------------------------------------------------------------------------


@dataclass
class AuditTrail:
    """The lines of one request. Without a log, none are written."""

    log: AuditLog | None = None
    scope: Scope = field(default_factory=dict)
    _started: float = field(default_factory=time.monotonic)
    _checked: list[tuple[Access, Decision]] = field(default_factory=list)
    _written: int = 0
    """How many of these decisions have been written."""
    _lock: threading.Lock = field(default_factory=threading.Lock)
    _changed: list[list[str]] | None = None
    """The objects of the change that has begun; None if none has."""
    _running: int = 0
    """How many changes run in threads."""
    _has_ended: bool = False
    """Whether the request has ended."""
    _has_result: bool = False
    """Whether the result of the change has been written."""
    _status: int | None = None
    _code: int | None = None
    """The code of the error: of the change if that has ended, else of the response."""
    _has_outcome: bool = False
    """Whether a change has ended, or was refused."""
    _versions: dict[str, Any] = field(default_factory=dict)

    def record(self, access: Access, decision: Decision) -> None:
        """Record a decision, to be written later."""
        self._checked.append((access, decision))

    @contextmanager
    def running(self, operation: Operation) -> Iterator[None]:
        """Record the outcome of an operation in this thread.

        If the request has ended by then, write the remaining lines.
        """
        is_change = not operation.is_read
        with self._lock:
            self._running += is_change
        code = None
        try:
            yield
        except BaseException as error:
            known = error.code if isinstance(error, LanceNamespaceError) else ErrorCode.INTERNAL
            code = ErrorCode(known).value
            raise
        finally:
            with self._lock:
                self._running -= is_change
                if is_change:
                    self._code, self._has_outcome = code, True
                if self._has_ended and not self._running:
                    self._write_rest()

    def begin(self, operation: Operation) -> None:
        """Write the decisions that are not written yet, if an operation changes something.

        Call when all of them are allowed. A page runs several operations, also concurrently.

        Args:
            operation: The operation that begins. That of the request is another one, for a page.

        Raises:
            ServiceUnavailableError: (17) they cannot be written, and must be; or the request has
                ended, because its response says that the change has failed or may have.
        """
        if self.log is None or operation.is_read:
            return
        with self._lock:
            if self._has_ended:
                raise ServiceUnavailableError("The request has ended; nothing was changed")
            for line in self._decisions():
                self.log.write_before_change(line)
            self._changed = [list(each.path) for each, _ in self._checked]

    @contextmanager
    def recording_versions(self) -> Iterator[VersionChanges]:
        """Record the versions before and after each commit, even if the operation fails later."""
        with record_version_changes() as changes:
            try:
                yield changes
            finally:
                for change in changes.values():
                    self._versions = _versions(change.before, change.after)

    def note_result(self, request: Any, result: Any) -> None:
        """Record the versions in a result that this process did not commit itself."""
        created = list(_created_versions(request))
        if len(created) == 1:
            self._versions = created[0][1]
        elif created:
            self._versions = {"versions": [{"id": names, **found} for names, found in created]}
        version = getattr(result, "version", None)
        if isinstance(version, int):
            self._versions.setdefault("version_after", version)

    def end(self, status: int | None, code: int | None) -> None:
        """Write the remaining lines after the response was sent.

        Of a change that still runs, write that its outcome is unknown; its thread writes the rest.

        Args:
            status: None if the client disconnected first.
            code: The code of the error, if any.
        """
        if self.log is None or self._operation is None:
            return
        with self._lock:
            self._status = status
            if not self._has_outcome:
                self._code = code
            self._write_rest()
            self._has_ended = True

    def _write_rest(self) -> None:
        """Write the decisions that are not written yet, and the result of a change."""
        assert self.log is not None
        duration = round((time.monotonic() - self._started) * 1000, 3)
        result = {"code": self._code, "status": self._status, "duration_ms": duration}
        for line in self._decisions():
            self.log.write({**line, **result})
        if self._changed is None or self._has_result:
            return
        event = "unknown" if self._running else "commit" if self._code is None else "failure"
        fields = {**self._common_fields(event), "ids": self._changed}
        self.log.write({**fields, **result, **self._versions})
        self._has_result = not self._running

    @property
    def _operation(self) -> Operation | None:
        return self._state.get("operation")

    @property
    def _state(self) -> dict[str, Any]:
        state: dict[str, Any] = self.scope.get("state", {})
        return state

    def _decisions(self) -> Iterator[dict[str, Any]]:
        """Yield a line for each decision that is not written yet.

        A decision counts as written when the generator is resumed after it.
        """
        common = self._common_fields("decision")
        if not self._checked and self._changed is None and not self._has_ended:
            yield {**common, "decision": "none"}  # not authenticated, or malformed
        while self._written < len(self._checked):
            access, decision = self._checked[self._written]
            yield {
                **common,
                "action": access.operation,
                "id": list(access.path),
                "decision": "allow" if decision.allowed else "deny",
                "visible": decision.visible,
                "policies": list(decision.reasons),
            }
            self._written += 1

    def _common_fields(self, event: str) -> dict[str, Any]:
        principal: Principal | None = self._state.get("principal")
        operation, client = self._operation, self.scope.get("client")
        return {
            "time": datetime.now(timezone.utc).isoformat(),
            "event": event,
            "request_id": self._state.get("request_id"),
            "client": client[0] if client else None,
            "principal": principal.name if principal else None,
            "method": principal.method if principal else None,
            "groups": sorted(principal.groups) if principal else [],
            "operation": operation.name if operation else None,
        }


def _versions(before: int, after: int) -> dict[str, int]:
    return {"version_before": before, "version_after": after}


def _created_versions(request: Any) -> Iterator[tuple[list[str], dict[str, int]]]:
    """Yield each table for which a request creates a version, with the versions before and after.

    A version with a given number is created only if the one before it is the latest.
    """
    if isinstance(request, api.CreateTableVersionRequest):
        yield request.id or [], _versions(request.version - 1, request.version)
    elif isinstance(request, api.BatchCreateTableVersionsRequest):
        for entry in request.entries:
            yield entry.id, _versions(entry.version - 1, entry.version)
    elif isinstance(request, api.BatchCommitTablesRequest):
        for operation in request.operations:
            yield from _created_versions(operation.create_table_version)


def trail_of(request: Request) -> AuditTrail:
    """Return the trail of a request."""
    trail: AuditTrail = getattr(request.state, "audit_trail", None) or AuditTrail()
    return trail
