"""The query in the address of a page of rows."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from .ui_request import UiRequest

SIZES = (10, 20, 50, 100)
METRICS = ("l2", "cosine", "dot", "hamming")


@dataclass(frozen=True)
class RowQuery:
    """The rows to read, and their order."""

    filter: str = ""
    """An SQL predicate."""
    text: str = ""
    """Words for a full-text search."""
    near: str = ""
    """A vector to search for the nearest rows, or ``row:ID`` for the vector of a row."""
    column: str = ""
    """The vector column to search; empty for the default."""
    metric: str = ""
    """The distance metric; empty for the default."""
    sort: str = ""
    """A column, with ``-`` before it for a descending order."""
    size: int = 20
    offset: int = 0

    @property
    def is_search(self) -> bool:
        """Whether it searches by a vector or a text."""
        return bool(self.text or self.near)

    @property
    def parameters(self) -> dict[str, Any]:
        """The query as parameters of an address."""
        size = None if self.size == RowQuery.size else self.size
        given = {name: getattr(self, name) for name in _TEXTS}
        return {**given, "size": size, "offset": self.offset or None}

    def fields(self, vector: Sequence[float] | None, count: int) -> dict[str, Any]:
        """Return the fields of QueryTable.

        Args:
            vector: The vector of `near`.
            count: How many rows to read.
        """
        fields: dict[str, Any] = {"k": count, "offset": self.offset, "vector": {}}
        if self.filter:
            fields |= {"filter": self.filter, "prefilter": True}
        if vector is not None:
            fields["vector"] = {"single_vector": list(vector)}
            fields["vector_column"] = self.column or None
            fields["distance_type"] = self.metric or None
        if self.text:
            fields["full_text_query"] = {"string_query": {"query": self.text}}
        if self.sort:
            name, ascending = self.sort.removeprefix("-"), not self.sort.startswith("-")
            fields["order_by"] = [{"column_name": name, "ascending": ascending}]
        return fields

    def order_of(self, column: str) -> str:
        """Return the value of ``aria-sort`` for a column; empty if it is not sorted."""
        if self.sort == column:
            return "ascending"
        return "descending" if self.sort == f"-{column}" else ""

    def sorted_by(self, column: str) -> RowQuery:
        """Return the query sorted by a column, descending if it is already sorted ascending."""
        return replace(self, sort=f"-{column}" if self.sort == column else column, offset=0)

    def at_offset(self, offset: int) -> RowQuery:
        """Return the query with another offset."""
        return replace(self, offset=max(0, offset))

    def near_row(self, row: int, column: str) -> RowQuery:
        """Return the query for the rows nearest to a row of the table."""
        return replace(self, near=f"row:{row}", column=column, text="", sort="", offset=0)


_TEXTS = ("filter", "text", "near", "column", "metric", "sort")


def requested_rows(ui: UiRequest) -> RowQuery:
    """Return the query in the address of a page. The size is rounded up to one of `SIZES`."""
    given: dict[str, Any] = {name: ui.text(name) for name in _TEXTS}
    return replace(
        RowQuery(**given), size=_size(ui.text("size")), offset=_number(ui.text("offset"))
    )


def _size(text: str) -> int:
    wanted = _number(text) or RowQuery.size
    return next((each for each in SIZES if each >= wanted), SIZES[-1])


def _number(text: str) -> int:
    return int(text) if text.isascii() and text.isdigit() and len(text) < 10 else 0
