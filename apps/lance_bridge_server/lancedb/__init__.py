"""Differences between the protocol of LanceDB's remote clients and the specification.

Source: code and recorded requests of the remote client of LanceDB 0.40 and 0.41. It is in Rust; the
Python and TypeScript clients wrap it. Requests of other clients are not changed.
"""

from .requests import (
    NEW_COLUMNS,
    DatabasePaths,
    database_of,
    in_database,
    new_columns,
    translate_request,
)
from .responses import (
    TABLE_NAMES,
    VERSION,
    VERSION_HEADER,
    is_lancedb,
    min_version,
    pages_by_name,
    require_min_version,
    status_of,
    translate_answer,
    unserved_route,
    version_header,
    version_of,
)

__all__ = [
    "NEW_COLUMNS",
    "TABLE_NAMES",
    "VERSION",
    "VERSION_HEADER",
    "DatabasePaths",
    "database_of",
    "in_database",
    "is_lancedb",
    "min_version",
    "new_columns",
    "pages_by_name",
    "require_min_version",
    "status_of",
    "translate_answer",
    "translate_request",
    "unserved_route",
    "version_header",
    "version_of",
]
