"""The outcome of a response, for the audit log, metrics and traces."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager

from lance_namespace.errors import ErrorCode, LanceNamespaceError
from starlette.types import Message, Scope, Send

_ERROR = 400
SERVER_ERROR = 500
"""The lowest status of server errors."""


class ObservedSend:
    """Sends a response, and records its status, error code and size."""

    def __init__(self, send: Send) -> None:
        self._send = send
        self.status: int | None = None
        self.code: int | None = None
        self.bytes = 0

    async def __call__(self, message: Message) -> None:
        if message["type"] == "http.response.start":
            self.status = message["status"]
        else:
            body = message.get("body", b"")
            self.bytes += len(body)
            if self.status is not None and self.status >= _ERROR and self.code is None:
                self.code = _error_code(body)
        await self._send(message)

    def record_error(self, error: Exception) -> None:
        """Record an error that ended a response after its status was sent."""
        code = error.code if isinstance(error, LanceNamespaceError) else ErrorCode.INTERNAL
        self.status, self.code = SERVER_ERROR, ErrorCode(code).value

    @contextmanager
    def record_failure(self) -> Iterator[None]:
        """Record an exception that another layer handles, or that the response was cancelled."""
        try:
            yield
        except Exception:
            self.status, self.code = SERVER_ERROR, ErrorCode.INTERNAL.value
            raise
        except BaseException:
            self.status = self.code = None
            raise


def observe(scope: Scope, send: Send) -> ObservedSend:
    """Return the sender of a request's response, and store it for `observed`."""
    answer = ObservedSend(send)
    scope.setdefault("state", {})["answer"] = answer
    return answer


def observed(scope: Scope) -> ObservedSend:
    """Return the sender of a request's response."""
    answer: ObservedSend = scope["state"]["answer"]
    return answer


def _error_code(body: bytes) -> int | None:
    """Return the code in the JSON body of an error of the gateway, or None."""
    try:
        code = json.loads(body)["code"]
    except (ValueError, KeyError, TypeError):
        return None
    return code if isinstance(code, int) else None
