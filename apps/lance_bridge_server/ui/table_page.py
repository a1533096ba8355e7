"""The pages of a table: its schema and storage, versions, code for other programs, new tags."""

from __future__ import annotations

import asyncio
import json
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any, NamedTuple
from urllib.parse import quote

from lance_namespace import LanceNamespace
from lance_namespace.errors import (
    ErrorCode,
    InvalidInputError,
    LanceNamespaceError,
    TableTagAlreadyExistsError,
    TableVersionNotFoundError,
)
from starlette.responses import Response

from lance_bridge import LanceBridgeNamespace
from lance_bridge.credentials import PRINCIPAL
from lance_bridge.dataset import (
    TableStatistics,
    VersionChange,
    change_of_version,
    table_statistics,
)
from lance_bridge.dotted_names import written
from lance_bridge.errors import TableDataMissingError, invalid
from lance_bridge.requests import Ref
from lance_bridge_doctor import Finding, diagnose_table
from lance_bridge_federated import FederatedNamespace

from ..errors import STATUS_BY_CODE
from ..http.exchange import exchange_of
from .caches import catalog_at
from .rendering import (
    address,
    column_lines,
    fragment_bars,
    line_points,
    share_percent,
    shown_properties,
    with_units,
)
from .request import Result, UiRequest, as_result, error_text, gather, public_finding
from .row_queries import State, requested_state
from .sign_in import Forms, redirect
from .tree import load_tree

# -- versions --------------------------------------------------------------------------------------


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
    fragments: int | None = None


@dataclass(frozen=True)
class History:
    """A page of a table's versions, the latest first."""

    versions: list[VersionLine] = field(default_factory=list)
    next_page: str = ""
    first_page: str = ""
    points: str = ""
    """The points of a polyline of the number of rows by version."""
    fragment_points: str = ""
    """The points of a polyline of the number of fragments by version."""


class References(NamedTuple):
    """Tags and branches, each with the version that it refers to or starts from."""

    tags: Result[Mapping[str, Any]]
    branches: Result[Mapping[str, Any]]


async def load_references(ui: UiRequest, path: Sequence[str]) -> References:
    """Return the tags and branches of a table, by name."""
    fields = {"id": list(path)}
    found = await gather(
        ui.attempt("list_table_tags", fields, lambda answer: dict(sorted(answer.tags.items()))),
        ui.attempt(
            "list_table_branches", fields, lambda answer: dict(sorted(answer.branches.items()))
        ),
    )
    return References(*found)


async def load_history(ui: UiRequest, path: Sequence[str], branch: str | None) -> Result[History]:
    """Return a page of the versions of a table."""
    fields = {
        "id": list(path),
        "branch": branch,
        "descending": True,
        "limit": _PAGE_SIZE,
        "page_token": ui.text("page") or None,
    }
    page, tags = await gather(
        ui.attempt("list_table_versions", fields),
        ui.attempt("list_table_tags", {"id": list(path)}),
    )
    if page.error is not None:
        return Result(error=page.error)
    answer = page.require()
    lines = await _read_lines(ui, path, branch, answer.versions, _tags_by_version(tags, branch))
    following = address("versions", path, branch=branch, page=answer.page_token)
    return Result(
        History(
            lines,
            following if answer.page_token else "",
            address("versions", path, branch=branch) if ui.text("page") else "",
            _plot([each.rows for each in lines]),
            _plot([each.fragments for each in lines]),
        )
    )


def _plot(counts: Sequence[int | None]) -> str:
    """Return the polyline of the counts of versions, the latest first; empty for fewer than two."""
    known = [float(each) for each in reversed(counts) if each is not None]
    return line_points(known, PLOT_WIDTH, PLOT_HEIGHT) if len(known) > 1 else ""


def _tags_by_version(tags: Result[Any], branch: str | None) -> dict[int, list[str]]:
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
    read = await gather(*(_read_version(ui, slots, path, branch, each) for each in numbers))
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
            change.fragments,
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
    child, inner = catalog_at(namespace, names)
    if isinstance(child, LanceBridgeNamespace):
        return change_of_version(child.tables.load_by_id(inner), int(version), branch)
    if branch is not None:
        return VersionChange()
    properties = namespace.describe_transaction(request).properties or {}
    written = {key: value for key, value in properties.items() if key not in _FACTS}
    return VersionChange(properties.get("operation", ""), written)


# -- snippets --------------------------------------------------------------------------------------


_KEY = "LANCE_KEY"
"""The environment variable with the API key or token, as in the documentation."""


@dataclass(frozen=True)
class Snippet:
    """Code for one program."""

    title: str
    note: str
    text: str


def snippets_for(
    base: str,
    path: Sequence[str],
    location: str,
    method: str,
    *,
    database: str | None,
    has_catalog: bool,
) -> list[Snippet]:
    """Return the code for each program.

    Args:
        base: The address of this server.
        location: The location of the table, for Spark.
        method: How the principal was authenticated: an anonymous one needs no key.
        database: LanceDB's name of the table's namespace; None leaves LanceDB out.
        has_catalog: Whether the path begins with the name of a catalog, which Spark may also have.
    """
    has_key = method != "anonymous"
    lancedb = []
    if database is not None:
        lines = _lancedb(base, database, path[-1], has_key)
        lancedb.append(Snippet("LanceDB", "This server reads and searches.", lines))
    return [
        Snippet("pylance", "Reads the files itself.", _pylance(base, path, has_key)),
        *lancedb,
        Snippet(
            "Spark",
            "Reads the files itself; by name where it knows the catalog.",
            _spark(path if has_catalog else (), location),
        ),
        Snippet(
            "curl", "This server reads; the answer is an Arrow file.", _curl(base, path, has_key)
        ),
    ]


def _text(value: object) -> str:
    """Return a value as a Python literal."""
    return json.dumps(value, ensure_ascii=False)


def _pylance(base: str, path: Sequence[str], has_key: bool) -> str:
    header = f'    "header.x-api-key": os.environ["{_KEY}"],\n' if has_key else ""
    return (
        ("import os\n\n" if has_key else "")
        + "import lance\nimport lance_namespace\n\n"
        + f'ns = lance_namespace.connect("rest", {{\n    "uri": {_text(base)},\n{header}}})\n'
        + f"table = lance.dataset(namespace_client=ns, table_id={_text(list(path))})\n"
        + "print(table.head(10))\n"
    )


def _lancedb(base: str, database: str, table: str, has_key: bool) -> str:
    key = f'os.environ["{_KEY}"]' if has_key else '"none"'
    return (
        ("import os\n\n" if has_key else "")
        + "import lancedb\n\n"
        + f"db = lancedb.connect(\n    {_text(f'db://{database}')},\n"
        + f"    api_key={key},\n    host_override={_text(base)},\n)\n"
        + f"table = db.open_table({_text(table)})\nprint(table.search().limit(10).to_list())\n"
    )


def _spark(path: Sequence[str], location: str) -> str:
    """Return code that loads by name if the session has a catalog of the same name."""
    load = f"table = {_text(location)}\n"
    if path:
        setting = _text(f"spark.sql.catalog.{path[0]}.impl")
        load += f"if spark.conf.get({setting}, None):\n    table = {_text(written(tuple(path)))}\n"
    return (
        "import lance_bridge_spark\n\n"
        "lance_bridge_spark.register(spark)\n"
        f'{load}spark.read.format("lance").load(table).show(10)\n'
    )


def _curl(base: str, path: Sequence[str], has_key: bool) -> str:
    table = quote("$".join(path), safe="$")
    header = f'-H "x-api-key: ${_KEY}" ' if has_key else ""
    return (
        f"curl -fsS {header}-H 'Content-Type: application/json' \\\n"
        f'  -d \'{{"k": 10, "vector": {{}}}}\' \\\n'
        f"  {shlex.quote(f'{base}/v1/table/{table}/query')} -o rows.arrow\n"
    )


# -- page ------------------------------------------------------------------------------------------


_MOST_INDICES = 100
_DOCTOR_SECONDS = 5.0
_CATALOG = "CATALOG"
"""The placeholder in commands for the name of a root catalog, which the server does not know."""


def describe(ui: UiRequest, path: Sequence[str], state: State) -> Any:
    """Return an awaitable of the description of a table with its schema."""
    fields = {
        "id": list(path),
        "load_detailed_metadata": True,
        "check_declared": True,
        "vend_credentials": True,  # the server reads the schema with them; no page shows them
        **state.fields,
    }
    return ui.call("describe_table", fields)


async def show_overview(ui: UiRequest) -> Response:
    """Return the page of a table: its schema, indices, storage and properties."""
    path = ui.names
    state = await requested_state(ui, path)
    tree, described, rows, stats, indices, findings = await gather(
        load_tree(ui, path, is_table=True),
        as_result(describe(ui, path, state)),
        ui.attempt("count_table_rows", {"id": path, **state.fields}, count_of),
        ui.attempt("get_table_stats", {"id": path, "branch": state.branch}, method=_load_stats),
        ui.attempt("list_table_indices", {"id": path, "limit": _MOST_INDICES, **state.fields}),
        ui.attempt("describe_table", {"id": path}, seconds=_DOCTOR_SECONDS, method=_diagnose),
    )
    missing = described.message if isinstance(described.error, TableDataMissingError) else ""
    # The entry is shown without its data, with the doctor's way out.
    table = await ui.call("describe_table", {"id": path}) if missing else described.require()
    if state.version is not None:
        stats = Result()  # they are about the latest version only
    sizes, counted = _add_columns(table, stats.value)
    deleted = table.stats.num_deleted_rows if table.stats else 0
    return ui.page(
        "table.html",
        tree=tree,
        path=path,
        tab="table",
        state=state,
        table=table,
        missing=missing,
        columns=column_lines(table.var_schema),
        rows=rows,
        stats=stats,
        sizes=sizes,
        total_bytes=counted.total_bytes if counted else 0,
        bars=fragment_bars(counted.fragment_stats) if counted else [],
        deleted_share=share_percent(deleted, rows.value) if rows.error is None else 0.0,
        indices=indices,
        findings=findings,
        public=public_finding,
        share=share_percent,
        properties=shown_properties(table.properties),
        metadata=dict(sorted((table.metadata or {}).items())),
    )


def _add_columns(table: Any, stats: Any) -> tuple[Mapping[str, int], Any]:
    """Add units to the types of a described table.

    Returns:
        The sizes of its columns, as far as they are known, and the response to GetTableStats.
    """
    if not isinstance(stats, TableStatistics):
        return {}, stats
    if table.var_schema:
        with_units(table.var_schema.fields, stats.schema)
    return stats.sizes, stats.response


def _load_stats(namespace: LanceNamespace, request: Any) -> Any:
    """Return the statistics of a table, and of its columns if its catalog has them."""
    child, inner = catalog_at(namespace, request.id)
    if isinstance(child, LanceBridgeNamespace):
        return table_statistics(child.tables.load_by_id(inner), Ref.of(branch=request.branch))
    return namespace.get_table_stats(request)


def _diagnose(namespace: LanceNamespace, request: Any) -> tuple[Finding, ...] | None:
    """Return the doctor's findings about a table, or None for unsupported catalogs."""
    child, inner = catalog_at(namespace, request.id)
    if not isinstance(child, LanceBridgeNamespace):
        return None
    return diagnose_table(child, _CATALOG if child is namespace else request.id[0], inner)


def count_of(result: Any) -> int:
    """Return the number of rows in a result of CountTableRows."""
    return int(getattr(result, "count", result))


async def _tree_and_table(ui: UiRequest) -> list[Any]:
    """Return the tree beside the page of a table, and the table."""
    described = ui.call("describe_table", {"id": ui.names, "check_declared": True})
    return await gather(load_tree(ui, ui.names, is_table=True), described)


async def show_versions(ui: UiRequest) -> Response:
    """Return the page of a table's versions, tags and branches."""
    path = ui.names
    branch = ui.text("branch") or None
    (tree, table), history, references = await gather(
        _tree_and_table(ui), load_history(ui, path, branch), load_references(ui, path)
    )
    return ui.page(
        "versions.html",
        tree=tree,
        path=path,
        tab="versions",
        state=State(f"branch:{branch}" if branch else "", branch=branch),
        table=table,
        branch=branch,
        history=history,
        references=references,
    )


async def show_connect(ui: UiRequest) -> Response:
    """Return the page with code to read a table from other programs."""
    path = ui.names
    tree, table = await _tree_and_table(ui)
    base = ui.gateway.login.address or str(ui.http.base_url).rstrip("/")
    return ui.page(
        "connect.html",
        tree=tree,
        path=path,
        tab="connect",
        state=State(),
        table=table,
        snippets=snippets_for(
            base,
            path,
            table.location or "",
            ui.principal.method,
            database=ui.gateway.databases.name_of(path[:-1]),
            has_catalog=isinstance(ui.gateway.namespace, FederatedNamespace),
        ),
    )


# -- tags ------------------------------------------------------------------------------------------


_FORM_ERRORS = (InvalidInputError, TableTagAlreadyExistsError, TableVersionNotFoundError)
"""Errors that the form shows. Others have their own pages."""
_MOST_DIGITS = 18


@dataclass(frozen=True)
class TagPages:
    """The pages for creating a tag."""

    forms: Forms

    async def ask(self, ui: UiRequest) -> Response:
        """Return the form; with a name and a version, the page that asks for confirmation."""
        return await self._page(ui, ui.text("name"), ui.text("version"))

    async def create(self, ui: UiRequest) -> Response:
        """Create the tag, and return a redirect to the table's versions."""
        fields = await self.forms.read(ui.http)
        name, version = fields.get("name", ""), fields.get("version", "")
        path = ui.names
        try:
            request = {"id": path, "tag": name, "version": _version(version)}
            await ui.call("create_table_tag", request)
        except _FORM_ERRORS as error:
            return await self._page(ui, name, version, error)
        return redirect(address("versions", path))

    async def _page(
        self, ui: UiRequest, name: str, version: str, error: LanceNamespaceError | None = None
    ) -> Response:
        tree, table = await _tree_and_table(ui)
        if error is not None:
            exchange_of(ui.http.scope).code = error.code.value
        return ui.page(
            "tag.html",
            status=STATUS_BY_CODE[ErrorCode(error.code)] if error else 200,
            tree=tree,
            path=ui.names,
            tab="versions",
            state=State(),
            table=table,
            name=name,
            version=version,
            message=error_text(error) if error else "",
            is_complete=bool(name and version) and error is None,
            token=self.forms.token(ui.http),
        )


def _version(text: str) -> int:
    if not (text.isascii() and text.isdigit() and len(text) <= _MOST_DIGITS):
        raise invalid(f"'{text[:40]}' is not a version: versions are numbers")
    return int(text)
