"""Listings without the objects that a principal may not see."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from lance_namespace.errors import InvalidInputError

from lance_bridge.names import UNAVAILABLE
from lance_bridge_federated.listing import visible_token

from ..principals import Principal
from .accesses import Names, split_name
from .port import Authorizer

_LARGEST_PAGE = 1000
"""The largest page that the catalog is asked for, unless the client asks for a larger one."""


@dataclass(frozen=True)
class VisibleListing:
    """A listing of a namespace, from which hidden names are removed before it is split into pages.

    Hidden names affect neither the size of a page nor whether another one follows. Page tokens are
    the catalog's, each for the position after a visible name. The pages requested from the catalog
    grow, so that a listing with mostly hidden names takes few calls.

    Clients can read and change tokens. Tokens contain no names of hidden catalogs, and a token that
    names a hidden catalog is handled as if that catalog did not exist.
    """

    authorizer: Authorizer
    principal: Principal
    operation: str
    """``list_namespaces``, ``list_tables`` or ``list_all_tables``."""
    parent: Names
    list_page: Callable[[Any], Any]
    """The method of the namespace."""

    def page(self, request: Any) -> Any:
        """Return one page, like the namespace's method. Raises what that raises."""
        kept: list[str] = []
        limit, last = request.limit, None
        while True:
            answer = self._list_page(request)
            limit = limit or max(1, len(self._names(answer)))
            found = self._visible_names(answer)
            room = limit - len(kept)
            if found[:room]:
                last = (request, answer, len(kept))
            kept += found[:room]
            if len(found) > room and last is not None:
                return self._cut_page(kept, *last)
            if not answer.page_token:
                return self._with_names(answer, kept)
            request = _next_request(request, answer.page_token, limit)

    def _list_page(self, request: Any) -> Any:
        try:
            return self.list_page(request)
        except InvalidInputError:
            token = request.page_token or ""
            changed = visible_token(token, self._is_visible, skips_hidden=True)
            if changed == token:
                raise
            return self.list_page(request.model_copy(update={"page_token": changed}))

    def _cut_page(self, kept: list[str], request: Any, answer: Any, before: int) -> Any:
        """End a page after its last name.

        Args:
            request: The request for the catalog's page with that name.
            answer: That page.
            before: How many names come from earlier pages of the catalog.
        """
        names = self._names(answer)
        if names[-1] == kept[-1]:
            return self._with_names(answer, kept)
        size = names.index(kept[-1]) + 1
        again = self._list_page(request.model_copy(update={"limit": size}))
        # Names may have been added or dropped concurrently.
        return self._with_names(again, [*kept[:before], *self._visible_names(again)])

    def _visible_names(self, answer: Any) -> list[str]:
        paths = {
            name: (*self.parent, *split_name(self.operation, name)) for name in self._names(answer)
        }
        seen = set(self.authorizer.filter(self.principal, self.operation, list(paths.values())))
        return [name for name, path in paths.items() if path in seen]

    @property
    def _field(self) -> str:
        return "namespaces" if self.operation == "list_namespaces" else "tables"

    def _names(self, answer: Any) -> list[str]:
        names: list[str] = getattr(answer, self._field)
        return names

    def _with_names(self, answer: Any, names: list[str]) -> Any:
        context = {
            key: text
            for key, text in (answer.context or {}).items()
            if not key.startswith(UNAVAILABLE) or self._is_visible(key.removeprefix(UNAVAILABLE))
        }
        token = visible_token(answer.page_token or "", self._is_visible)
        changed = {self._field: names, "context": context or None, "page_token": token or None}
        return answer.model_copy(update=changed)

    def _is_visible(self, catalog: str) -> bool:
        """Return whether a catalog is visible. Dots separate the catalogs of nested federations."""
        path = tuple(catalog.split("."))
        return bool(self.authorizer.filter(self.principal, "list_namespaces", [path]))


def _next_request(request: Any, token: str, limit: int) -> Any:
    size = min((request.limit or limit) * 2, max(limit, _LARGEST_PAGE))
    return request.model_copy(update={"page_token": token, "limit": size})
