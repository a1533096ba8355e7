"""Beyond the trait: who manages a table's versions, its storage or its catalog."""

from __future__ import annotations

from collections.abc import Sequence

from ..managed import conversion, out_of_band
from ..managed.out_of_band import OutOfBand
from .base import Operations


class ManagementOperations(Operations):
    """Convert between the two ways, and deal with what was written past the catalog."""

    def manage_table(self, id: Sequence[str]) -> None:
        """Have the catalog hold a table's versions. Errors: 0, 1, 4, 13, 14, 19.

        Stop its writers first: those that opened it before go on writing to the storage, and what
        they write is not shown.
        """
        conversion.begin(self._lance_table(id))

    def release_table(self, id: Sequence[str]) -> None:
        """Leave a table's versions to its storage again. Errors: 1, 4, 13, 14, 19."""
        conversion.end(self._lance_table(id))

    def list_out_of_band_versions(self, id: Sequence[str]) -> OutOfBand:
        """List what was written past the catalog, and is not shown. Errors: 1, 4, 13, 19."""
        return out_of_band.inspect(self._lance_table(id))

    def adopt_out_of_band_versions(self, id: Sequence[str]) -> int:
        """Make such versions the table's own; return its latest. Errors: 1, 4, 13, 14, 19."""
        return out_of_band.adopt(self._lance_table(id))

    def discard_out_of_band_versions(self, id: Sequence[str]) -> int:
        """Delete such versions' manifests; return their number. Errors: 1, 4, 13, 14, 19."""
        return out_of_band.discard(self._lance_table(id))
