"""Operations that read rows: query, explain and analyze a plan."""

from __future__ import annotations

from .base import Operations


class QueryOperations(Operations):
    """Operations that read rows: query, explain and analyze a plan."""
