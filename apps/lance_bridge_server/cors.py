"""Requests of web pages of other origins, which browsers send only if the server allows them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

from pydantic import ConfigDict, Field
from starlette.middleware import Middleware
from starlette.middleware.cors import CORSMiddleware

_HEADERS = (
    "authorization", "content-type", "traceparent", "tracestate", "x-api-key",
    "x-lance-table-location", "x-lance-table-properties", "x-lancedb-database", "x-request-id",
    "x-request-timeout-ms",
)  # fmt: skip
_EXPOSED = ("phalanx-version", "retry-after", "x-request-id")
_ORIGIN = r"^(\*|https?://[A-Za-z0-9.\[\]:-]+)$"


@dataclass(frozen=True)
class CorsSettings:
    """Which web pages may make requests."""

    __pydantic_config__ = ConfigDict(extra="forbid")

    origins: Annotated[list[Annotated[str, Field(pattern=_ORIGIN)]], Field(min_length=1)]
    """Such as ``https://app.example.com``; ``*`` for all. Cookies are never accepted."""
    max_age: Annotated[int, Field(ge=0, le=86_400)] = 600
    """Seconds that a browser caches the response."""

    def middleware(self) -> Middleware:
        """Return the middleware."""
        return Middleware(
            CORSMiddleware,
            allow_origins=self.origins,
            allow_methods=["GET", "POST"],
            allow_headers=_HEADERS,
            expose_headers=_EXPOSED,
            max_age=self.max_age,
        )
