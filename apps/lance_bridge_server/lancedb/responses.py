"""What LanceDB's client expects of answers, how it is recognized, and the version that it needs."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

import lance_namespace as api
import pyarrow as pa
from lance_namespace import LanceNamespace
from lance_namespace.errors import (
    ErrorCode,
    InvalidTableStateError,
    ServiceUnavailableError,
    UnsupportedOperationError,
)
from lance_namespace_urllib3_client.models import QueryTableRequestVector
from starlette.requests import HTTPConnection

from lance_bridge.errors import display, invalid, unsupported
from lance_bridge.paging import names_of_all_pages

from ..errors import STATUS_BY_CODE
from ..operations import OPERATIONS, Operation
from .type_names import schema_to_json

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


# -- content ---------------------------------------------------------------------------------------


Answer = dict[str, Any]


def translate_answer(namespace: LanceNamespace, operation: str, request: Any, answer: Any) -> Any:
    """Return a response's fields as the client expects them.

    Raises:
        InvalidTableStateError: (19) the described table has no data, and so lacks the version and
            the schema that the client needs.
    """
    if operation == "describe_table":
        return _translate_description(namespace, request, answer)
    translate = _ANSWERS.get(operation)
    return answer if translate is None else translate(answer)


def version_of(answer: Any) -> int | None:
    """Return the table's version in a response, if any."""
    version = answer.get("version") if isinstance(answer, dict) else None
    return version if isinstance(version, int) else None


def _translate_description(namespace: LanceNamespace, request: Any, answer: Answer) -> Answer:
    if answer.get("schema") is None:
        raise InvalidTableStateError(
            f"Table '{display(request.id)}' is declared, but has no data yet: create it with rows"
        )
    schema = _read_schema(namespace, request, answer["version"])
    return {**answer, "schema": schema_to_json(answer["schema"], schema)}


def _read_schema(namespace: LanceNamespace, request: Any, version: int) -> pa.Schema:
    """Return a table's schema, from a query without results, which any namespace supports."""
    query = api.QueryTableRequest(
        id=request.id,
        branch=request.branch,
        version=version,
        filter="false",
        k=1,
        vector=QueryTableRequestVector(single_vector=[]),
    )
    if hasattr(namespace, "query_table_reader"):
        schema: pa.Schema = namespace.query_table_reader(query).schema
        return schema
    found = namespace.query_table(query)
    data = found if isinstance(found, bytes) else found.data
    return pa.ipc.open_file(pa.py_buffer(data)).schema


def _translate_tags(answer: Answer) -> Answer:
    return {
        name: {"version": tag["version"], "manifestSize": tag.get("manifestSize", 0), **tag}
        for name, tag in answer["tags"].items()
    }


def _translate_merge(answer: Answer) -> Answer:
    counts = (answer.get(f"num_{name}_rows") or 0 for name in ("updated", "inserted"))
    return {**answer, "num_rows": sum(counts)}


_ANSWERS: dict[str, Callable[[Answer], Answer]] = {
    "list_table_tags": _translate_tags,
    "update_table": lambda answer: {**answer, "rows_updated": answer.get("updated_rows", 0)},
    "merge_insert_into_table": _translate_merge,
}


# -- versions --------------------------------------------------------------------------------------


MIN_HEADERS = ("x-lancedb-min-version", "x-lancedb-min-read-version")
_VERSION_HEADER = "x-lancedb-version"
_NUMBER = re.compile(r"[0-9]{1,19}")


def min_version(headers: Mapping[str, str]) -> int:
    """Return the oldest version that a request accepts, or 0 for any.

    Raises:
        InvalidInputError: (13) it is not a number.
    """
    found = {name: headers[name] for name in MIN_HEADERS if name in headers}
    for name, text in found.items():
        if not _NUMBER.fullmatch(text):
            raise invalid(f"The header {name} is not a version: {text[:40]!r}")
    return max(map(int, found.values()), default=0)


def require_min_version(wanted: int, read: int | None) -> None:
    """Check that the version is not older than the request accepts. The client retries an error.

    Args:
        read: The latest version of the table; None if it is unknown.

    Raises:
        ServiceUnavailableError: (17)
    """
    if read is not None and read < wanted:
        raise ServiceUnavailableError(
            f"The latest version of the table is {read}, and the request is for {wanted} or later: "
            "the catalog is behind, or the table was recreated; in that case, reopen it"
        )


def version_header(version: int | None) -> dict[str, str]:
    """Return the header with the table's version in a response."""
    return {} if version is None else {_VERSION_HEADER: str(version)}


# -- statuses --------------------------------------------------------------------------------------


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


# -- listings --------------------------------------------------------------------------------------


TABLE_NAMES = replace(next(each for each in OPERATIONS if each.name == "list_tables"))
"""Lists the tables of one database, on the specification's route for all tables. Its ``page_token``
is the name of a table."""

ListPage = Callable[[Any], api.ListTablesResponse]


def pages_by_name(list_page: ListPage) -> ListPage:
    """Return a listing method whose page tokens are names.

    It raises InvalidInput (13) for a limit below 1, and what ``list_page`` raises.
    """

    def page_after(request: api.ListTablesRequest) -> api.ListTablesResponse:
        if request.limit is not None and request.limit < 1:
            raise invalid(f"limit must be 1 or more, not {request.limit}")
        whole = request.model_copy(update={"page_token": None, "limit": None})
        names = sorted(names_of_all_pages(list_page, whole, "tables"))
        if request.page_token:
            names = [name for name in names if name > request.page_token]
        page = names if request.limit is None else names[: request.limit]
        is_last = len(page) == len(names)
        return api.ListTablesResponse(tables=page, page_token=None if is_last else page[-1])

    return page_after
