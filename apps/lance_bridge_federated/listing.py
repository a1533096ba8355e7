"""Lists the tables of a namespace that cannot list them all itself, one namespace after the other.

ListAllTables of pylance's own namespaces returns only the tables of the root, without pages.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, nullcontext, suppress
from dataclasses import dataclass
from functools import partial
from itertools import islice

import lance_namespace as api
from lance_namespace import LanceNamespace
from lance_namespace.errors import (
    InvalidInputError,
    LanceNamespaceError,
    NamespaceNotFoundError,
    UnsupportedOperationError,
)

from lance_bridge import LanceBridgeNamespace
from lance_bridge.dotted_names import DELIMITER, UNAVAILABLE
from lance_bridge.paging import (
    PageRequest,
    bad_token,
    decode_token,
    encode_token,
    names_of_all_pages,
    require_progress,
)

from .children import Child
from .identifiers import describe, errors_of

# -- walks -----------------------------------------------------------------------------------------


_LEVEL = "all tables"
_PAGE = 1000

Path = tuple[str, ...]


def is_native(namespace: LanceNamespace) -> bool:
    """Return whether a namespace is pylance's own."""
    cls = type(namespace)
    return f"{cls.__module__}.{cls.__qualname__}" in api.NATIVE_IMPLS.values()


def walk(
    namespace: LanceNamespace,
    *,
    include_declared: bool | None = None,
    after: Path | None = None,
    parent: Path = (),
) -> Iterator[Path]:
    """Yield the tables under a namespace: its own, then those of its children, each sorted.

    A namespace that is dropped concurrently has none, nor has a level that cannot hold tables.

    Args:
        after: The table after which to begin; it need not exist.

    Raises:
        LanceNamespaceError: a namespace cannot be listed.
    """
    start = after[:-1] if after is not None else ()
    if parent >= start:
        last = after[-1] if after is not None and parent == start else None
        for name in _list_tables(namespace, parent, include_declared):
            if last is None or name > last:
                yield (*parent, name)
    for name in _list_children(namespace, parent):
        path = (*parent, name)
        if path >= start[: len(path)]:
            yield from walk(namespace, include_declared=include_declared, after=after, parent=path)


def _list_tables(namespace: LanceNamespace, path: Path, include_declared: bool | None) -> list[str]:
    request = api.ListTablesRequest(id=list(path), include_declared=include_declared)
    with _none_if_dropped(path), suppress(InvalidInputError):  # a level with namespaces only
        return sorted(names_of_all_pages(namespace.list_tables, request, "tables"))
    return []


def _list_children(namespace: LanceNamespace, path: Path) -> list[str]:
    request = api.ListNamespacesRequest(id=list(path))
    with _none_if_dropped(path), suppress(UnsupportedOperationError):
        return sorted(names_of_all_pages(namespace.list_namespaces, request, "namespaces"))
    return []


def _none_if_dropped(path: Path) -> AbstractContextManager[None]:
    """Suppress that a namespace does not exist, except for the root, which cannot be dropped."""
    return suppress(NamespaceNotFoundError) if path else nullcontext()


def all_paths(namespace: LanceNamespace) -> Iterator[Path]:
    """Yield the tables of a namespace of any implementation.

    Raises:
        LanceNamespaceError: they cannot be listed.
    """
    if isinstance(namespace, LanceBridgeNamespace):
        # ListAllTables joins names with a character that names may contain.
        token = None
        while True:
            page = PageRequest.parse(_LEVEL, _PAGE, token)
            paths, token = namespace.tables.list_all(page)
            yield from paths
            if token is None:
                return
    yield from walk(namespace)


# -- pages -----------------------------------------------------------------------------------------


logger = logging.getLogger(__name__)

_SCOPE = "all tables of all catalogs"
_MOST_NAMES = 1000
_WALK = "all tables of one catalog"
_EARLIER = "skipped: it failed on an earlier page"


@dataclass
class _Page:
    """A page that is being filled."""

    tables: list[str]
    left_out: dict[str, str]
    """Catalogs that are missing, and why."""
    limit: int | None

    @property
    def room(self) -> int | None:
        return None if self.limit is None else self.limit - len(self.tables)


def list_all(
    children: Mapping[str, Child], request: api.ListTablesRequest
) -> api.ListTablesResponse:
    """Return one page of the tables of all catalogs, by catalog.

    Raises:
        InvalidInputError: (13) a bad limit or token.
    """
    asked = PageRequest.parse(_SCOPE, request.limit, request.page_token)
    catalog, token, *missing = _check_position(asked.after) if asked.after else ("", "")
    page = _Page([], dict.fromkeys(missing, _EARLIER), request.limit)
    for name in sorted(children):
        if name < catalog or (name == catalog and not token):
            continue
        if page.room == 0:
            return _to_response(page, (catalog, ""))
        token = _fill(page, children[name], request, token if name == catalog else "")
        catalog = name
        if token:
            return _to_response(page, (catalog, token))
    return _to_response(page)


def _check_position(content: tuple[str, ...]) -> tuple[str, ...]:
    """Return a token's content: a catalog, its own token, and the catalogs that were left out.

    Raises:
        InvalidInputError: (13) it is from another listing, or has too many names.
    """
    if not 2 <= len(content) <= _MOST_NAMES:
        raise bad_token()
    return content


def visible_token(
    token: str, shows: Callable[[str], bool], *, skips_hidden: bool = False, parent: str = ""
) -> str:
    """Return the page token of `list_all` without the catalogs that were left out and are hidden.

    Args:
        token: The token; one from another listing is returned unchanged.
        shows: Whether a catalog may be named. Names in a federation within this one follow its name
            and a dot.
        skips_hidden: Whether the listing continues after a hidden catalog, as if it did not exist.
        parent: The prefix of names in the token.
    """
    try:
        catalog, inner, *missing = _check_position(decode_token(_SCOPE, token))
    except InvalidInputError:
        return token
    name = parent + catalog
    if skips_hidden and not shows(name):
        inner = ""
    elif inner:
        inner = visible_token(inner, shows, skips_hidden=skips_hidden, parent=f"{name}.")
    kept = [each for each in missing if shows(parent + each)]
    return encode_token(_SCOPE, (catalog, inner, *kept))


def _to_response(page: _Page, position: tuple[str, ...] = ()) -> api.ListTablesResponse:
    """Return the response for a page.

    Args:
        position: For the next page's token: the catalog of this page's last table, and that
            catalog's own token, or "" at its end. It contains no later catalog.
    """
    token = encode_token(_SCOPE, (*position, *sorted(page.left_out))) if position else None
    context = {f"{UNAVAILABLE}{name}": why for name, why in sorted(page.left_out.items())}
    return api.ListTablesResponse(tables=page.tables, page_token=token, context=context or None)


def _fill(page: _Page, child: Child, request: api.ListTablesRequest, token: str) -> str:
    """Add tables of one catalog; return its own token if the page is full before its end."""
    given = token
    while page.room is None or page.room > 0:
        asked = request.model_copy(update={"limit": page.room, "page_token": token or None})
        try:
            with errors_of(child.name, "list_all_tables", [[]]):
                found = child.call(partial(_list_catalog, request=asked))
        except LanceNamespaceError as error:
            if token and token == given and isinstance(error, InvalidInputError):
                raise  # it is about the token that the caller sent
            logger.warning("listed without the catalog '%s': %s", child.name, describe(error))
            page.left_out[child.name] = describe(error)
            return ""
        page.tables += [f"{child.name}{DELIMITER}{table}" for table in found.tables]
        for key, why in (found.context or {}).items():
            if key.startswith(UNAVAILABLE):  # the catalog is a federation itself
                page.left_out[f"{child.name}.{key.removeprefix(UNAVAILABLE)}"] = why
        token = found.page_token or ""
        if not token:
            return ""
    return token


def _list_catalog(
    namespace: LanceNamespace, request: api.ListTablesRequest
) -> api.ListTablesResponse:
    if is_native(namespace):
        return _list_by_walking(namespace, request)
    try:
        found = namespace.list_all_tables(request)
    except UnsupportedOperationError:
        return _list_by_walking(namespace, request)
    require_progress(request, found)
    return found


def _list_by_walking(
    namespace: LanceNamespace, request: api.ListTablesRequest
) -> api.ListTablesResponse:
    page = PageRequest.parse(_WALK, request.limit, request.page_token)
    paths = walk(namespace, include_declared=request.include_declared, after=page.after)
    taken = list(islice(paths, page.limit + 1 if page.limit else None))
    found = taken[: page.limit]
    return api.ListTablesResponse(
        tables=[DELIMITER.join(path) for path in found],
        page_token=encode_token(_WALK, found[-1]) if len(taken) > len(found) else None,
    )
