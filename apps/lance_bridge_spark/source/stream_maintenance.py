"""Maintenance of a table by the streams that write to it, as its properties say."""

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
"""After how many batches of a stream small fragments are compacted."""
CLEAN_UP_AFTER_HOURS = "stream.clean_up_after_hours"
"""After each compaction, old versions are deleted that are this old."""
_MOST = 999_999

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class Maintenance:
    """When a stream compacts its table, and which versions it deletes then."""

    every: int
    """Batches between two compactions."""
    older_than: timedelta | None = None

    @classmethod
    def of(cls, table: SparkTable) -> Maintenance | None:
        """Return what the properties of a table say, or None where they say nothing.

        Raises:
            InvalidInputError: (13) one is no whole number from 1 to 999,999, or the second
                is alone.
        """
        every = _number_in(table, COMPACT_EVERY)
        hours = _number_in(table, CLEAN_UP_AFTER_HOURS)
        if every is None and hours is not None:
            raise invalid(
                f"Table '{table.name}' has the property {CLEAN_UP_AFTER_HOURS} and no "
                f"{COMPACT_EVERY}, which says how often: set that too"
            )
        age = None if hours is None else timedelta(hours=hours)
        return None if every is None else cls(every, age)

    def run(self, address: TableAddress, batch: int) -> None:
        """Maintain the table if it is this batch's turn.

        The batch is committed: a failure is logged, and the next turn tries again.
        """
        if (batch + 1) % self.every:
            return
        # Only the driver commits: tasks import this module too, and need none of it.
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
