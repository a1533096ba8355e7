"""Commands that list page by page."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Annotated, Any

import typer

from .output import Output, message, table_of, tell_parts

Limit = Annotated[
    int | None, typer.Option("--limit", "-n", min=1, help="Show as many at most, and a token.")
]
PageToken = Annotated[
    str | None, typer.Option("--page-token", help="Go on after the page that gave this token.")
]


def tell_page(
    output: Output, key: str, rows: Sequence[Mapping[str, Any]], token: str | None
) -> None:
    """Print a page: a table, or a JSON object of its rows and the token of the next page."""
    columns = list(rows[0]) if rows else [key]
    tell_parts(output, {key: rows, "page_token": token}, [table_of(columns, rows)])
    if token and output is Output.TEXT:
        message(f"there is more: go on with --page-token {token}")
