"""The lines of the audit log about one request.

A request that reads or is denied writes one line for each decision after its response. A request
that changes something writes these lines before the change, and one more when the change has ended.
The change may outlive its request, in its thread, which then writes the line.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import datetime, timezone
from typing import Any

import lance_namespace as api
from lance_namespace.errors import ErrorCode, LanceNamespaceError, ServiceUnavailableError
from starlette.requests import Request
from starlette.types import Scope

from lance_bridge.version_changes import VersionChanges, record_version_changes

from ..authorization.accesses import Access
from ..authorization.port import Decision
from ..operations import Operation
from ..principals import Principal
from .log import AuditLog


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
