"""Listing Lance tables, page by page."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor

from lance_namespace.errors import LanceNamespaceError, NamespaceNotFoundError

from ..bridge import Bridge
from ..catalog import Path, TableRecord
from ..paging import PageRequest
from .sharing import innermost_namespaces
from .tables import is_only_declared

logger = logging.getLogger(__name__)

_CHUNK = 100
_THREADS = 8


def list_tables(
    bridge: Bridge, namespace: Path, page: PageRequest, *, include_declared: bool
) -> tuple[list[str], str | None]:
    """Return one page of the names of a namespace's Lance tables. Source: ListTables.

    Raises:
        NamespaceNotFoundError: (1)
    """
    paths: Iterator[Path] = (
        (name,) for name in sorted(set(bridge.catalog.list_lance_tables(namespace)))
    )
    rest: Iterator[Path] = (p for p in paths if page.after is None or p > page.after)
    if not include_declared:
        rest = _with_data(bridge, namespace, [name for (name,) in rest])
    found, token = page.cut(_enough(rest, page))
    return [name for (name,) in found], token


def list_all_tables(
    bridge: Bridge, page: PageRequest, *, include_declared: bool
) -> tuple[list[Path], str | None]:
    """Return one page of the paths of all Lance tables, by namespace. Source: ListAllTables.

    Only the namespaces that the page needs are read. One that vanishes meanwhile is left out.
    """
    return page.cut(_enough(_all_tables(bridge, page, include_declared), page))


def _all_tables(bridge: Bridge, page: PageRequest, include_declared: bool) -> Iterator[Path]:
    for namespace in sorted(innermost_namespaces(bridge)):
        if page.after is not None and namespace < page.after[:-1]:
            continue
        within = PageRequest(page.scope, None, _within(page.after, namespace))
        try:
            names, _ = list_tables(bridge, namespace, within, include_declared=include_declared)
        except NamespaceNotFoundError:
            continue
        yield from ((*namespace, name) for name in names)


def _within(after: Path | None, namespace: Path) -> Path | None:
    return after[-1:] if after is not None and after[:-1] == namespace else None


def _enough(paths: Iterator[Path], page: PageRequest) -> list[Path]:
    """Take one more than a page, which tells whether there is a next one."""
    taken: list[Path] = []
    for path in paths:
        taken.append(path)
        if page.limit is not None and len(taken) > page.limit:
            break
    return taken


def _with_data(bridge: Bridge, namespace: Path, names: Sequence[str]) -> Iterator[Path]:
    with ThreadPoolExecutor(_THREADS) as threads:
        for start in range(0, len(names), _CHUNK):
            chunk = names[start : start + _CHUNK]
            records = {r.path[-1]: r for r in bridge.catalog.load_tables(namespace, chunk)}
            present = [records[name] for name in chunk if name in records]
            has_data = threads.map(lambda record: _may_have_data(bridge, record), present)
            yield from (
                record.path[-1:] for record, data in zip(present, has_data, strict=True) if data
            )


def _may_have_data(bridge: Bridge, record: TableRecord) -> bool:
    """One table whose storage does not answer neither ends the listing nor counts as empty."""
    try:
        return not is_only_declared(bridge, record)
    except LanceNamespaceError as error:
        logger.warning("listed without knowing whether it has data: %s: %s", record.path, error)
        return True
