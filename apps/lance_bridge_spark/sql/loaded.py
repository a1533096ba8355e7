"""Tables that a statement has loaded, so that planning its read needs no second catalog call."""

from __future__ import annotations

import threading
import uuid
from collections import OrderedDict

from ..spark_tables import SparkTable

_MOST = 256
"""More than are loaded at once by statements that are still to be planned."""

_tables: OrderedDict[str, SparkTable] = OrderedDict()
_lock = threading.Lock()


def keep(table: SparkTable) -> str:
    """Keep a table for a while, and return by what name to get it."""
    name = uuid.uuid4().hex
    with _lock:
        _tables[name] = table
        while len(_tables) > _MOST:
            _tables.popitem(last=False)
    return name


def get(name: str | None) -> SparkTable | None:
    """Return a table by its name, or None: another process had it, or too many came after it."""
    with _lock:
        return None if name is None else _tables.get(name)
