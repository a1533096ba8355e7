"""Maintenance of a table by the streams that write to it, configured by its properties."""

from __future__ import annotations

import logging
from dataclasses import dataclass
from datetime import timedelta
from typing import TYPE_CHECKING

from lance_namespace.errors import LanceNamespaceError

from lance_bridge.errors import first_line, invalid

from ..addresses import TableAddress
from ..lookup import find_table
from .options import whole_number

if TYPE_CHECKING:
    from ..spark_tables import SparkTable

COMPACT_EVERY = "stream.compact_every"
"""The number of batches of a stream after which small fragments are compacted."""
CLEAN_UP_AFTER_HOURS = "stream.clean_up_after_hours"
"""After each compaction, versions that are at least this old are deleted."""
_MOST = 999_999

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class Maintenance:
    """How often a stream compacts its table, and which old versions it then deletes."""

    every: int
    """Batches between two compactions."""
    older_than: timedelta | None = None

    @classmethod
    def of(cls, table: SparkTable) -> Maintenance | None:
        """Return the maintenance that a table's properties configure, or None.

        Raises:
            InvalidInputError: (13) a property is not a whole number from 1 to 999,999, or only
                `CLEAN_UP_AFTER_HOURS` is set.
        """
        every = _number_in(table, COMPACT_EVERY)
        hours = _number_in(table, CLEAN_UP_AFTER_HOURS)
        if every is None and hours is not None:
            raise invalid(
                f"Property {CLEAN_UP_AFTER_HOURS} of table '{table.name}' requires "
                f"{COMPACT_EVERY}, which sets how often to clean up: set both"
            )
        age = None if hours is None else timedelta(hours=hours)
        return None if every is None else cls(every, age)

    def run(self, address: TableAddress, batch: int) -> None:
        """Maintain the table if it is due after this batch.

        A failure is logged, because the batch is committed, and the next maintenance tries again.
        """
        if (batch + 1) % self.every:
            return
        # Only the driver commits; tasks import this module too, and do not need these functions.
        from lance_bridge.dataset import clean_up, compact  # noqa: PLC0415

        try:
            compact(find_table(address))
            if self.older_than is not None:
                clean_up(find_table(address), older_than=self.older_than)
        except LanceNamespaceError as error:
            logger.warning(
                "Table '%s' was not maintained after batch %d: %s",
                address.name,
                batch,
                first_line(error),
            )


def _number_in(table: SparkTable, key: str) -> int | None:
    text = table.properties.get(key)
    if text is None:
        return None
    return whole_number(f"Property {key} of table '{table.name}'", text, most=_MOST)
