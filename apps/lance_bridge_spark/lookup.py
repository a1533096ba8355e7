"""Finding and creating tables by their addresses, on the driver.

The implementation is imported lazily: a worker imports this module with its tasks, which need none
of it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pyarrow as pa

from .addresses import TableAddress

if TYPE_CHECKING:
    from lance_bridge.records import TableRecord

    from .spark_tables import SparkTable


def find_table(address: TableAddress, entry: TableRecord | None = None) -> SparkTable:
    """Return the table at an address, with one catalog call.

    Args:
        entry: The table's entry, if it is loaded already; saves the call.

    Raises:
        TableNotFoundError: (4)
        NamespaceNotFoundError: (1)
        InvalidInputError: (13) it is not a Lance table.
        InvalidTableStateError: (19) its entry has no location.
    """
    from . import spark_tables  # noqa: PLC0415 - see the top of this file

    return spark_tables.find(address, entry)


def create_table(address: TableAddress, schema: pa.Schema) -> None:
    """Create an empty table. If several callers create it at once, one of them succeeds.

    Raises:
        TableAlreadyExistsError: (5)
        NamespaceNotFoundError: (1)
        InvalidInputError: (13)
    """
    from . import spark_tables  # noqa: PLC0415 - see the top of this file

    spark_tables.create(address, schema)
