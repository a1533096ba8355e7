"""The middleware that ends the audit trail of each request."""

from __future__ import annotations

from starlette.types import ASGIApp, Receive, Scope, Send

from ..observed import INTERNAL, ObservedSend
from .log import AuditLog
from .trail import AuditTrail


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
        answer = ObservedSend(send)
        try:
            await self._app(scope, receive, answer)
        except Exception:
            # Another layer answers it.
            trail.end(500, INTERNAL)
            raise
        trail.end(answer.status, answer.code)
