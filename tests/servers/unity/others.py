"""What schemas hold besides tables: volumes, functions and models, to be listed and in the way."""

from __future__ import annotations

from typing import Any

from pydantic import BaseModel

from . import published
from .messages import Answer, Request
from .router import Route
from .validation import check_reply

_KINDS: dict[str, tuple[str, type[BaseModel], type[BaseModel]]] = {
    "volumes": ("volumes", published.ListVolumesResponseContent, published.VolumeInfo),
    "functions": ("functions", published.ListFunctionsResponse, published.FunctionInfo),
    "models": (
        "registered_models",
        published.ListRegisteredModelsResponse,
        published.RegisteredModelInfo,
    ),
}


class Others:
    """Names of objects by kind (``volumes``, ``functions``, ``models``) and schema."""

    def __init__(self) -> None:
        self._names: dict[tuple[str, str, str], list[str]] = {}

    def add(self, kind: str, catalog: str, schema: str, name: str) -> None:
        """Put an object into a schema."""
        self._names.setdefault((kind, catalog, schema), []).append(name)

    def count(self, catalog: str, schema: str) -> int:
        """Return how many there are in a schema."""
        return sum(len(self._names.get((kind, catalog, schema), ())) for kind in _KINDS)

    def routes(self, prefix: str, require_schema: Any) -> list[Route]:
        """Return the listings; ``require_schema(catalog, schema)`` raises where there is none."""
        names = frozenset({"catalog_name", "schema_name"})
        paged = names | {"max_results", "page_token"}

        def handler(kind: str) -> Any:
            return lambda request: self._list(kind, request, require_schema)

        return [
            Route("GET", f"/{kind}", handler(kind), (prefix,), query=paged, required=names)
            for kind in _KINDS
        ]

    def _list(self, kind: str, request: Request, require_schema: Any) -> Answer:
        key, page, item = _KINDS[kind]
        catalog, schema = (
            request.query.get("catalog_name", ""),
            request.query.get("schema_name", ""),
        )
        require_schema(catalog, schema)
        rows = [
            check_reply(item, {"name": name, "catalog_name": catalog, "schema_name": schema})
            for name in self._names.get((kind, catalog, schema), ())
        ]
        return Answer.of_json(check_reply(page, {key: rows, "next_page_token": None}))
