"""Operations on versions, tags and branches."""

from __future__ import annotations

from .base import Operations


class VersionOperations(Operations):
    """Operations on versions, tags and branches."""
