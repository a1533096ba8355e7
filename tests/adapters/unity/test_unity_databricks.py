"""Databricks through the adapter: SQL for what REST cannot do, logins, folded names."""

from __future__ import annotations

import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from lance_namespace.errors import (
    ConcurrentModificationError,
    InvalidInputError,
    NamespaceNotEmptyError,
    NamespaceNotFoundError,
    PermissionDeniedError,
    ServiceUnavailableError,
    TableAlreadyExistsError,
    TableNotFoundError,
    UnauthenticatedError,
    UnsupportedOperationError,
)
from servers.http_proxy import Answer, Delay, Fault, HttpProxy
from servers.unity import UnityServer

from lance_bridge.catalog import NamespaceRecord, TableRecord
from lance_bridge.errors import OutcomeUnknownError
from lance_bridge_unity.catalog import UnityCatalog

Databricks = Callable[..., UnityCatalog]

TABLE = ("c", "s", "t")
ID = "lance_bridge.id"
STATEMENTS = "POST /api/2.0/sql/statements"
POLLS = "GET /api/2.0/sql/statements/*"
FAILED = {
    "statement_id": "1",
    "status": {"state": "FAILED", "error": {"error_code": "BAD_REQUEST", "message": "no"}},
}
CLIENT = {"token": None, "client_id": "double-client", "client_secret": "double-secret"}


def record(name: str = "t", own: str = "1", **more: str) -> TableRecord:
    properties = {"table_type": "lance", ID: own, **more}
    return TableRecord(("c", "s", name), f"s3://bucket/{name}", properties)


# -- what SQL does -------------------------------------------------------------------------------


def test_a_table_is_made_by_sql_and_read_by_rest(
    workspace: UnityServer, databricks: Databricks
) -> None:
    made = databricks().create_table(record(odd='it\'s `a` \\ "${x}"'))
    assert made.is_lance
    assert made.kind == "EXTERNAL"
    assert made.identity is not None
    assert made.location == "s3://bucket/t"
    assert made.properties["odd"] == 'it\'s `a` \\ "${x}"'
    assert len(workspace.databricks.statements.submitted) == 1


def test_properties_are_set_and_taken_away(workspace: UnityServer, databricks: Databricks) -> None:
    catalog = databricks()
    made = catalog.create_table(record(kept="1", changed="1", gone="1"))
    wanted = {"table_type": "lance", ID: "1", "kept": "1", "changed": "2", "new": "3"}
    catalog.alter_table(made.with_properties(wanted))
    found = catalog.load_table(TABLE)
    assert dict(found.properties) == wanted
    assert found.identity == made.identity
    assert len(workspace.databricks.statements.submitted) == 3


def test_a_table_can_be_pointed_to_another_place(databricks: Databricks) -> None:
    catalog = databricks()
    made = catalog.create_table(record())
    catalog.alter_table(TableRecord(**{**vars(made), "location": "s3://bucket/elsewhere"}))
    assert catalog.load_table(TABLE).location == "s3://bucket/elsewhere"


def test_a_table_made_anew_meanwhile_is_not_changed(
    workspace: UnityServer, databricks: Databricks
) -> None:
    catalog = databricks()
    made = catalog.create_table(record())
    workspace.remove_table("c", "s", "t")
    catalog.create_table(record(own="2"))
    with pytest.raises(ConcurrentModificationError):
        catalog.alter_table(made.with_properties({"a": "b"}))


def test_a_rename_keeps_all_but_the_name(databricks: Databricks) -> None:
    catalog = databricks()
    made = catalog.create_table(record())
    catalog.rename_table(made, ("c", "s", "u"))
    assert catalog.load_table(("c", "s", "u")).identity == made.identity


def test_sql_says_what_is_missing_and_what_is_taken(databricks: Databricks) -> None:
    catalog = databricks()
    made = catalog.create_table(record())
    catalog.create_table(record("u"))
    with pytest.raises(TableAlreadyExistsError):
        catalog.create_table(record(own="2"))
    with pytest.raises(TableAlreadyExistsError):
        catalog.rename_table(made, ("c", "s", "u"))
    with pytest.raises(TableNotFoundError):
        catalog.rename_table(record("x"), ("c", "s", "y"))
    with pytest.raises(NamespaceNotFoundError, match=r"'c\.x'"):
        catalog.create_table(TableRecord(("c", "x", "t"), "s3://bucket/t", {}))
    with pytest.raises(NamespaceNotFoundError, match="'x'"):
        catalog.create_table(TableRecord(("x", "s", "t"), "s3://bucket/t", {}))


def test_where_sql_keeps_the_marks_key_for_itself_another_is_taken(
    workspace: UnityServer, workspace_proxy: HttpProxy, databricks: Databricks
) -> None:
    said = "[UNSUPPORTED_FEATURE.SET_TABLE_PROPERTY] table_type is a reserved table property"
    refusal = {"state": "FAILED", "error": {"error_code": "BAD_REQUEST", "message": said}}
    workspace_proxy.fail_next(
        STATEMENTS, Answer.of_json(200, {"statement_id": "1", "status": refusal})
    )
    catalog = databricks()
    made = catalog.create_table(record())
    assert made.is_lance
    assert "'TABLE_TYPE' = 'lance'" in workspace.databricks.statements.submitted[0]
    catalog.alter_table(made.with_properties({**made.properties, "table_type": "LANCE", "k": "v"}))
    assert "table_type" not in workspace.databricks.statements.submitted[1]
    assert catalog.load_table(TABLE).properties["k"] == "v"


def test_dropping_is_done_by_rest(workspace: UnityServer, databricks: Databricks) -> None:
    catalog = databricks()
    catalog.drop_table(catalog.create_table(record()))
    assert len(workspace.databricks.statements.submitted) == 1
    with pytest.raises(TableNotFoundError):
        catalog.load_table(TABLE)


@pytest.mark.parametrize(
    "change",
    [
        lambda catalog: catalog.create_table(record()),
        lambda catalog: catalog.alter_table(record()),
        lambda catalog: catalog.rename_table(record(), ("c", "s", "u")),
    ],
)
def test_without_a_warehouse_what_needs_sql_says_what_to_set(
    databricks: Databricks, change: Callable[[UnityCatalog], object]
) -> None:
    with pytest.raises(UnsupportedOperationError, match="warehouse_id"):
        change(databricks(warehouse_id=None))


def test_a_reserved_property_is_invalid(databricks: Databricks) -> None:
    with pytest.raises(InvalidInputError, match="reserved"):
        databricks().create_table(record(owner="me"))


def test_a_refused_statement_is_a_refused_permission(
    workspace: UnityServer, databricks: Databricks
) -> None:
    workspace.databricks.statements.refuse("CREATE TABLE*")
    with pytest.raises(PermissionDeniedError):
        databricks().create_table(record())


# -- statements that take long, or are lost ------------------------------------------------------


def test_a_slow_statement_is_waited_for(workspace: UnityServer, databricks: Databricks) -> None:
    workspace.databricks.statements.polls = 3
    assert databricks().create_table(record()).path == TABLE


def test_a_statement_that_takes_too_long_is_cancelled(
    workspace: UnityServer, databricks: Databricks
) -> None:
    workspace.databricks.statements.polls = 10_000
    started = time.monotonic()
    with pytest.raises(ServiceUnavailableError, match="cancelled") as caught:
        databricks(statement_timeout="0.5").create_table(record())
    assert not isinstance(caught.value, OutcomeUnknownError)
    assert time.monotonic() - started < 5.0
    with pytest.raises(TableNotFoundError):
        databricks().load_table(TABLE)


@pytest.mark.parametrize("fault", [Fault.LOSE_REPLY, Fault.TRUNCATE_REPLY, Fault.MALFORMED_REPLY])
def test_a_statement_whose_reply_is_lost_is_sent_once(
    workspace: UnityServer, workspace_proxy: HttpProxy, databricks: Databricks, fault: Fault
) -> None:
    workspace_proxy.fail_next(STATEMENTS, fault)
    with pytest.raises(OutcomeUnknownError):
        databricks().create_table(record())
    assert len(workspace.databricks.statements.submitted) == 1


def test_a_statement_that_nobody_can_ask_for_any_more_is_unknown(
    workspace: UnityServer, workspace_proxy: HttpProxy, databricks: Databricks
) -> None:
    workspace.databricks.statements.polls = 3
    workspace_proxy.fail_next(POLLS, Fault.RESET, times=99)
    with pytest.raises(OutcomeUnknownError, match="nobody can say"):
        databricks(max_retries="1").create_table(record())


def test_a_statement_that_cannot_be_cancelled_is_unknown(
    workspace: UnityServer, workspace_proxy: HttpProxy, databricks: Databricks
) -> None:
    workspace.databricks.statements.polls = 10_000
    workspace_proxy.fail_next("POST */cancel", Answer.of_json(500, {}), times=99)
    with pytest.raises(OutcomeUnknownError, match="could not be cancelled"):
        databricks(statement_timeout="0.3").create_table(record())


@pytest.mark.parametrize(
    ("status", "kind"),
    [
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
    workspace_proxy: HttpProxy, databricks: Databricks, status: object, kind: type[Exception]
) -> None:
    reply = Answer.of_json(200, {"statement_id": "1", "status": status})
    workspace_proxy.fail_next(STATEMENTS, reply)
    with pytest.raises(kind) as caught:
        databricks().create_table(record())
    assert type(caught.value) is kind


# -- namespaces and names ------------------------------------------------------------------------


def test_namespaces_are_made_by_rest(workspace: UnityServer, databricks: Databricks) -> None:
    catalog = databricks(warehouse_id=None)
    catalog.create_namespace(NamespaceRecord(("c", "n"), {ID: "1", "schema.comment": "x"}))
    assert catalog.load_namespace(("c", "n")).properties["schema.comment"] == "x"
    catalog.drop_namespace(("c", "n"))
    assert not workspace.databricks.statements.submitted


def test_a_schema_with_a_table_is_not_empty(databricks: Databricks) -> None:
    catalog = databricks()
    catalog.create_table(record())
    with pytest.raises(NamespaceNotEmptyError):
        catalog.drop_namespace(("c", "s"))


def test_what_databricks_keeps_in_every_catalog_is_not_listed(
    workspace: UnityServer, databricks: Databricks
) -> None:
    workspace.add_schema("c", "information_schema")
    assert list(databricks().list_namespaces(("c",))) == ["s"]


def test_a_pinned_catalog_is_looked_up_in_any_case(databricks: Databricks) -> None:
    pinned = databricks(catalog="C")
    made = pinned.create_table(TableRecord(("s", "t"), "s3://bucket/t", {ID: "1"}))
    assert databricks().load_table(TABLE).identity == made.identity


# -- who one is ----------------------------------------------------------------------------------


def test_a_service_principal_logs_in_once_for_all_threads(
    workspace: UnityServer, databricks: Databricks
) -> None:
    catalog = databricks(**CLIENT)
    with ThreadPoolExecutor(8) as threads:
        found = list(threads.map(lambda _: catalog.load_namespace(("c", "s")).path, range(40)))
    assert found == [("c", "s")] * 40
    assert workspace.databricks.authority.issued == 1


def test_a_token_that_ends_is_fetched_anew(workspace: UnityServer, databricks: Databricks) -> None:
    workspace.databricks.authority.lifetime = 1.0  # shorter than the SDK's margin
    catalog = databricks(**CLIENT)
    for _ in range(3):
        catalog.load_namespace(("c", "s"))
    assert workspace.databricks.authority.issued >= 3


def test_wrong_credentials_are_unauthenticated(databricks: Databricks) -> None:
    for bad in ({**CLIENT, "client_secret": "wrong-hush"}, {"token": "wrong-hush"}):
        with pytest.raises(UnauthenticatedError) as caught:
            databricks(**bad).load_namespace(("c", "s"))
        assert "hush" not in str(caught.value)


def test_an_expired_token_is_unauthenticated(
    workspace: UnityServer, databricks: Databricks
) -> None:
    catalog = databricks(**CLIENT)
    catalog.load_namespace(("c", "s"))
    workspace.databricks.authority.revoke()
    with pytest.raises(UnauthenticatedError):
        catalog.load_namespace(("c", "s"))


def test_a_profile_gives_host_and_token(
    workspace_proxy: HttpProxy,
    databricks: Databricks,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    profiles = tmp_path / "databrickscfg"
    profiles.write_text(f"[work]\nhost = {workspace_proxy.endpoint}\ntoken = dapi-double\n")
    monkeypatch.setenv("DATABRICKS_CONFIG_FILE", str(profiles))
    catalog = databricks(host=None, token=None, profile="work")
    assert catalog.load_namespace(("c", "s")).path == ("c", "s")
    assert "profile=work" in catalog.describe_connection()


def test_a_profile_that_is_not_there_is_named(databricks: Databricks) -> None:
    catalog = databricks(host=None, token=None, profile="nowhere")
    with pytest.raises(UnauthenticatedError):
        catalog.load_namespace(("c", "s"))


def test_the_environment_gives_a_token(
    databricks: Databricks, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DATABRICKS_TOKEN", "dapi-double")
    assert databricks(token=None).load_namespace(("c", "s")).path == ("c", "s")


def test_given_credentials_are_not_mixed_with_those_of_the_environment(
    databricks: Databricks, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DATABRICKS_TOKEN", "dapi-of-somewhere-else")
    assert databricks(**CLIENT).load_namespace(("c", "s")).path == ("c", "s")
    monkeypatch.setenv("DATABRICKS_CLIENT_ID", "other")
    monkeypatch.setenv("DATABRICKS_CLIENT_SECRET", "other")
    assert databricks().load_namespace(("c", "s")).path == ("c", "s")


def test_a_login_that_nobody_answers_ends_in_time(
    workspace_proxy: HttpProxy, databricks: Databricks
) -> None:
    silence = Delay()
    workspace_proxy.fail_next("POST /oidc/v1/token", silence, times=99)
    catalog = databricks(**CLIENT, connect_timeout="0.2", read_timeout="0.5", retry_timeout="0")
    started = time.monotonic()
    try:
        with pytest.raises(ServiceUnavailableError):
            catalog.load_namespace(("c", "s"))
    finally:
        silence.release.set()
    assert time.monotonic() - started < 5.0


def test_a_dead_workspace_is_service_unavailable_in_time(
    workspace_proxy: HttpProxy, databricks: Databricks
) -> None:
    workspace_proxy.stop()
    for properties in (CLIENT, {}):
        started = time.monotonic()
        with pytest.raises(ServiceUnavailableError):
            databricks(
                **properties, connect_timeout="0.5", read_timeout="2", retry_timeout="0"
            ).load_namespace(("c", "s"))
        assert time.monotonic() - started < 8.0
