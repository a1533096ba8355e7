"""Files of tables in object stores: locations of manifests, staged versions, and deletion."""

from .lance_format import RESERVED_FILE
from .manifests import MAIN, VersionDirectory
from .store import (
    Claims,
    DataState,
    Presence,
    TableFiles,
    TableStorage,
    find_presence,
    store_errors,
)

__all__ = [
    "MAIN",
    "RESERVED_FILE",
    "Claims",
    "DataState",
    "Presence",
    "TableFiles",
    "TableStorage",
    "VersionDirectory",
    "find_presence",
    "store_errors",
]
