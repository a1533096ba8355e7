"""What follows a change: replies that are lost, and reading back what was made."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from lance_namespace.errors import (
    InternalError,
    InvalidInputError,
    PermissionDeniedError,
    UnauthenticatedError,
)
from servers.http_proxy import Answer, Fault, HttpProxy, Request
from servers.unity import (
    DATABRICKS,
    DIALECTS,
    OPEN_SOURCE_0_6,
    WAREHOUSE_ID,
    UnityServer,
)

from lance_bridge.catalog import NamespaceRecord, TableRecord
from lance_bridge.errors import OutcomeUnknownError
from lance_bridge.testing.calls import Calls
from lance_bridge_unity import UnityNamespace
from lance_bridge_unity.catalog import UnityCatalog

from .conftest import API, ID, Connect, failed

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


NO = failed("BAD_REQUEST", "[INSUFFICIENT_PERMISSIONS] no")
NO_WAREHOUSE = Answer.of_json(404, {"error_code": "RESOURCE_DOES_NOT_EXIST", "message": "no"})


@pytest.mark.parametrize(
    ("words", "answer", "error"),
    [
        ("UNSET TBLPROPERTIES", NO, PermissionDeniedError),
        ("SET TBLPROPERTIES", NO, PermissionDeniedError),
        ("SET LOCATION", NO, PermissionDeniedError),
        ("UNSET TBLPROPERTIES", NO_WAREHOUSE, InvalidInputError),
    ],
)
def test_a_table_is_not_changed_in_part(
    workspace_proxy: HttpProxy,
    databricks: Connect,
    words: str,
    answer: Answer,
    error: type[Exception],
) -> None:
    catalog = databricks()
    before = made(catalog)
    workspace_proxy.fail_next(lambda request: f" {words} ".encode() in request.body, answer)
    wanted = {"table_type": "lance", ID: "2", "new": "1"}
    with pytest.raises(error):
        catalog.alter_table(replace(before, location="s3://bucket/new", properties=wanted))
    assert len(workspace_proxy.fired) == 1
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


# -- lost replies ---------------------------------------------------------------------------------


SCHEMA = ["c", "s"]
TABLE = [*SCHEMA, "t"]
NEW = [*SCHEMA, "new"]
ROWS = pa.table({"i": [0, 1, 2]})
READS = ("/volumes", "/functions", "/models", "/temporary-", "/oidc")

LOSSES: dict[str, Fault | Answer] = {
    "lost before the effect": Fault.RESET,
    "lost after the effect": Fault.LOSE_REPLY,
    "truncated": Fault.TRUNCATE_REPLY,
    "malformed": Fault.MALFORMED_REPLY,
    "failed": Answer.of_json(500, {"error_code": "INTERNAL", "message": "no"}),
    "unavailable": Answer.of_json(503, {"error_code": "TEMPORARILY_UNAVAILABLE"}),
    "throttled": Answer.of_json(429, {"error_code": "RESOURCE_EXHAUSTED"}),
}

CHANGES: dict[str, Callable[[Calls], object]] = {
    "create namespace": lambda calls: calls.create_namespace(["c", "n"], properties={"k": "v"}),
    "overwrite namespace": lambda calls: calls.create_namespace(
        ["c", "empty"], mode="Overwrite", properties={"k": "v"}
    ),
    "drop namespace": lambda calls: calls.drop_namespace(["c", "empty"]),
    "declare": lambda calls: calls.declare_table(NEW, properties={"k": "v"}),
    "create": lambda calls: calls.create_table(NEW, ROWS, properties={"k": "v"}),
    "register": lambda calls: calls.register_table(NEW, calls.describe_table(TABLE).location or ""),
    "rename": lambda calls: calls.rename_table(TABLE, "new"),
    "deregister": lambda calls: calls.deregister_table(TABLE),
    "drop": lambda calls: calls.drop_table(TABLE),
}


def is_change(request: Request) -> bool:
    """Return whether a request changes something, or runs a statement that does."""
    reads = any(part in request.path for part in READS)
    return request.method != "GET" and not reads and not request.path.endswith("/cancel")


class Place:
    """A server with a table and an empty schema, and a client behind a proxy."""

    def __init__(self, server: UnityServer, proxy: HttpProxy, root: str) -> None:
        self.server = server
        self.proxy = proxy
        more = {"server": "open-source"}
        if server.dialect.databricks:
            more = {"token": "dapi-double", "warehouse_id": WAREHOUSE_ID}
        namespace = UnityNamespace(
            host=proxy.endpoint, root=root, retry_timeout="2", max_retries="2", **more
        )
        self.calls = Calls(namespace)
        server.add_catalog("c")
        for schema in ("s", "empty"):
            server.add_schema("c", schema)
        self.calls.create_table(TABLE, ROWS)

    def state(self) -> dict[str, Any]:
        """What a caller can tell."""
        calls = self.calls
        tables = calls.all_tables(SCHEMA)
        namespaces = calls.all_namespaces(["c"])
        return {
            "tables": {name: calls.describe_table([*SCHEMA, name]).properties for name in tables},
            "rows": {
                name: calls.count([*SCHEMA, name])
                for name in tables
                if not calls.describe_table([*SCHEMA, name], check_declared=True).is_only_declared
            },
            "namespaces": {
                name: calls.describe_namespace(["c", name]).properties for name in namespaces
            },
        }


@pytest.fixture(params=[OPEN_SOURCE_0_6.name, DATABRICKS.name])
def places(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Callable[[str], Place]]:
    """Makes servers of one dialect with clients, each with its own root."""
    with ExitStack() as stack:

        def make(name: str) -> Place:
            server = stack.enter_context(UnityServer(DIALECTS[request.param]))
            proxy = stack.enter_context(HttpProxy(server.url))
            place = Place(server, proxy, f"file://{tmp_path}/{name.replace(' ', '_')}")
            stack.callback(place.calls.close)
            return place

        yield make


@pytest.mark.spec("common.md#errors-of-every-operation", "unity.md#errors-of-every-operation")
@pytest.mark.parametrize("change", CHANGES)
def test_a_change_with_a_fault_is_made_once(places: Callable[[str], Place], change: str) -> None:
    expected = places("expected")
    CHANGES[change](expected.calls)
    states = {}
    for name, fault in LOSSES.items():
        place = places(name)
        place.proxy.fail_next(is_change, fault)
        CHANGES[change](place.calls)
        assert len(place.proxy.fired) == 1, name
        states[name] = place.state()
    assert states == dict.fromkeys(LOSSES, expected.state())
