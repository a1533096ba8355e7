"""The HTTP status of an error, for a client that retries requests and interprets errors by status.

The client retries most requests, including writes, after 409, 429, 500, 502, 503 and 504, and reads
404 as a missing table, index, branch or database, depending on the operation.
"""

from __future__ import annotations

from lance_namespace.errors import ErrorCode

from ..errors import STATUS_BY_CODE
from ..operations import Operation

OUTCOME_UNKNOWN = 424
"""The status of a failed write that may have changed something: the client does not retry it. It
means Failed Dependency, which fits a failure of a catalog or storage."""

_MISSING = frozenset({1, 4})  # a namespace or a table
_MISSING_BY_OPERATION = {
    "describe_table": _MISSING | {11},  # "the version of the table"
    "create_table_branch": _MISSING | {11, 22},
    "delete_table_branch": frozenset({22}),
    "drop_table_index": frozenset({6}),
    "describe_table_index_stats": frozenset({6}),
}
"""The codes that the client interprets correctly if their status is 404. Others get 400, and the
client shows the error's message."""

_CONFLICTS = frozenset({14})  # nothing was changed: the client may retry it
_CONFLICTS_BY_OPERATION = {
    "create_namespace": _CONFLICTS | {2},
    "drop_namespace": _CONFLICTS | {3},
    "create_table_branch": _CONFLICTS | {23},
}
"""The codes that the client interprets correctly if their status is 409, in operations that it does
not retry or that may be retried."""

_FAILURES = frozenset({17, 18, 21})


def status_of(code: ErrorCode, operation: Operation | None, *, is_started: bool) -> int:
    """Return the status for an error.

    Args:
        operation: The operation of the request, if it is known.
        is_started: Whether a thread has started it, so that a write may have had an effect.
    """
    status = STATUS_BY_CODE[code]
    name = operation.name if operation else ""
    if status == 404 and code not in _MISSING_BY_OPERATION.get(name, _MISSING):
        return 400
    if status == 409 and code not in _CONFLICTS_BY_OPERATION.get(name, _CONFLICTS):
        return 400
    if is_started and code in _FAILURES and operation and not operation.is_read:
        return OUTCOME_UNKNOWN
    return status
