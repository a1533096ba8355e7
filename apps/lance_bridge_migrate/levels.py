"""How thoroughly tables are verified: imported where a command only needs the choices."""

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
        """Return True where this level is `other` or a more thorough one."""
        levels = list(Level)
        return levels.index(self) >= levels.index(other)
