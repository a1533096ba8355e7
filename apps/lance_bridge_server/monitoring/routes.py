"""The routes for operators of a server: `/livez`, `/readyz` and `/metrics`."""

from __future__ import annotations

from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from ..gateway import Gateway
from ..process.shared import Process
from .metrics import CONTENT_TYPE

_UNAVAILABLE = 503


def monitoring_routes(gateway: Gateway, process: Process) -> list[Route]:
    """Return the routes. Only metrics need credentials, unless `anonymous_metrics` is set."""
    health = gateway.health

    async def live(_: Request) -> Response:
        return JSONResponse({"status": "live"})

    async def ready(_: Request) -> Response:
        if process.lifecycle.is_stopping:
            return JSONResponse({"status": "stopping"}, _UNAVAILABLE)
        states = await health.states()
        is_ready = health.is_ready(states)
        content = {"status": "ready" if is_ready else "unavailable", "catalogs": states}
        return JSONResponse(content, 200 if is_ready else _UNAVAILABLE)

    async def metrics(request: Request) -> Response:
        if not gateway.anonymous_metrics:
            await gateway.authenticate(request)
        return Response(process.metrics.text(), media_type=CONTENT_TYPE)

    return [
        Route("/livez", live, methods=["GET"]),
        Route("/readyz", ready, methods=["GET"]),
        Route("/metrics", metrics, methods=["GET"]),
    ]
