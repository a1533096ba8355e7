"""Lists a database's tables in pages that start after a name (``table_names``)."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import lance_namespace as api

from lance_bridge.errors import invalid
from lance_bridge.paging import names_of_all_pages

from ..operations import OPERATIONS

TABLE_NAMES = replace(next(each for each in OPERATIONS if each.name == "list_tables"))
"""Lists the tables of one database, on the specification's route for all tables. Its ``page_token``
is the name of a table."""

ListPage = Callable[[Any], api.ListTablesResponse]


def pages_by_name(list_page: ListPage) -> ListPage:
    """Return a listing method whose page tokens are names.

    It raises InvalidInput (13) for a limit below 1, and what ``list_page`` raises.
    """

    def page_after(request: api.ListTablesRequest) -> api.ListTablesResponse:
        if request.limit is not None and request.limit < 1:
            raise invalid(f"limit must be 1 or more, not {request.limit}")
        whole = request.model_copy(update={"page_token": None, "limit": None})
        names = sorted(names_of_all_pages(list_page, whole, "tables"))
        if request.page_token:
            names = [name for name in names if name > request.page_token]
        page = names if request.limit is None else names[: request.limit]
        is_last = len(page) == len(names)
        return api.ListTablesResponse(tables=page, page_token=None if is_last else page[-1])

    return page_after
