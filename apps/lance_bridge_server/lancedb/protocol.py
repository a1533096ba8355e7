"""How a request of LanceDB's remote client is recognized, and the version of its protocol."""

from __future__ import annotations

from starlette.requests import HTTPConnection

DATABASE_HEADER = "x-lancedb-database"
VERSION_HEADER = "phalanx-version"
VERSION = "0.3.0"
"""The protocol version in responses: it has several vectors and structured full-text queries.
0.4 adds uploads in parts, which no operation of a namespace can commit together."""

_AGENTS = "lancedb-"


def is_lancedb(connection: HTTPConnection) -> bool:
    """Return whether a request comes from LanceDB's remote client.

    A pylance client that LanceDB creates also sends the database header, but follows the
    specification. It always sends the delimiter, which LanceDB's client does not.
    """
    headers = connection.headers
    if headers.get("user-agent", "").lower().startswith(_AGENTS):
        return True
    return DATABASE_HEADER in headers and "delimiter" not in connection.query_params
