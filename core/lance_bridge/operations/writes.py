"""Operations that write rows: insert, merge, update, delete."""

from __future__ import annotations

from .base import Operations


class WriteOperations(Operations):
    """Operations that write rows: insert, merge, update, delete."""
