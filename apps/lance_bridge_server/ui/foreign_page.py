"""The pages of tables that are not Lance tables: a listing, and a page for each."""

from __future__ import annotations

from starlette.responses import Response

from lance_bridge.errors import display, invalid

from .browse import Listing
from .foreign import ForeignTable, describe_foreign, list_foreign
from .rendering import html_page
from .tree import load_tree
from .ui_request import UiRequest, together
from .urls import address

_PAGE_SIZE = 100


async def show_others(ui: UiRequest) -> Response:
    """Return the page with the names of a namespace's tables that are not Lance tables."""
    path = ui.names
    fields = {"id": path, "limit": _PAGE_SIZE, "page_token": ui.text("page") or None}
    tree, answer = await together(
        load_tree(ui, path), ui.call("list_tables", fields, method=list_foreign)
    )
    following = {"page": answer.page_token}
    return html_page(
        "others.html",
        principal=ui.principal,
        tree=tree,
        path=path,
        others=Listing(
            [(name, address("other", [*path, name])) for name in answer.tables],
            address("others", path, **following) if answer.page_token else "",
            address("others", path) if ui.text("page") else "",
        ),
    )


async def show_foreign(ui: UiRequest) -> Response:
    """Return the page of a table that is not a Lance table.

    Raises:
        InvalidInputError: (13) the catalog has no such tables.
    """
    path = ui.names
    found: ForeignTable | None
    tree, found = await together(
        load_tree(ui, path[:-1]), ui.call("describe_table", {"id": path}, method=describe_foreign)
    )
    if found is None:
        raise invalid(f"The catalog of '{display(path)}' contains only Lance tables")
    return html_page("foreign.html", principal=ui.principal, tree=tree, path=path, table=found)
