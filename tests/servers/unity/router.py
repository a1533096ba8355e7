"""Which handler answers a request, and what unknown paths and methods get."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from urllib.parse import unquote

from pydantic import BaseModel

from .messages import Answer, Request

Handler = Callable[[Request], Answer]


@dataclass(frozen=True)
class Route:
    """One operation. ``template`` is a path with names in braces, after any of ``prefixes``."""

    method: str
    template: str
    handler: Handler
    prefixes: Sequence[str]
    request: type[BaseModel] | None = None
    """What a body must be."""
    query: frozenset[str] = frozenset()
    """Parameters that may come in the query."""
    required: frozenset[str] = frozenset()
    """Those of them that must come."""
    delta: bool = False
    """Errors take the shape of the API for Delta clients."""
    needs_token: bool = True
    patterns: tuple[re.Pattern[str], ...] = field(init=False)

    def __post_init__(self) -> None:
        inside = re.sub(r"\\{(\w+)\\}", r"(?P<\1>[^/]+)", re.escape(self.template))
        found = tuple(re.compile(re.escape(prefix) + inside) for prefix in self.prefixes)
        object.__setattr__(self, "patterns", found)

    @property
    def key(self) -> str:
        """Method and template: what requests are counted under."""
        return f"{self.method} {self.template}"

    def match(self, path: str) -> Mapping[str, str] | None:
        """Return the path's parameters, or None where it is another's."""
        for pattern in self.patterns:
            found = pattern.fullmatch(path)
            if found is not None:
                return {name: unquote(text) for name, text in found.groupdict().items()}
        return None


def find(
    routes: Sequence[Route], method: str, path: str
) -> tuple[Route | None, Mapping[str, str], bool]:
    """Return the route of a request, its parameters, and whether the path has any route."""
    known = False
    for route in routes:
        parameters = route.match(path)
        if parameters is not None:
            known = True
            if route.method == method:
                return route, parameters, True
    return None, {}, known


def no_route(*, known_path: bool, databricks: bool, method: str, path: str) -> Answer:
    """Return the answer to a path or method that there is not."""
    if databricks:
        content = {
            "error_code": "ENDPOINT_NOT_FOUND",
            "message": f"No API found for '{method} {path}'",
        }
        return Answer.of_json(content, 404)
    if known_path:
        return Answer.of_text("Status: 405\nDescription: Method Not Allowed\n", 405)
    return Answer.of_text("Status: 404\nDescription: Not Found\n", 404)
