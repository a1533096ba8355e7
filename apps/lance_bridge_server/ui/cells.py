"""Cells of the table of rows: shortened text, images, and vectors as line plots."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import pyarrow as pa
from markupsafe import escape

from lance_bridge.arrow_values import to_values
from lance_bridge.values import to_text

from .rendering import format_bytes
from .storage_plots import line_points

SPARK_WIDTH, SPARK_HEIGHT = 96, 20
_LONGEST = 140
"""Characters of a text that are shown."""
_WIDE = 40
"""The length of text that needs a wide column."""
_TAGS = 60
"""The approximate bytes of the tags around a value."""
_MOST_POINTS = 32
"""The largest number of points in a vector's line."""
_IMAGES = (
    (b"\x89PNG\r\n\x1a\n", "image/png"),
    (b"\xff\xd8\xff", "image/jpeg"),
    (b"GIF87a", "image/gif"),
    (b"GIF89a", "image/gif"),
)
LARGEST_IMAGE = 4 << 20
"""The largest image that is shown, in bytes."""
HEAD_BYTES = 13
"""How many bytes of a blob its cell needs: 12 are shown or recognised, and one more is left out."""


@dataclass(frozen=True)
class Blob:
    """A blob of a row."""

    size: int
    head: bytes | None = None
    """Its first bytes, or None if they are unknown."""


@dataclass(frozen=True)
class Cell:
    """The display of a value on a page."""

    kind: str
    """``null``, ``text``, ``number``, ``vector``, ``image`` or ``binary``."""
    text: str
    rest: int = 0
    """Characters of the text that are left out."""
    points: str = ""
    """The points of a vector's polyline."""
    is_long: bool = False
    """Whether a text needs a wide column."""
    source: str = ""
    """The address of an image."""
    similar: str = ""
    """The address of the rows nearest to this vector."""

    @property
    def weight(self) -> int:
        """The approximate number of bytes that it adds to a page."""
        texts = (self.text, self.points, self.source, self.similar)
        return _TAGS + sum(len(str(escape(each)).encode()) for each in texts)


def make_cell(value: Any, kind: str, similar: str = "", source: str = "") -> Cell:
    """Return the cell of a value.

    Args:
        value: As `to_values` returns it; a vector also as an array, and a blob as `Blob`.
        kind: The kind of its column, see `columns.ColumnLine.kind`.
        similar: See `Cell.similar`.
        source: The address of the value, if it is an image.
    """
    if value is None:
        return Cell("null", "null")
    if isinstance(value, bytes):
        return _binary(value, source)
    if isinstance(value, Blob):
        return _blob(value, source)
    if kind == "vector" and isinstance(value, (list, pa.Array)):
        return _vector(value, similar)
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        return _text(value if isinstance(value, str) else _plain_text(value))
    return Cell("number", f"{value:.6g}" if isinstance(value, float) else str(value))


def _text(text: str) -> Cell:
    rest = max(0, len(text) - _LONGEST)
    return Cell("text", text[:_LONGEST], rest, is_long=len(text) > _WIDE)


def _plain_text(value: Any) -> str:
    return str(value) if isinstance(value, bool) else to_text(_without_bytes(value))


def _without_bytes(value: Any) -> Any:
    """Return a value with the sizes of bytes in it, in place of the bytes."""
    if isinstance(value, dict):
        return {name: _without_bytes(each) for name, each in value.items()}
    if isinstance(value, list):
        return [_without_bytes(each) for each in value]
    return f"{format_bytes(len(value))} of bytes" if isinstance(value, bytes) else value


def _vector(values: Sequence[Any] | pa.Array, similar: str) -> Cell:
    """Return the cell of a vector. Only the numbers that it shows are converted."""
    step = max(1, math.ceil(len(values) / _MOST_POINTS))
    points = line_points(_numbers(values[::step]), SPARK_WIDTH, SPARK_HEIGHT)
    head = ", ".join(f"{each:.3g}" for each in _numbers(values[:4]))
    return Cell(
        "vector", f"[{head}{', …' if len(values) > 4 else ''}]", points=points, similar=similar
    )


def _numbers(values: Sequence[Any] | pa.Array) -> list[float]:
    items = to_values(values) if isinstance(values, pa.Array) else values
    return [math.nan if each is None else float(each) for each in items]


def _blob(blob: Blob, source: str) -> Cell:
    if blob.head is None:
        return Cell("binary", f"blob, {format_bytes(blob.size)}")
    cell = _binary(blob.head, source, blob.size)
    return replace(cell, text=f"blob, {cell.text}")


def _binary(data: bytes, source: str, size: int | None = None) -> Cell:
    """Return the cell of bytes, or of the first of so many bytes."""
    size = len(data) if size is None else size
    media_type = image_type(data)
    text = format_bytes(size)
    if media_type is None:
        return Cell("binary", f"{text}: {data[:12].hex(' ')}{' …' if size > 12 else ''}")
    if not source or size > LARGEST_IMAGE:
        return Cell("binary", f"{media_type}, {text}")
    return Cell("image", f"{media_type}, {text}", source=source)


def image_type(data: bytes) -> str | None:
    """Return the media type of an image that cannot contain scripts, or None."""
    for magic, media_type in _IMAGES:
        if data.startswith(magic):
            return media_type
    return "image/webp" if data[:4] == b"RIFF" and data[8:12] == b"WEBP" else None
