"""Routes of LanceDB's client that are not served, and why.

The error is "not supported", because the client would read a 404 as a missing table.
"""

from __future__ import annotations

from lance_namespace.errors import UnsupportedOperationError

from lance_bridge.errors import unsupported

REASONS = {
    "clone": "a clone reads any location with the server's credentials; use lance.shallow_clone "
    "and register_table",
    "prewarm": "the server keeps no cache of indices or pages between requests",
    "multipart_write": "a namespace has no operation that commits several uploads together",
    "cherry_pick": "a namespace has no operation that applies the changes of a branch",
    "diff": "a namespace has no operation that compares branches",
    "fetch_blobs": "a namespace has no operation that reads blobs by their row",
    "errors": "functions run in LanceDB Enterprise only",
}
_ENTERPRISE = "only LanceDB Enterprise has it"


def unserved_route(method: str, path: str) -> UnsupportedOperationError:
    """Return the error for a route that is not served."""
    parts = path.rstrip("/").split("/")
    reason = next((REASONS[part] for part in reversed(parts) if part in REASONS), _ENTERPRISE)
    return unsupported(f"{method} {path[:200]} is not supported: {reason}")
