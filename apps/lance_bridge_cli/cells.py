"""What a cell of a table shows people of a value: vectors, images and long text are shortened."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from .output import LONGEST_CELL, one_line, plain

NULL = "NULL"
_NUMBERS = 3
"""Numbers of a vector that are shown."""
_HEX = 16
"""Bytes that are shown as they are; of more, only the number."""
_IMAGES = (
    (b"\x89PNG\r\n\x1a\n", "PNG"),
    (b"\xff\xd8\xff", "JPEG"),
    (b"GIF8", "GIF"),
    (b"BM", "BMP"),
    (b"II*\x00", "TIFF"),
    (b"MM\x00*", "TIFF"),
)


def format_cell(value: Any, longest: int = LONGEST_CELL) -> str:
    """Return one line for a value of a row, of ``longest`` characters at most."""
    if value is None:
        return NULL
    if isinstance(value, bool):
        return "true" if value else "false"
    short = _shorten(value)
    text = short if isinstance(short, str) else json.dumps(short, ensure_ascii=False)
    return one_line(text, longest)


def _shorten(value: Any) -> Any:
    """Return a value with what is long in it replaced by a word about it, in types of JSON."""
    if isinstance(value, bytes):
        return _describe_bytes(value)
    if isinstance(value, Mapping):
        return {str(key): _shorten(each) for key, each in value.items()}
    if isinstance(value, list | tuple):
        return _describe_vector(value) if _is_vector(value) else [_shorten(each) for each in value]
    return plain(value)


def _is_vector(values: Sequence[Any]) -> bool:
    return len(values) > _NUMBERS + 1 and all(isinstance(each, int | float) for each in values)


def _describe_vector(values: Sequence[float]) -> str:
    first = ", ".join(f"{each:.4g}" for each in values[:_NUMBERS])
    return f"[{first}, … {len(values)} numbers]"


def _describe_bytes(value: bytes) -> str:
    if len(value) <= _HEX:
        return f"0x{value.hex()}"
    form = next((name for start, name in _IMAGES if value.startswith(start)), "")
    if value[:4] == b"RIFF" and value[8:12] == b"WEBP":
        form = "WebP"
    return f"<{form} image, {len(value)} bytes>" if form else f"<{len(value)} bytes>"
