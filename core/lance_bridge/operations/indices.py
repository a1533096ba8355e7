"""Operations on indices, and statistics of a table."""

from __future__ import annotations

from .base import Operations


class IndexOperations(Operations):
    """Operations on indices, and statistics of a table."""
