"""Tables that statements have loaded, so that planning a read needs no second catalog call."""

from __future__ import annotations

import threading
import uuid
from collections import OrderedDict

from ..spark_tables import SparkTable

_MOST = 256
"""More tables than concurrent statements load before they are planned."""

_tables: OrderedDict[str, SparkTable] = OrderedDict()
_lock = threading.Lock()


def keep(table: SparkTable) -> str:
    """Keep a table for some time, and return the name to get it by."""
    name = uuid.uuid4().hex
    with _lock:
        _tables[name] = table
        while len(_tables) > _MOST:
            _tables.popitem(last=False)
    return name


def get(name: str | None) -> SparkTable | None:
    """Return a table by its name, or None if another process kept it or it was evicted."""
    with _lock:
        return None if name is None else _tables.get(name)
