"""Names of tables for pages. A listing that takes long is kept for a while.

Catalogs list all names of a namespace in one call, so that each page of a large one costs the same.
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
"""What takes less is listed each time."""
_FRESH_SECONDS = 30.0
"""How long names are shown without listing them again."""
_MOST_SECONDS = 600.0
"""How long they are shown at most, while they are listed in the background."""
_MOST_LISTINGS = 16


@dataclass
class _Kept:
    """The names of one namespace."""

    lock: threading.Lock = field(default_factory=threading.Lock)
    """Held while they are listed, so that requests at the same time list once."""
    names: list[str] = field(default_factory=list)
    listed_at: float = float("-inf")
    """By `time.monotonic`."""

    def age(self) -> float:
        """Return for how many seconds the names are known."""
        return time.monotonic() - self.listed_at

    def list_again(self, namespace: LanceBridgeNamespace, path: Path) -> list[str]:
        """List the names, and keep them if that took long. Raises what the catalog raises."""
        started = time.monotonic()
        page = PageRequest("names", None, None)
        names, _ = namespace.tables.list(path, page)
        now = time.monotonic()
        is_long = now - started >= _LONG_SECONDS
        self.names, self.listed_at = (names, now) if is_long else ([], float("-inf"))
        return names


class TableNames:
    """The names of Lance tables, by catalog and namespace. Safe to share between threads.

    They are the catalog's for one of its namespace objects: what a principal may see of them is
    filtered after each call.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._kept: weakref.WeakKeyDictionary[Any, OrderedDict[Path, _Kept]]
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
        kept = self._of(namespace, path)
        if _FRESH_SECONDS < kept.age() <= _MOST_SECONDS:
            self._refresh(kept, namespace, path)
        if kept.age() <= _MOST_SECONDS:
            return kept.names
        with kept.lock:
            fresh = kept.age() <= _FRESH_SECONDS  # another request has listed them meanwhile
            return kept.names if fresh else kept.list_again(namespace, path)

    def _of(self, namespace: LanceBridgeNamespace, path: Path) -> _Kept:
        with self._lock:
            listings = self._kept.setdefault(namespace, OrderedDict())
            found = listings.setdefault(path, _Kept())
            listings.move_to_end(path)
            if len(listings) > _MOST_LISTINGS:
                listings.popitem(last=False)
            return found

    def _refresh(self, kept: _Kept, namespace: LanceBridgeNamespace, path: Path) -> None:
        """List names in the background, unless that is being done."""
        if kept.lock.acquire(blocking=False):
            context = contextvars.copy_context()
            threading.Thread(
                target=context.run, args=(_list_and_release, kept, namespace, path), daemon=True
            ).start()


def _list_and_release(kept: _Kept, namespace: LanceBridgeNamespace, path: Path) -> None:
    try:
        kept.list_again(namespace, path)
    except LanceNamespaceError as error:
        kept.listed_at = float("-inf")  # the next page says why
        _log.warning("The tables of %s could not be listed: %s", path, error)
    finally:
        kept.lock.release()
