"""SQL statements on Databricks that take long, are lost, fail, or are not taken at all."""

from __future__ import annotations

import time
from collections.abc import Callable

import pytest
from lance_namespace.errors import (
    InvalidInputError,
    PermissionDeniedError,
    ServiceUnavailableError,
    TableNotFoundError,
    ThrottlingError,
)
from servers.http_proxy import Answer, Fault, HttpProxy
from servers.unity import UnityServer

from lance_bridge.catalog import TableRecord
from lance_bridge.errors import OutcomeUnknownError
from lance_bridge_unity.catalog import UnityCatalog

from . import building
from .building import TABLE, Connect

STATEMENTS = "POST /api/2.0/sql/statements"
POLLS = "GET /api/2.0/sql/statements/*"
FAILED = {
    "statement_id": "1",
    "status": {"state": "FAILED", "error": {"error_code": "BAD_REQUEST", "message": "no"}},
}


def record(name: str = "t", own: str = "1", **more: str) -> TableRecord:
    return building.record(name, own, "s3://bucket", **more)


def test_a_slow_statement_is_waited_for(workspace: UnityServer, databricks: Connect) -> None:
    workspace.databricks.statements.polls = 3
    assert databricks().create_table(record()).path == TABLE


def test_a_statement_that_takes_too_long_is_cancelled(
    workspace: UnityServer, databricks: Connect
) -> None:
    workspace.databricks.statements.polls = 10_000
    started = time.monotonic()
    with pytest.raises(ServiceUnavailableError, match="cancelled") as caught:
        databricks(statement_timeout="0.5").create_table(record())
    assert not isinstance(caught.value, OutcomeUnknownError)
    assert time.monotonic() - started < 30
    with pytest.raises(TableNotFoundError):
        databricks().load_table(TABLE)


@pytest.mark.parametrize("fault", [Fault.LOSE_REPLY, Fault.TRUNCATE_REPLY, Fault.MALFORMED_REPLY])
def test_a_statement_whose_reply_is_lost_is_sent_once(
    workspace: UnityServer, workspace_proxy: HttpProxy, databricks: Connect, fault: Fault
) -> None:
    workspace_proxy.fail_next(STATEMENTS, fault)
    with pytest.raises(OutcomeUnknownError):
        databricks().create_table(record())
    assert len(workspace.databricks.statements.submitted) == 1


def test_a_statement_that_cannot_be_polled_is_unknown(
    workspace: UnityServer, workspace_proxy: HttpProxy, databricks: Connect
) -> None:
    workspace.databricks.statements.polls = 3
    workspace_proxy.fail_next(POLLS, Fault.RESET, times=99)
    with pytest.raises(OutcomeUnknownError, match="outcome of statement"):
        databricks(max_retries="1").create_table(record())


def test_a_statement_whose_client_loses_its_login_is_unknown(
    workspace: UnityServer, workspace_proxy: HttpProxy, databricks: Connect
) -> None:
    catalog = databricks(token=None, client_id="double-client", client_secret="double-secret")
    catalog.load_namespace(TABLE[:2])
    workspace.databricks.statements.polls = 3
    workspace.databricks.authority.clients.clear()
    workspace_proxy.fail_next(POLLS, Answer.of_json(401, {"error_code": "UNAUTHENTICATED"}))
    with pytest.raises(OutcomeUnknownError, match="outcome of statement"):
        catalog.create_table(record())


def test_a_statement_that_cannot_be_cancelled_is_unknown(
    workspace: UnityServer, workspace_proxy: HttpProxy, databricks: Connect
) -> None:
    workspace.databricks.statements.polls = 10_000
    workspace_proxy.fail_next("POST */cancel", Answer.of_json(500, {}), times=99)
    with pytest.raises(OutcomeUnknownError, match="could not be cancelled"):
        databricks(statement_timeout="0.3").create_table(record())


@pytest.mark.parametrize(
    "refusal",
    [
        (400, "INVALID_PARAMETER_VALUE", InvalidInputError),
        (404, "RESOURCE_DOES_NOT_EXIST", InvalidInputError),
        (404, "NOT_FOUND", InvalidInputError),
        (404, "", InvalidInputError),
        (403, "PERMISSION_DENIED", PermissionDeniedError),
        (503, "TEMPORARILY_UNAVAILABLE", OutcomeUnknownError),
    ],
)
@pytest.mark.parametrize(
    "change",
    [
        lambda catalog: catalog.create_table(record("u")),
        lambda catalog: catalog.alter_table(catalog.load_table(TABLE).with_properties({"a": "b"})),
        lambda catalog: catalog.rename_table(record(), ("c", "s", "u")),
    ],
    ids=["create", "alter", "rename"],
)
def test_a_warehouse_that_takes_no_statement_is_not_an_object_that_is_missing(
    workspace_proxy: HttpProxy,
    databricks: Connect,
    change: Callable[[UnityCatalog], object],
    refusal: tuple[int, str, type[Exception]],
) -> None:
    status, code, kind = refusal
    catalog = databricks()
    catalog.create_table(record())
    content = {"error_code": code, "message": "the warehouse is not there"}
    workspace_proxy.fail_next(STATEMENTS, Answer.of_json(status, content))
    with pytest.raises(kind, match="the warehouse is not there") as caught:
        change(catalog)
    assert type(caught.value) is kind


def test_a_warehouse_of_another_name_is_named(databricks: Connect) -> None:
    with pytest.raises(InvalidInputError, match=r"'other' \(warehouse_id\) refuses"):
        databricks(warehouse_id="other").create_table(record())


@pytest.mark.parametrize(
    ("status", "kind"),
    [
        (
            {
                "state": "FAILED",
                "error": {"error_code": "NOT_FOUND", "message": "no such external location"},
            },
            InvalidInputError,
        ),
        (
            {
                "state": "FAILED",
                "error": {
                    "error_code": "BAD_REQUEST",
                    "message": "com.databricks.sql.acl.UnauthorizedAccessException: "
                    "PERMISSION_DENIED: User does not have CREATE TABLE",
                },
            },
            PermissionDeniedError,
        ),
        (
            {
                "state": "FAILED",
                "error": {
                    "error_code": "UNKNOWN",
                    "message": "INVALID_PARAMETER_VALUE.LOCATION_OVERLAP: Input path overlaps",
                },
            },
            InvalidInputError,
        ),
        (
            {
                "state": "FAILED",
                "error": {"error_code": "UNKNOWN", "message": "[LOCATION_OVERLAP] overlaps"},
            },
            InvalidInputError,
        ),
        ({"state": "CANCELED"}, OutcomeUnknownError),
        ({"state": "SOMETHING_NEW"}, OutcomeUnknownError),
        ({}, OutcomeUnknownError),
        (FAILED["status"], InvalidInputError),
        (
            {"state": "FAILED", "error": {"error_code": "INTERNAL_ERROR", "message": "no"}},
            OutcomeUnknownError,
        ),
        (
            {
                "state": "FAILED",
                "error": {
                    "error_code": "BAD_REQUEST",
                    "message": "PERMISSION_DENIED: User does not have USE SCHEMA",
                },
            },
            PermissionDeniedError,
        ),
    ],
)
def test_statements_that_end_badly(
    workspace_proxy: HttpProxy, databricks: Connect, status: object, kind: type[Exception]
) -> None:
    reply = Answer.of_json(200, {"statement_id": "1", "status": status})
    workspace_proxy.fail_next(STATEMENTS, reply)
    with pytest.raises(kind) as caught:
        databricks().create_table(record())
    assert type(caught.value) is kind


@pytest.mark.parametrize(
    ("code", "kind"),
    [
        ("RESOURCE_EXHAUSTED", ThrottlingError),
        ("TEMPORARILY_UNAVAILABLE", OutcomeUnknownError),
        ("SERVICE_UNDER_MAINTENANCE", OutcomeUnknownError),
        ("DEADLINE_EXCEEDED", OutcomeUnknownError),
        ("CANCELLED", OutcomeUnknownError),
        ("IO_ERROR", OutcomeUnknownError),
    ],
)
def test_statements_that_fail_for_want_of_the_service(
    workspace_proxy: HttpProxy, databricks: Connect, code: str, kind: type[Exception]
) -> None:
    status = {"state": "FAILED", "error": {"error_code": code, "message": "not now"}}
    workspace_proxy.fail_next(
        STATEMENTS, Answer.of_json(200, {"statement_id": "1", "status": status})
    )
    with pytest.raises(kind) as caught:
        databricks().create_table(record())
    assert type(caught.value) is kind


def test_a_statement_whose_result_is_closed_has_happened(
    workspace_proxy: HttpProxy, databricks: Connect
) -> None:
    closed = {"statement_id": "1", "status": {"state": "CLOSED"}}
    workspace_proxy.fail_next(STATEMENTS, Answer.of_json(200, closed))
    catalog = databricks()
    catalog.rename_table(record(), ("c", "s", "u"))
    assert workspace_proxy.counts[STATEMENTS] == 1


@pytest.mark.parametrize("fault", [Fault.RESET, Fault.LOSE_REPLY, Fault.TRUNCATE_REPLY])
def test_a_poll_is_repeated_until_it_is_answered(
    workspace: UnityServer, workspace_proxy: HttpProxy, databricks: Connect, fault: Fault
) -> None:
    workspace.databricks.statements.polls = 3
    workspace_proxy.fail_next(POLLS, fault, times=2)
    assert databricks().create_table(record()).path == TABLE
    assert workspace_proxy.counts[STATEMENTS] == 1


def test_statement_ids_are_escaped_in_urls(workspace_proxy: HttpProxy, databricks: Connect) -> None:
    pending = {"statement_id": "../../x?y", "status": {"state": "PENDING"}}
    workspace_proxy.fail_next(STATEMENTS, Answer.of_json(200, pending))
    with pytest.raises(OutcomeUnknownError):
        databricks().create_table(record())
    polls = [request.path for request in workspace_proxy.requests if request.method == "GET"]
    assert polls[-1] == "/api/2.0/sql/statements/..%2F..%2Fx%3Fy"
