"""Names of tables for pages. Slow listings are cached.

Catalogs list all names of a namespace in one call, so each page of a large namespace would cost as
much as the whole listing.
"""

from __future__ import annotations

import contextvars
import logging
import threading
import time
import weakref
from bisect import bisect_right
from collections import OrderedDict
from dataclasses import dataclass, field
from typing import Any

import lance_namespace as api
from lance_namespace import LanceNamespace
from lance_namespace.errors import LanceNamespaceError

from lance_bridge import LanceBridgeNamespace
from lance_bridge.catalog import Path
from lance_bridge.paging import PageRequest, encode_token

from ..authorization.accesses import catalog_of

_log = logging.getLogger(__name__)

_LONG_SECONDS = 0.2
"""Faster listings are not cached."""
_FRESH_SECONDS = 30.0
"""How long names are used without listing them again."""
_MOST_SECONDS = 600.0
"""How long they are used at most, while they are listed in the background."""
_MOST_LISTINGS = 16


@dataclass
class _CachedNames:
    """The cached names of one namespace."""

    lock: threading.Lock = field(default_factory=threading.Lock)
    """Held while they are listed, so that concurrent requests list only once."""
    names: list[str] = field(default_factory=list)
    listed_at: float = float("-inf")
    """By `time.monotonic`."""

    def age(self) -> float:
        """Return the age of the names in seconds."""
        return time.monotonic() - self.listed_at

    def list_again(self, namespace: LanceBridgeNamespace, path: Path) -> list[str]:
        """List the names, and cache them if that took long. Raises what the catalog raises."""
        started = time.monotonic()
        page = PageRequest("names", None, None)
        names, _ = namespace.tables.list(path, page)
        now = time.monotonic()
        is_long = now - started >= _LONG_SECONDS
        self.names, self.listed_at = (names, now) if is_long else ([], float("-inf"))
        return names


class TableNames:
    """The names of Lance tables, by catalog and namespace. Safe to share between threads.

    They are cached for each namespace object, and filtered for the principal after each call.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._kept: weakref.WeakKeyDictionary[Any, OrderedDict[Path, _CachedNames]]
        self._kept = weakref.WeakKeyDictionary()

    def list_tables(self, namespace: LanceNamespace, request: Any) -> api.ListTablesResponse:
        """Return a page as `LanceNamespace.list_tables`. Raises what that raises."""
        names = list(request.id or ())
        child: Any = catalog_of(namespace, tuple(names))
        if not isinstance(child, LanceBridgeNamespace):
            return namespace.list_tables(request)
        inner = names if child is namespace else names[1:]
        page = PageRequest.parse(f"tables of {names}", request.limit, request.page_token)
        found = self._names(child, child.namespace_path(inner, of_tables=True))
        start = bisect_right(found, page.after[0]) if page.after else 0
        end = len(found) if page.limit is None else start + page.limit
        token = encode_token(page.scope, (found[end - 1],)) if end < len(found) else None
        return api.ListTablesResponse(tables=found[start:end], page_token=token)

    def _names(self, namespace: LanceBridgeNamespace, path: Path) -> list[str]:
        kept = self._cached_names(namespace, path)
        if _FRESH_SECONDS < kept.age() <= _MOST_SECONDS:
            self._refresh(kept, namespace, path)
        if kept.age() <= _MOST_SECONDS:
            return kept.names
        with kept.lock:
            fresh = kept.age() <= _FRESH_SECONDS  # another request may have listed them
            return kept.names if fresh else kept.list_again(namespace, path)

    def _cached_names(self, namespace: LanceBridgeNamespace, path: Path) -> _CachedNames:
        with self._lock:
            listings = self._kept.setdefault(namespace, OrderedDict())
            found = listings.setdefault(path, _CachedNames())
            listings.move_to_end(path)
            if len(listings) > _MOST_LISTINGS:
                listings.popitem(last=False)
            return found

    def _refresh(self, kept: _CachedNames, namespace: LanceBridgeNamespace, path: Path) -> None:
        """List names in the background, unless that is already running."""
        if kept.lock.acquire(blocking=False):
            context = contextvars.copy_context()
            threading.Thread(
                target=context.run, args=(_list_and_release, kept, namespace, path), daemon=True
            ).start()


def _list_and_release(kept: _CachedNames, namespace: LanceBridgeNamespace, path: Path) -> None:
    try:
        kept.list_again(namespace, path)
    except LanceNamespaceError as error:
        kept.listed_at = float("-inf")  # the next page says why
        _log.warning("The tables of %s could not be listed: %s", path, error)
    finally:
        kept.lock.release()
