"""The history of a table: its versions with their transactions, its tags and branches."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from lance_namespace import LanceNamespace

from lance_bridge import LanceBridgeNamespace
from lance_bridge.credentials import PRINCIPAL
from lance_bridge.dataset import VersionChange, change_of_version

from ..authorization.accesses import catalog_of
from .storage_plots import line_points
from .ui_request import Part, UiRequest, together
from .urls import address

_PAGE_SIZE = 20
_AT_ONCE = 4
"""How many versions are read concurrently for one page."""
_FACTS = {"uuid", "version", "read_version", "operation", "branch"}
"""Properties of transactions that are not set by writers."""
_MESSAGE = "__lance_commit_message"
"""The property of a transaction with its writer's message. Source: pylance."""
_KNOWN = {*_FACTS, PRINCIPAL, _MESSAGE}
PLOT_WIDTH, PLOT_HEIGHT = 240, 36


@dataclass(frozen=True)
class VersionLine:
    """A version with the details of its transaction."""

    version: int
    time_millis: int | None
    operation: str = ""
    """Empty if it is not recorded."""
    rows: int | None = None
    added: int | None = None
    """The number of rows that it added; None if unknown."""
    removed: int | None = None
    """The number of rows that it removed; None if unknown."""
    principal: str = ""
    """The principal for whom a server created it."""
    message: str = ""
    """Its writer's message."""
    properties: Mapping[str, str] = field(default_factory=dict)
    """Further properties that its writer recorded."""
    tags: Sequence[str] = ()


@dataclass(frozen=True)
class History:
    """A page of a table's versions, the latest first."""

    versions: list[VersionLine] = field(default_factory=list)
    next_page: str = ""
    first_page: str = ""
    points: str = ""
    """The points of a polyline of the number of rows by version."""


@dataclass(frozen=True)
class References:
    """Tags and branches, each with the version that it refers to or starts from."""

    tags: Part[Mapping[str, Any]]
    branches: Part[Mapping[str, Any]]


async def load_references(ui: UiRequest, path: Sequence[str]) -> References:
    """Return the tags and branches of a table, by name."""
    tags, branches = await together(
        ui.attempt("list_table_tags", {"id": list(path)}, lambda answer: _sorted(answer.tags)),
        ui.attempt(
            "list_table_branches", {"id": list(path)}, lambda answer: _sorted(answer.branches)
        ),
    )
    return References(tags, branches)


def _sorted(found: Mapping[str, Any]) -> dict[str, Any]:
    return dict(sorted(found.items()))


async def load_history(ui: UiRequest, path: Sequence[str], branch: str | None) -> Part[History]:
    """Return a page of the versions of a table."""
    fields = {
        "id": list(path),
        "branch": branch,
        "descending": True,
        "limit": _PAGE_SIZE,
        "page_token": ui.text("page") or None,
    }
    page, tags = await together(
        ui.attempt("list_table_versions", fields),
        ui.attempt("list_table_tags", {"id": list(path)}),
    )
    if page.error is not None:
        return Part(error=page.error)
    answer = page.require()
    lines = await _read_lines(ui, path, branch, answer.versions, _tags_by_version(tags, branch))
    counts = [float(each.rows) for each in reversed(lines) if each.rows is not None]
    following = address("versions", path, branch=branch, page=answer.page_token)
    return Part(
        History(
            lines,
            following if answer.page_token else "",
            address("versions", path, branch=branch) if ui.text("page") else "",
            line_points(counts, PLOT_WIDTH, PLOT_HEIGHT) if len(counts) > 1 else "",
        )
    )


def _tags_by_version(tags: Part[Any], branch: str | None) -> dict[int, list[str]]:
    found: dict[int, list[str]] = {}
    for name, each in sorted(tags.value.tags.items()) if tags.value else ():
        if (each.branch or None) == branch:
            found.setdefault(each.version, []).append(name)
    return found


async def _read_lines(
    ui: UiRequest,
    path: Sequence[str],
    branch: str | None,
    versions: Sequence[Any],
    tags: Mapping[int, list[str]],
) -> list[VersionLine]:
    slots = asyncio.Semaphore(_AT_ONCE)
    numbers = [each.version for each in versions]
    read = await together(*(_read_version(ui, slots, path, branch, each) for each in numbers))
    return [
        VersionLine(
            each.version,
            each.timestamp_millis,
            change.operation,
            rows,
            change.added,
            change.removed,
            change.properties.get(PRINCIPAL, ""),
            change.properties.get(_MESSAGE, ""),
            {key: value for key, value in change.properties.items() if key not in _KNOWN},
            tags.get(each.version, ()),
        )
        for each, (rows, change) in zip(versions, read, strict=True)
    ]


async def _read_version(
    ui: UiRequest, slots: asyncio.Semaphore, path: Sequence[str], branch: str | None, version: int
) -> tuple[int | None, VersionChange]:
    """Return the number of rows of a version and its change, as far as they are known."""
    async with slots:
        fields = {"id": list(path), "version": version, "branch": branch}
        rows = await ui.attempt("count_table_rows", fields)
        made = await ui.attempt(
            "describe_transaction",
            {"id": [*path, str(version)]},
            method=partial(_describe_change, branch=branch),
        )
    return getattr(rows.value, "count", rows.value), made.value or VersionChange()


def _describe_change(namespace: LanceNamespace, request: Any, branch: str | None) -> VersionChange:
    """Return the change of a version. The identifier is the table's, followed by the version.

    The API cannot identify transactions of branches, and does not report the number of added rows.
    """
    *names, version = request.id
    child: Any = catalog_of(namespace, tuple(names))
    if isinstance(child, LanceBridgeNamespace):
        table = child.tables.load_by_id(names if child is namespace else names[1:])
        return change_of_version(table, int(version), branch)
    if branch is not None:
        return VersionChange()
    properties = namespace.describe_transaction(request).properties or {}
    written = {key: value for key, value in properties.items() if key not in _FACTS}
    return VersionChange(properties.get("operation", ""), written)
