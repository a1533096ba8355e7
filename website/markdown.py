"""Markdown elements of generated pages."""

from __future__ import annotations


def table_row(*cells: str) -> str:
    """Return a row of a table, with bars escaped and line breaks replaced by spaces."""
    return "| " + " | ".join(" ".join(cell.replace("|", "\\|").split()) for cell in cells) + " |"
