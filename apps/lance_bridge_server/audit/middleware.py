"""The middleware that ends the audit trail of each request."""

from __future__ import annotations

from starlette.types import ASGIApp, Receive, Scope, Send

from ..monitoring.observed import observed
from .log import AuditLog
from .trail import AuditTrail


class AuditMiddleware:
    """Ends the trail of a request after its response was sent or has failed."""

    def __init__(self, app: ASGIApp, log: AuditLog | None) -> None:
        self._app = app
        self._log = log

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http" or self._log is None:
            await self._app(scope, receive, send)
            return
        trail = AuditTrail(self._log, scope)
        scope["state"]["audit_trail"] = trail
        answer = observed(scope)
        try:
            with answer.record_failure():
                await self._app(scope, receive, send)
        finally:
            trail.end(answer.status, answer.code)
