"""What an answer turned out to be, for what records it: audit log, metrics, traces."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager

from lance_namespace.errors import ErrorCode, LanceNamespaceError
from starlette.types import Message, Scope, Send

_ERROR = 400
SERVER_ERROR = 500
"""The lowest status of a failure of the server."""


class ObservedSend:
    """Passes an answer on, and keeps its status, the code of an error, and how much was sent."""

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
                self.code = _code_in(body)
        await self._send(message)

    def record_error(self, error: Exception) -> None:
        """Record why an answer ended before its end, after its status was sent."""
        code = error.code if isinstance(error, LanceNamespaceError) else ErrorCode.INTERNAL
        self.status, self.code = SERVER_ERROR, ErrorCode(code).value

    @contextmanager
    def record_failure(self) -> Iterator[None]:
        """Record an exception, which another layer answers, or that the answer was cut."""
        try:
            yield
        except Exception:
            self.status, self.code = SERVER_ERROR, ErrorCode.INTERNAL.value
            raise
        except BaseException:
            self.status = self.code = None
            raise


def observe(scope: Scope, send: Send) -> ObservedSend:
    """Return what passes a request's answer on; `observed` finds it, so that it is read once."""
    answer = ObservedSend(send)
    scope.setdefault("state", {})["answer"] = answer
    return answer


def observed(scope: Scope) -> ObservedSend:
    """Return what passes on the answer to a request."""
    answer: ObservedSend = scope["state"]["answer"]
    return answer


def _code_in(body: bytes) -> int | None:
    """Return the code in the JSON of an error; all of the gateway's errors are that."""
    try:
        code = json.loads(body)["code"]
    except (ValueError, KeyError, TypeError):
        return None
    return code if isinstance(code, int) else None
