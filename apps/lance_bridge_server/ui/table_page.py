"""The pages about a table except its rows: overview, versions, and code to connect."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from lance_namespace import LanceNamespace
from starlette.responses import Response

from lance_bridge import LanceBridgeNamespace
from lance_bridge.errors import TableDataMissingError
from lance_bridge_doctor import Finding, diagnose_table
from lance_bridge_federated import FederatedNamespace

from ..authorization.accesses import catalog_of
from .columns import column_lines
from .rendering import html_page
from .snippets import snippets_for
from .storage_plots import FragmentPlot, share_percent
from .time_travel import State, requested_state
from .tree import load_tree
from .ui_request import Part, UiRequest, as_part, public_finding, together
from .versions import load_history, load_references

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
    tree, described, rows, stats, indices, findings = await together(
        load_tree(ui, path, is_table=True),
        as_part(describe(ui, path, state)),
        ui.attempt("count_table_rows", {"id": path, **state.fields}, _count_of),
        ui.attempt("get_table_stats", {"id": path, "branch": state.branch}),
        ui.attempt("list_table_indices", {"id": path, "limit": _MOST_INDICES, **state.fields}),
        ui.attempt("describe_table", {"id": path}, seconds=_DOCTOR_SECONDS, method=_diagnose),
    )
    missing = described.message if isinstance(described.error, TableDataMissingError) else ""
    # The entry is shown without its data, with the doctor's way out.
    table = await ui.call("describe_table", {"id": path}) if missing else described.require()
    if state.version is not None:
        stats = Part()  # they are about the latest version only
    return html_page(
        "table.html",
        principal=ui.principal,
        tree=tree,
        path=path,
        tab="table",
        state=state,
        table=table,
        missing=missing,
        columns=column_lines(table.var_schema.fields) if table.var_schema else [],
        rows=rows,
        stats=stats,
        plot=FragmentPlot.of(stats.value.fragment_stats) if stats.value else None,
        deleted_share=_deleted_share(table, rows),
        indices=indices,
        findings=findings,
        public=public_finding,
        index_coverage=share_percent,
        properties=dict(sorted((table.properties or {}).items())),
        metadata=dict(sorted((table.metadata or {}).items())),
    )


def _diagnose(namespace: LanceNamespace, request: Any) -> tuple[Finding, ...] | None:
    """Return the doctor's findings about a table, or None for unsupported catalogs."""
    names = list(request.id)
    child = catalog_of(namespace, tuple(names))
    if not isinstance(child, LanceBridgeNamespace):
        return None
    inner = names if child is namespace else names[1:]
    return diagnose_table(child, names[0] if child is not namespace else _CATALOG, inner)


def _count_of(result: Any) -> int:
    return int(getattr(result, "count", result))


def _deleted_share(table: Any, rows: Part[int]) -> float:
    """Return the percentage of deleted rows in the files."""
    if table.stats is None or rows.value is None:
        return 0.0
    deleted = int(table.stats.num_deleted_rows)
    return share_percent(deleted, rows.value)


async def show_versions(ui: UiRequest) -> Response:
    """Return the page of a table's versions, tags and branches."""
    path = ui.names
    branch = ui.text("branch") or None
    tree, table, history, references = await together(
        load_tree(ui, path, is_table=True),
        ui.call("describe_table", {"id": path, "check_declared": True}),
        load_history(ui, path, branch),
        load_references(ui, path),
    )
    return html_page(
        "versions.html",
        principal=ui.principal,
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
    tree, table = await together(
        load_tree(ui, path, is_table=True),
        ui.call("describe_table", {"id": path, "check_declared": True}),
    )
    base = ui.gateway.login.address or str(ui.http.base_url).rstrip("/")
    return html_page(
        "connect.html",
        principal=ui.principal,
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
