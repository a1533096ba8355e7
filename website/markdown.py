"""Pieces of Markdown that generated pages are made of."""

from __future__ import annotations


def table_row(*cells: str) -> str:
    """Return a row of a table; line breaks and bars in cells are escaped."""
    return "| " + " | ".join(" ".join(cell.replace("|", "\\|").split()) for cell in cells) + " |"
