"""Files of tables in object stores: locations of manifests, staged versions, and deletion."""

from .manifests import MAIN, TableFiles, VersionDirectory
from .store import TableStorage, store_errors
from .table_files import RESERVED_FILE

__all__ = [
    "MAIN",
    "RESERVED_FILE",
    "TableFiles",
    "TableStorage",
    "VersionDirectory",
    "store_errors",
]
