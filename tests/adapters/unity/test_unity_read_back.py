"""What follows a change: reading back what was made, and taking back what was done in part."""

from __future__ import annotations

from dataclasses import replace

import pytest
from lance_namespace.errors import (
    InternalError,
    InvalidInputError,
    PermissionDeniedError,
    UnauthenticatedError,
)
from servers.http_proxy import Answer, HttpProxy
from servers.unity import UnityServer

from lance_bridge.catalog import NamespaceRecord, TableRecord
from lance_bridge.errors import OutcomeUnknownError
from lance_bridge.testing.calls import Calls
from lance_bridge_unity.catalog import UnityCatalog

from .building import API, ID, Connect, failed

pytestmark = pytest.mark.quick

FAULTS = {
    "failed": Answer.of_json(500, {"error_code": "INTERNAL"}),
    "refused": Answer.of_json(403, {"error_code": "PERMISSION_DENIED"}),
    "expired": Answer.of_json(401, {"error_code": "UNAUTHENTICATED"}),
    "odd": Answer.of_json(200, {}),
    "not found": Answer.of_json(404, {"error_code": "TABLE_NOT_FOUND"}),
    "no time": Answer.of_json(408, {}),
}


@pytest.mark.parametrize("fault", FAULTS)
def test_a_table_that_cannot_be_read_back_once_is_made_all_the_same(
    proxy: HttpProxy, calls: Calls, fault: str
) -> None:
    proxy.fail_next(f"GET {API}/tables/c.s.t", FAULTS[fault])
    calls.register_table(["c", "s", "t"], "/data/t.lance")
    assert proxy.counts[f"POST {API}/tables"] == 1
    assert calls.all_tables(["c", "s"]) == ["t"]


@pytest.mark.parametrize("fault", [each for each in FAULTS if each != "not found"])
def test_a_schema_that_cannot_be_read_back_once_is_made_all_the_same(
    proxy: HttpProxy, calls: Calls, fault: str
) -> None:
    proxy.fail_next(f"GET {API}/schemas/c.n", FAULTS[fault])
    calls.create_namespace(["c", "n"])
    assert proxy.counts[f"POST {API}/schemas"] == 1
    assert calls.all_namespaces(["c"]) == ["n", "s"]


@pytest.mark.parametrize(
    ("fault", "kind"),
    [
        ("failed", InternalError),
        ("refused", PermissionDeniedError),
        ("expired", UnauthenticatedError),
    ],
)
def test_a_table_that_can_never_be_read_back_says_why(
    proxy: HttpProxy, calls: Calls, fault: str, kind: type[Exception]
) -> None:
    proxy.fail_next(f"GET {API}/tables/c.s.t", FAULTS[fault], times=float("inf"))
    with pytest.raises(kind):
        calls.register_table(["c", "s", "t"], "/data/t.lance")


@pytest.mark.parametrize("fault", ["refused", "expired", "odd"])
def test_the_catalog_reports_an_unknown_outcome(
    proxy: HttpProxy, connect: Connect, fault: str
) -> None:
    proxy.fail_next(f"GET {API}/tables/c.s.t", FAULTS[fault])
    with pytest.raises(OutcomeUnknownError, match="may have been created"):
        connect().create_table(TableRecord(("c", "s", "t"), "file:///data/t", {ID: "1"}))


# -- properties ----------------------------------------------------------------------------------


@pytest.mark.parametrize("properties", [{}, {"schema.comment": "still here"}])
def test_the_last_property_of_a_schema_is_never_lost_in_silence(
    connect: Connect, properties: dict[str, str]
) -> None:
    catalog = connect()
    catalog.create_namespace(NamespaceRecord(("c", "n"), {"k": "v"}))
    with pytest.raises(InvalidInputError, match=r"'c\.n' must keep at least one property"):
        catalog.alter_namespace(NamespaceRecord(("c", "n"), properties))
    assert catalog.load_namespace(("c", "n")).properties == {"k": "v"}


def test_all_of_a_callers_properties_of_a_schema_can_be_removed(calls: Calls) -> None:
    calls.create_namespace(["c", "n"], properties={"k": "v", "schema.comment": "x"})
    calls.create_namespace(["c", "n"], mode="Overwrite")
    assert calls.describe_namespace(["c", "n"]).properties == {}


# -- several statements for one change -----------------------------------------------------------


def made(catalog: UnityCatalog) -> TableRecord:
    properties = {"table_type": "lance", ID: "1", "old": "1"}
    return catalog.create_table(TableRecord(("c", "s", "t"), "s3://bucket/old", properties))


@pytest.mark.parametrize("words", ["UNSET TBLPROPERTIES", "SET TBLPROPERTIES", "SET LOCATION"])
def test_a_table_is_not_changed_in_part(
    workspace_proxy: HttpProxy, databricks: Connect, words: str
) -> None:
    catalog = databricks()
    before = made(catalog)
    workspace_proxy.fail_next(
        lambda request: f" {words} ".encode() in request.body,
        failed("BAD_REQUEST", "[INSUFFICIENT_PERMISSIONS] no"),
    )
    wanted = {"table_type": "lance", ID: "2", "new": "1"}
    with pytest.raises(PermissionDeniedError):
        catalog.alter_table(replace(before, location="s3://bucket/new", properties=wanted))
    assert len(workspace_proxy.fired) == 1
    assert catalog.load_table(("c", "s", "t")) == before


def test_a_table_is_not_changed_in_part_if_the_warehouse_refuses(
    workspace_proxy: HttpProxy, databricks: Connect
) -> None:
    catalog = databricks()
    before = made(catalog)
    refused = Answer.of_json(404, {"error_code": "RESOURCE_DOES_NOT_EXIST", "message": "no"})
    workspace_proxy.fail_next(lambda request: b" UNSET TBLPROPERTIES " in request.body, refused)
    wanted = {"table_type": "lance", ID: "2"}
    with pytest.raises(InvalidInputError, match="SQL warehouse"):
        catalog.alter_table(replace(before, location="s3://bucket/new", properties=wanted))
    assert catalog.load_table(("c", "s", "t")) == before


def test_a_change_with_an_invalid_part_sends_nothing(
    workspace: UnityServer, databricks: Connect
) -> None:
    catalog = databricks()
    before = made(catalog)
    wanted = {**before.properties, "owner": "me"}
    with pytest.raises(InvalidInputError, match="'owner' is reserved"):
        catalog.alter_table(replace(before, location="s3://bucket/new", properties=wanted))
    assert len(workspace.databricks.statements.submitted) == 1


def test_a_table_that_cannot_be_put_back_is_named_in_the_log(
    workspace: UnityServer, databricks: Connect, caplog: pytest.LogCaptureFixture
) -> None:
    catalog = databricks()
    before = made(catalog)
    workspace.databricks.statements.refuse("* SET TBLPROPERTIES*")
    wanted = {"table_type": "lance", ID: "2"}
    with pytest.raises(PermissionDeniedError):
        catalog.alter_table(replace(before, location="s3://bucket/new", properties=wanted))
    assert "c.s.t is changed in part" in caplog.text
