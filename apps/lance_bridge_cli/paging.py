"""Commands that list page by page."""

from __future__ import annotations

from typing import Annotated

import typer

Limit = Annotated[
    int | None, typer.Option("--limit", "-n", min=1, help="Show as many at most, and a token.")
]
PageToken = Annotated[
    str | None, typer.Option("--page-token", help="Go on after the page that gave this token.")
]
