"""What pages cache: the names of tables, and the summaries of versions."""

from __future__ import annotations

import contextvars
import logging
import threading
import time
import weakref
from bisect import bisect_right
from collections import OrderedDict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import lance_namespace as api
from lance_namespace import LanceNamespace
from lance_namespace.errors import LanceNamespaceError

from lance_bridge import LanceBridgeNamespace
from lance_bridge.catalog import Path
from lance_bridge.dataset import VersionSummary, summarize_version, version_key
from lance_bridge.paging import PageRequest, encode_token
from lance_bridge_federated import FederatedNamespace

from ..access.permissions import catalog_of

# -- names -----------------------------------------------------------------------------------------


_log = logging.getLogger(__name__)

_LONG_SECONDS = 0.2
"""Faster listings are not cached."""
_FRESH_SECONDS = 30.0
"""How long names are used without listing them again."""
_MOST_SECONDS = 600.0
"""How long they are used at most, while they are listed in the background."""
_MOST_LISTINGS = 16
_NOT_LISTED: tuple[list[str], float] = ([], float("-inf"))


@dataclass
class _CachedNames:
    """The cached names of one namespace."""

    lock: threading.Lock = field(default_factory=threading.Lock)
    """Held while they are listed, so that concurrent requests list only once."""
    listing: tuple[list[str], float] = _NOT_LISTED
    """The names, and when they were listed by `time.monotonic`. Both are replaced at once, because
    it is read without the lock.
    """

    def names_and_age(self) -> tuple[list[str], float]:
        """Return the names and their age in seconds."""
        names, listed_at = self.listing
        return names, time.monotonic() - listed_at

    def list_again(self, namespace: LanceBridgeNamespace, path: Path) -> list[str]:
        """List the names, and cache them if that took long. Raises what the catalog raises."""
        started = time.monotonic()
        names = list(namespace.catalog.list_tables(path))
        now = time.monotonic()
        is_long = now - started >= _LONG_SECONDS
        self.listing = (names, now) if is_long else _NOT_LISTED
        return names


class TableNames:
    """The names of tables of all formats, by catalog and namespace. Safe to share between threads.

    They are cached for each namespace object, and filtered for the principal after each call.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._kept: weakref.WeakKeyDictionary[Any, OrderedDict[Path, _CachedNames]]
        self._kept = weakref.WeakKeyDictionary()

    def list_tables(
        self, namespace: LanceNamespace, request: Any, word: str = ""
    ) -> api.ListTablesResponse:
        """Return a page of tables of all formats. Raises what the listing of the API raises.

        Args:
            word: Only tables whose names contain it; catalogs of other libraries return all.
        """
        names = list(request.id or ())
        child, inner = catalog_at(namespace, names)
        if not isinstance(child, LanceBridgeNamespace):
            return namespace.list_tables(request)
        page = PageRequest.parse(f"tables of {names}", request.limit, request.page_token)
        found = self._names(child, child.namespace_path(inner, of_tables=True))
        if word:
            found = [each for each in found if word.casefold() in each.casefold()]
        start = bisect_right(found, page.after[0]) if page.after else 0
        end = len(found) if page.limit is None else start + page.limit
        token = encode_token(page.scope, (found[end - 1],)) if end < len(found) else None
        return api.ListTablesResponse(tables=found[start:end], page_token=token)

    def _names(self, namespace: LanceBridgeNamespace, path: Path) -> list[str]:
        kept = self._cached_names(namespace, path)
        names, age = kept.names_and_age()
        if _FRESH_SECONDS < age <= _MOST_SECONDS:
            self._refresh(kept, namespace, path)
        if age <= _MOST_SECONDS:
            return names
        with kept.lock:
            names, age = kept.names_and_age()  # another request may have listed them
            return names if age <= _FRESH_SECONDS else kept.list_again(namespace, path)

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
        kept.listing = _NOT_LISTED  # the next page says why
        _log.warning("The tables of %s could not be listed: %s", path, error)
    finally:
        kept.lock.release()


def catalog_at(namespace: LanceNamespace, names: Sequence[str]) -> tuple[Any, list[str]]:
    """Return the catalog of an identifier, and the identifier in that catalog."""
    child = catalog_of(namespace, tuple(names))
    return child, list(names if child is namespace else names[1:])


# -- summaries of versions -------------------------------------------------------------------------


_MOST_VERSIONS = 10_000
_MOST_TABLES = 1_000


@dataclass
class Summaries:
    """Summaries of versions, which never change. Safe to share between threads."""

    _lock: threading.Lock = field(default_factory=threading.Lock)
    _versions: OrderedDict[Any, VersionSummary] = field(default_factory=OrderedDict)
    _latest: weakref.WeakKeyDictionary[LanceBridgeNamespace, OrderedDict[Path, VersionSummary]] = (
        field(default_factory=weakref.WeakKeyDictionary)
    )
    """Of the tables that were read last, by namespace object and path in the catalog.

    A catalog that is called as the principal has an object for each caller.
    """

    def read(self, namespace: LanceNamespace, request: Any) -> VersionSummary:
        """Return the summary of a table's latest version.

        Raises:
            TableNotWrittenError: (19) the table has no data yet.
            LanceNamespaceError: The entry or the manifest cannot be read.
        """
        child, path = catalog_at(namespace, request.id)
        if isinstance(child, LanceBridgeNamespace):
            return self._of_table(child, path)
        return _summary_by_api(namespace, request)

    def _of_table(self, namespace: LanceBridgeNamespace, path: Sequence[str]) -> VersionSummary:
        table = namespace.tables.load_by_id(path)
        dataset = table.open()
        key = version_key(table, dataset)
        with self._lock:
            found = self._versions.get(key)
        if found is None:
            found = summarize_version(table, dataset)
        with self._lock:
            _put(self._versions, key, found, _MOST_VERSIONS)
            latest = self._latest.setdefault(namespace, OrderedDict())
            _put(latest, table.path, found, _MOST_TABLES)
        return found

    def changed_last(self, namespace: LanceNamespace) -> list[tuple[Path, VersionSummary]]:
        """Return the tables that were read last with their summaries, the latest change first.

        Args:
            namespace: Only tables that were read by this object, or by those of its catalogs.
        """
        with self._lock:
            known = [
                ((*parent, *path), each)
                for parent, catalog in _connected_catalogs(namespace)
                for path, each in self._latest.get(catalog, {}).items()
                if each.changed_millis
            ]
        return sorted(known, key=lambda each: each[1].changed_millis or 0, reverse=True)


def _connected_catalogs(namespace: LanceNamespace) -> Iterator[tuple[Path, LanceBridgeNamespace]]:
    """Yield the catalogs of a root that are connected, with their paths."""
    if isinstance(namespace, LanceBridgeNamespace):
        yield (), namespace
    elif isinstance(namespace, FederatedNamespace):
        for child in namespace.children:
            if isinstance(child.made, LanceBridgeNamespace):
                yield (child.name,), child.made


def _put(kept: OrderedDict[Any, Any], key: Any, value: Any, most: int) -> None:
    kept[key] = value
    kept.move_to_end(key)
    if len(kept) > most:
        kept.popitem(last=False)


def _summary_by_api(namespace: LanceNamespace, request: Any) -> VersionSummary:
    """Return the summary of a table in a catalog of another library."""
    stats = namespace.get_table_stats(request)
    detailed = api.DescribeTableRequest(id=request.id, load_detailed_metadata=True)
    version = namespace.describe_table(detailed).version
    return VersionSummary(
        version or 0,
        None,
        stats.num_rows,
        stats.total_bytes,
        stats.fragment_stats.num_fragments,
        stats.num_indices,
    )


@dataclass(frozen=True)
class Caches:
    """What the pages of a server share."""

    table_names: TableNames = field(default_factory=TableNames)
    summaries: Summaries = field(default_factory=Summaries)
