"""Databricks through the adapter: SQL for what REST cannot do, and statements that end badly."""

from __future__ import annotations

import re
import time
from collections.abc import Callable

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from lance_namespace.errors import (
    ConcurrentModificationError,
    InvalidInputError,
    PermissionDeniedError,
    ServiceUnavailableError,
    TableNotFoundError,
    ThrottlingError,
)
from servers.http_proxy import Answer, Fault, HttpProxy
from servers.unity import UnityServer
from servers.unity import sql as spark

from lance_bridge.catalog import TableRecord
from lance_bridge.dotted_names import quoted
from lance_bridge.errors import OutcomeUnknownError
from lance_bridge_unity import sql
from lance_bridge_unity.catalog import UnityCatalog

from . import conftest as servers
from .conftest import ID, TABLE, Connect, failed

pytestmark = [
    pytest.mark.quick,
    pytest.mark.spec("unity.md#errors-of-every-operation", "unity.md#sql-statements"),
]

STATEMENTS = "POST /api/2.0/sql/statements"


def record(name: str = "t", own: str = "1", **more: str) -> TableRecord:
    return servers.record(name, own, "s3://bucket", **more)


# -- what SQL does -------------------------------------------------------------------------------


def test_a_table_is_made_by_sql_and_read_by_rest(
    workspace: UnityServer, databricks: Connect
) -> None:
    made = databricks().create_table(record(odd='it\'s `a` \\ "${x}"'))
    assert made.is_lance
    assert made.entry_type == "EXTERNAL"
    assert made.identity is not None
    assert made.location == "s3://bucket/t"
    assert made.properties["odd"] == 'it\'s `a` \\ "${x}"'
    assert len(workspace.databricks.statements.submitted) == 1


@pytest.mark.spec("common.md#declaretable", "common.md#registertable")
def test_a_table_recreated_meanwhile_is_not_changed(
    workspace: UnityServer, databricks: Connect
) -> None:
    catalog = databricks()
    made = catalog.create_table(record())
    workspace.remove_table("c", "s", "t")
    catalog.create_table(record(own="2"))
    with pytest.raises(ConcurrentModificationError):
        catalog.alter_table(made.with_properties({"a": "b"}))


def test_where_sql_keeps_the_marks_key_for_itself_another_is_taken(
    workspace: UnityServer, workspace_proxy: HttpProxy, databricks: Connect
) -> None:
    said = "[UNSUPPORTED_FEATURE.SET_TABLE_PROPERTY] table_type is a reserved table property"
    workspace_proxy.fail_next(STATEMENTS, failed("BAD_REQUEST", said))
    catalog = databricks()
    made = catalog.create_table(record())
    assert made.is_lance
    assert "'TABLE_TYPE' = 'lance'" in workspace.databricks.statements.submitted[0]
    catalog.alter_table(made.with_properties({**made.properties, "table_type": "LANCE", "k": "v"}))
    assert "table_type" not in workspace.databricks.statements.submitted[1]
    assert catalog.load_table(TABLE).properties["k"] == "v"


@pytest.mark.spec("common.md#createtable", "unity.md#declaretable")
@pytest.mark.parametrize("key", ["owner", "location", "provider", "external"])
def test_a_reserved_property_is_invalid_before_any_call(
    workspace_proxy: HttpProxy, databricks: Connect, key: str
) -> None:
    with pytest.raises(InvalidInputError, match=f"'{key}' is reserved"):
        databricks().create_table(record(**{key: "me"}))
    assert not workspace_proxy.counts[STATEMENTS]


def test_a_property_that_only_this_warehouse_reserves_is_invalid(
    workspace: UnityServer, databricks: Connect
) -> None:
    workspace.databricks.warehouse.reserves_table_type = True
    with pytest.raises(InvalidInputError, match="collation is a reserved"):
        databricks().create_table(record(collation="UTF8"))


def test_properties_that_spark_adds_are_hidden(workspace: UnityServer, databricks: Connect) -> None:
    catalog = databricks()
    properties = {"table_type": "lance", "k": "v"}
    added = {"transient_lastDdlTime": "1", "option.serialization.format": "1"}
    place = {"storage_location": "s3://bucket/t", "data_source_format": "TEXT"}
    workspace.add_table("c", "s", "t", properties={**properties, **added}, **place)
    found = catalog.load_table(TABLE)
    assert found.properties == properties
    catalog.alter_table(found.with_properties({"table_type": "lance"}))
    assert workspace.databricks.statements.submitted == [
        "ALTER TABLE `c`.`s`.`t` UNSET TBLPROPERTIES IF EXISTS ('k')"
    ]


# -- namespaces and names ------------------------------------------------------------------------


def test_what_databricks_keeps_in_every_catalog_is_not_listed(
    workspace: UnityServer, databricks: Connect
) -> None:
    workspace.add_schema("c", "information_schema")
    assert list(databricks().list_namespaces(("c",))) == ["s"]


def test_under_a_pinned_catalog_names_are_two_and_it_is_looked_up_in_any_case(
    databricks: Connect,
) -> None:
    pinned = databricks(catalog="C")
    made = pinned.create_table(TableRecord(("s", "t"), "s3://bucket/t", {ID: "1"}))
    assert databricks().load_table(TABLE).identity == made.identity
    assert list(pinned.list_namespaces(())) == ["s"]
    assert [found.path for found in pinned.scan_tables(("s",))] == [("s", "t")]
    pinned.rename_table(made, ("s", "u"))
    assert databricks().load_table(("c", "s", "u")).identity == made.identity


# -- statements that take long, are lost, fail, or are not taken ----------------------------------


POLLS = "GET /api/2.0/sql/statements/*"


def in_state(status: dict[str, str]) -> Answer:
    """Return a reply to a statement."""
    return Answer.of_json(200, {"statement_id": "1", "status": status})


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


NO_USE = "PERMISSION_DENIED: User does not have USE SCHEMA"
NO_CREATE = "com.databricks.sql.acl.UnauthorizedAccessException: PERMISSION_DENIED: User does not"
OVERLAP = "INVALID_PARAMETER_VALUE.LOCATION_OVERLAP: Input path overlaps"


@pytest.mark.parametrize(
    ("reply", "kind"),
    [
        (failed("NOT_FOUND", "no such external location"), InvalidInputError),
        (failed("BAD_REQUEST", NO_CREATE), PermissionDeniedError),
        (failed("BAD_REQUEST", NO_USE), PermissionDeniedError),
        (failed("UNKNOWN", OVERLAP), InvalidInputError),
        (failed("UNKNOWN", "[LOCATION_OVERLAP] overlaps"), InvalidInputError),
        (failed("BAD_REQUEST", "no"), InvalidInputError),
        (failed("INTERNAL_ERROR", "no"), OutcomeUnknownError),
        (failed("RESOURCE_EXHAUSTED", "not now"), ThrottlingError),
        (failed("TEMPORARILY_UNAVAILABLE", "not now"), OutcomeUnknownError),
        (failed("SERVICE_UNDER_MAINTENANCE", "not now"), OutcomeUnknownError),
        (failed("DEADLINE_EXCEEDED", "not now"), OutcomeUnknownError),
        (failed("CANCELLED", "not now"), OutcomeUnknownError),
        (failed("IO_ERROR", "not now"), OutcomeUnknownError),
        (in_state({"state": "CANCELED"}), OutcomeUnknownError),
        (in_state({"state": "SOMETHING_NEW"}), OutcomeUnknownError),
        (in_state({}), OutcomeUnknownError),
    ],
)
def test_statements_that_end_badly(
    workspace_proxy: HttpProxy, databricks: Connect, reply: Answer, kind: type[Exception]
) -> None:
    workspace_proxy.fail_next(STATEMENTS, reply)
    with pytest.raises(kind) as caught:
        databricks().create_table(record())
    assert type(caught.value) is kind


def test_a_statement_whose_result_is_closed_has_happened(
    workspace_proxy: HttpProxy, databricks: Connect
) -> None:
    workspace_proxy.fail_next(STATEMENTS, in_state({"state": "CLOSED"}))
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


# -- the text of statements ------------------------------------------------------------------------


ANY_TEXT = st.text(st.characters(exclude_categories=["Cs"]))
NASTY = st.text(st.sampled_from("'\"\\`$;-\n\r\t\0{}() u0027/*"), max_size=30)
TEXTS = st.one_of(ANY_TEXT, NASTY)
NAMES = st.text(
    st.characters(exclude_categories=["Cs"], exclude_characters="\0"), min_size=1, max_size=40
)


@pytest.mark.spec("unity.md#security", "unity.md#sql-statements")
@given(TEXTS)
@example("'); DROP TABLE x; --")
@example("\\")
@example("\\'")
@example("${system:user.name}")
def test_a_literal_has_no_character_that_could_end_it_or_mean_anything(text: str) -> None:
    inside = sql.literal(text)[1:-1]
    # Every backslash begins one of our own escapes; what is left has nothing to escape with.
    rest = re.sub(r"\\u[0-9a-f]{4}", "", inside)
    assert not set(rest) & set("'\"\\`$;\n\r\t\0")


@pytest.mark.spec("unity.md#security", "unity.md#sql-statements")
@given(TEXTS)
def test_a_literal_is_read_back_as_the_text_that_it_was_made_of(text: str) -> None:
    statement = spark.parse(f"ALTER TABLE t SET LOCATION {sql.literal(text)}")
    assert statement == spark.SetLocation(("t",), text)


@pytest.mark.spec("unity.md#security", "unity.md#sql-statements")
@given(st.lists(NAMES, min_size=1, max_size=3))
@example(["`", "``", "a`.`b"])
@example(["a`; DROP TABLE b; --"])
def test_an_identifier_is_read_back_as_the_names_that_it_was_made_of(names: list[str]) -> None:
    statement = spark.parse(f"DROP TABLE {quoted(names)}")
    assert statement == spark.DropTable(tuple(names))


@pytest.mark.spec("unity.md#security", "unity.md#sql-statements")
@given(NAMES, ANY_TEXT, st.dictionaries(TEXTS, TEXTS, max_size=4))
def test_a_create_statement_holds_what_it_was_given_and_nothing_more(
    name: str, location: str, properties: dict[str, str]
) -> None:
    path = ("c", "s", name)
    assert spark.parse(sql.create_table(path, location, properties)) == spark.CreateTable(
        path, "TEXT", location, properties=tuple(properties.items())
    )


@pytest.mark.spec("unity.md#security", "unity.md#sql-statements")
@pytest.mark.parametrize(
    ("made", "meant"),
    [
        (
            sql.set_properties(("c", "s", "t"), {"k": "v", "x": "it's"}),
            spark.SetProperties(("c", "s", "t"), (("k", "v"), ("x", "it's"))),
        ),
        (
            sql.unset_properties(("c", "s", "t"), ["k", "o'k"]),
            spark.UnsetProperties(("c", "s", "t"), ("k", "o'k"), if_exists=True),
        ),
        (
            sql.rename_table(("c", "s", "t"), ("c", "s", "u`")),
            spark.RenameTable(("c", "s", "t"), ("c", "s", "u`")),
        ),
    ],
)
def test_statements_say_what_they_should(made: str, meant: spark.Statement) -> None:
    assert spark.parse(made) == meant
