"""What schemathesis cannot know from the specification: objects that exist, rows, reasons.

Loaded by `test_conformance` into schemathesis' own process, with the gateway's address and key in
the environment. Objects that a case may have dropped are made again before the next one.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable
from typing import Any

import httpx
import pyarrow as pa
import schemathesis
from schemathesis.core import NotSet
from schemathesis.core.parameters import ParameterLocation
from schemathesis.generation.meta import CoveragePhaseData
from schemathesis.specs.openapi.checks import negative_data_rejection, status_code_conformance

from lance_bridge.testing.calls import ipc

Case = schemathesis.Case[Any]
ARROW = "application/vnd.apache.arrow.stream"
NAMESPACE, TABLE, TAG = "films", "films$t", "v1"
HTTP = httpx.Client(
    base_url=os.environ["LANCE_BRIDGE_TEST_GATEWAY"],
    headers={"x-api-key": os.environ["LANCE_BRIDGE_TEST_API_KEY"]},
    timeout=60,
)
UNREAD = ("Not a ", "The body is not JSON", "The query p", "The header")
"""How messages begin when a request could not be read."""
TAKES = ("/drop", "/deregister", "/rename", "/create", "_columns", "/delete", "/restore")
"""How the paths of operations end that take away what other cases need."""
READS = ("/describe", "/exists", "/list", "/stats", "/count_rows")
"""How the paths of operations end which clients call without a body."""
TRIED_ONCE = {
    r"\b(identity|context)\b": "DescribeTable",
    r"^(Object with (valid|all required properties and) ')?id\b": "DescribeTable",
    r"\bfull_text_query\b": "QueryTable",
    r"\b(must|should|must_not|positive|negative)\b.*\b(match|multi_match|phrase|bool|boost)": "",
}
"""Parts of bodies that many operations have, and which one of them is tried with their values.

The gateway reads all bodies by one function, and a part by its type alone. A query inside a full
text query is read as the one around it, so that no operation is tried with its values.
"""
UNSUPPORTED = {
    "AlterTableAddColumns": "a virtual column is a function, which a compute engine runs",
    "AlterTableAlterColumns": "so is one that a column becomes",
    "AlterTableBackfillColumns": "its options are for a compute engine",
    "CreateMaterializedView": "it needs a compute engine",
    "RefreshMaterializedView": "it needs a compute engine",
}
"""Operations that may answer 406, as the specification's error code 0 has it, and why they do."""


def _rows() -> bytes:
    return ipc(pa.table({"id": pa.array(range(10), pa.int64()), "word": ["a"] * 10}))


@schemathesis.serializer(ARROW)
def serialize_rows(context: schemathesis.SerializationContext, value: Any) -> bytes:  # noqa: ARG001
    """Send rows where the specification says no more than bytes; what is not bytes as it is."""
    return _rows() if isinstance(value, bytes) else str(value).encode()


@schemathesis.hook
def map_case(context: schemathesis.HookContext, case: Case) -> Case:  # noqa: ARG001
    """Name objects that exist, unless the case is about a name."""
    if _is_valid(case, ParameterLocation.PATH) and "id" in (case.path_parameters or {}):
        is_namespace = case.operation.path.startswith("/v1/namespace/")
        case.path_parameters["id"] = NAMESPACE if is_namespace else TABLE
    if _is_valid(case, ParameterLocation.QUERY):
        (case.query or {}).pop("delimiter", None)
    if _is_valid(case, ParameterLocation.BODY) and isinstance(case.body, dict):
        case.body.pop("id", None)
    return case


@schemathesis.hook
def filter_case(context: schemathesis.HookContext, case: Case) -> bool:  # noqa: ARG001
    """Leave out the values of a part of the body that another operation is tried with."""
    phase = case.meta.phase.data if case.meta is not None else None
    if not isinstance(phase, CoveragePhaseData):
        return True
    found = [only for part, only in TRIED_ONCE.items() if re.search(part, phase.description)]
    return all(only == _operation_id(case) for only in found)


def _operation_id(case: Case) -> str:
    return str(case.operation.definition.raw["operationId"])


def _is_valid(case: Case, place: ParameterLocation) -> bool:
    parts = case.meta.components if case.meta is not None else {}
    return place not in parts or parts[place].mode.is_positive


@schemathesis.hook
def before_call(
    context: schemathesis.HookContext,  # noqa: ARG001
    case: Case,  # noqa: ARG001
    kwargs: dict[str, Any],
) -> None:
    """Have no request look for proxies and a .netrc: that is a tenth of its time."""
    if "session" in kwargs:
        kwargs["session"].trust_env = False


@schemathesis.hook
def after_call(context: schemathesis.HookContext, case: Case, response: Any) -> None:  # noqa: ARG001
    """Make the namespace and the table again where a case has taken or changed them."""
    if case.operation.path.endswith(TAKES) and response.status_code == 200:
        make_objects()


def make_objects() -> None:
    """Make a table with a tag."""
    HTTP.post(f"/v1/namespace/{NAMESPACE}/create", json={"mode": "exist_ok"}).raise_for_status()
    path, headers = f"/v1/table/{TABLE}/create?mode=overwrite", {"content-type": ARROW}
    HTTP.post(path, content=_rows(), headers=headers).raise_for_status()
    HTTP.post(f"/v1/table/{TABLE}/tags/create", json={"tag": TAG, "version": 1})


make_objects()


def _is_other_method(case: Case, response: schemathesis.Response) -> bool:  # noqa: ARG001
    return bool(case.method.upper() != case.operation.method.upper())


def _is_other_media_type(case: Case, response: schemathesis.Response) -> bool:
    sent = response.request.headers.get("content-type", "")
    return sent not in [each.media_type for each in case.operation.body]


def _is_unsupported(case: Case, response: schemathesis.Response) -> bool:
    return _operation_id(case) in UNSUPPORTED and response.json()["code"] == 0


UNDECLARED: dict[int, Callable[[Case, schemathesis.Response], bool]] = {
    405: _is_other_method,  # the specification has no answer to a method that it does not name
    406: _is_unsupported,
    415: _is_other_media_type,  # nor to a type that the operation does not take
}
"""When an answer may have a status that the specification does not declare for the operation."""


@schemathesis.check
def statuses_are_declared_or_known(
    context: schemathesis.CheckContext, response: schemathesis.Response, case: Case
) -> None:
    """A status is one that the operation declares, or is expected for a request like this."""
    is_known = UNDECLARED.get(response.status_code)
    if is_known is None or not is_known(case, response):
        status_code_conformance(context, response, case)


@schemathesis.check
def valid_requests_are_read(
    context: schemathesis.CheckContext,  # noqa: ARG001
    response: schemathesis.Response,
    case: Case,
) -> None:
    """A request that fits the specification may be refused for what it asks, not for its form."""
    is_positive = case.meta is not None and case.meta.generation.mode.is_positive
    if is_positive and response.status_code == 400:
        message = response.json()["error"]
        assert not message.startswith(UNREAD), message


@schemathesis.check
def invalid_requests_are_refused(
    context: schemathesis.CheckContext, response: schemathesis.Response, case: Case
) -> None:
    """A request that does not fit is refused, but for what clients are known to send.

    That is no body where the path says all, and null for what is left out.
    """
    lacks_body = isinstance(case.body, NotSet) and bool(case.operation.body)
    if not (lacks_body and case.operation.path.endswith(READS)) and not _has_null(case.body):
        negative_data_rejection(context, response, case)


def _has_null(value: object) -> bool:
    parts = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
    return value is None or any(_has_null(each) for each in parts)
