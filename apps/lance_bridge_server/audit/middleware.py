"""The middleware that ends the audit trail of each request."""

from __future__ import annotations

import json

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from .log import AuditLog
from .trail import AuditTrail

_ERROR = 400
_INTERNAL = 18


class AuditMiddleware:
    """Writes the lines of a request when its answer was sent, or could not be."""

    def __init__(self, app: ASGIApp, log: AuditLog | None) -> None:
        self._app = app
        self._log = log

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http" or self._log is None:
            await self._app(scope, receive, send)
            return
        trail = AuditTrail(self._log, scope)
        scope.setdefault("state", {})["audit_trail"] = trail
        answer = _Answer(send)
        try:
            await self._app(scope, receive, answer)
        except Exception:
            # Another layer answers it.
            trail.end(500, _INTERNAL)
            raise
        trail.end(answer.status, answer.code)


class _Answer:
    """Passes an answer on, and keeps its status and the code of an error."""

    def __init__(self, send: Send) -> None:
        self._send = send
        self.status: int | None = None
        self.code: int | None = None

    async def __call__(self, message: Message) -> None:
        if message["type"] == "http.response.start":
            self.status = message["status"]
        elif self.status is not None and self.status >= _ERROR and self.code is None:
            self.code = _code_in(message.get("body", b""))
        await self._send(message)


def _code_in(body: bytes) -> int | None:
    """Return the code in the JSON of an error; all of the gateway's errors are that."""
    try:
        code = json.loads(body)["code"]
    except (ValueError, KeyError, TypeError):
        return None
    return code if isinstance(code, int) else None
