"""Operations on columns and metadata."""

from __future__ import annotations

from .base import Operations


class SchemaOperations(Operations):
    """Operations on columns and metadata."""
