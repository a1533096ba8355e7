"""The levels of verification, apart from `run` so that commands import them quickly."""

from __future__ import annotations

from enum import Enum


class Level(str, Enum):
    """How thoroughly a table is verified; each level includes the ones before it."""

    NONE = "none"
    COUNTS = "counts"
    """Schema and number of rows."""
    SAMPLE = "sample"
    """Some rows, compared value by value."""
    CHECKSUMS = "checksums"
    """All rows, by a checksum of each column."""

    def includes(self, other: Level) -> bool:
        """Return whether this level is `other` or more thorough."""
        levels = list(Level)
        return levels.index(self) >= levels.index(other)
