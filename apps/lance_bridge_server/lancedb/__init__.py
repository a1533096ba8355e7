"""Differences between the protocol of LanceDB's remote clients and the specification.

Source: code and recorded requests of the remote client of LanceDB 0.40 and 0.41. It is in Rust; the
Python and TypeScript clients wrap it. Requests of other clients are not changed.
"""

from .answers import translate_answer, version_of
from .databases import DatabasePaths, database_of, in_database
from .freshness import min_version, require_min_version, version_header
from .listing import TABLE_NAMES, pages_by_name
from .new_columns import NEW_COLUMNS, new_columns
from .protocol import VERSION, VERSION_HEADER, is_lancedb
from .requests import translate_request
from .statuses import status_of
from .unserved import unserved_route

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
