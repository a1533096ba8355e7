"""How a request of LanceDB's remote client is recognized, and the version of its protocol."""

from __future__ import annotations

from starlette.requests import HTTPConnection

DATABASE_HEADER = "x-lancedb-database"
VERSION_HEADER = "phalanx-version"
VERSION = "0.3.0"
"""The protocol's version that the answers state: several vectors and structured full-text queries.
0.4 is uploads in parts, which no operation of a namespace can commit together."""

_AGENTS = "lancedb-"


def is_lancedb(connection: HTTPConnection) -> bool:
    """Return whether a request is of LanceDB's remote client.

    pylance's client has the header of the database too where LanceDB made it, but speaks the
    specification; it always sends the delimiter, which LanceDB's client does not.
    """
    headers = connection.headers
    if headers.get("user-agent", "").lower().startswith(_AGENTS):
        return True
    return DATABASE_HEADER in headers and "delimiter" not in connection.query_params
