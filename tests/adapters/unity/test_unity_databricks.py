"""Databricks through the adapter: SQL for what REST cannot do, logins, folded names."""

from __future__ import annotations

import pytest
from lance_namespace.errors import (
    ConcurrentModificationError,
    InvalidInputError,
    NamespaceNotFoundError,
    PermissionDeniedError,
    TableAlreadyExistsError,
    TableNotFoundError,
)
from servers.http_proxy import HttpProxy
from servers.unity import UnityServer

from lance_bridge.catalog import NamespaceRecord, TableRecord

from . import building
from .building import ID, TABLE, Connect, failed

pytestmark = pytest.mark.quick

STATEMENTS = "POST /api/2.0/sql/statements"


def record(name: str = "t", own: str = "1", **more: str) -> TableRecord:
    return building.record(name, own, "s3://bucket", **more)


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


def test_properties_are_set_and_taken_away(workspace: UnityServer, databricks: Connect) -> None:
    catalog = databricks()
    made = catalog.create_table(record(kept="1", changed="1", gone="1"))
    wanted = {"table_type": "lance", ID: "1", "kept": "1", "changed": "2", "new": "3"}
    catalog.alter_table(made.with_properties(wanted))
    found = catalog.load_table(TABLE)
    assert dict(found.properties) == wanted
    assert found.identity == made.identity
    assert len(workspace.databricks.statements.submitted) == 3


def test_the_location_of_a_table_can_change(databricks: Connect) -> None:
    catalog = databricks()
    made = catalog.create_table(record())
    catalog.alter_table(TableRecord(**{**vars(made), "location": "s3://bucket/elsewhere"}))
    assert catalog.load_table(TABLE).location == "s3://bucket/elsewhere"


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


def test_sql_says_what_is_missing_and_what_is_taken(databricks: Connect) -> None:
    catalog = databricks()
    made = catalog.create_table(record())
    catalog.create_table(record("u"))
    with pytest.raises(TableAlreadyExistsError):
        catalog.create_table(record(own="2"))
    with pytest.raises(TableAlreadyExistsError):
        catalog.rename_table(made, ("c", "s", "u"))
    with pytest.raises(TableNotFoundError):
        catalog.rename_table(record("x"), ("c", "s", "y"))
    with pytest.raises(NamespaceNotFoundError, match=r"not found: c\.x"):
        catalog.create_table(TableRecord(("c", "x", "t"), "s3://bucket/t", {}))
    with pytest.raises(NamespaceNotFoundError, match="not found: x"):
        catalog.create_table(TableRecord(("x", "s", "t"), "s3://bucket/t", {}))


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


def test_dropping_is_done_by_rest(workspace: UnityServer, databricks: Connect) -> None:
    catalog = databricks()
    catalog.drop_table(catalog.create_table(record()))
    assert len(workspace.databricks.statements.submitted) == 1
    with pytest.raises(TableNotFoundError):
        catalog.load_table(TABLE)


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


@pytest.mark.spec("unity.md#errors-of-every-operation")
def test_a_refused_statement_is_a_refused_permission(
    workspace: UnityServer, databricks: Connect
) -> None:
    workspace.databricks.statements.refuse("CREATE TABLE*")
    with pytest.raises(PermissionDeniedError):
        databricks().create_table(record())


# -- namespaces and names ------------------------------------------------------------------------


def test_namespaces_are_made_by_rest(workspace: UnityServer, databricks: Connect) -> None:
    catalog = databricks(warehouse_id=None)
    catalog.create_namespace(NamespaceRecord(("c", "n"), {ID: "1", "schema.comment": "x"}))
    assert catalog.load_namespace(("c", "n")).properties["schema.comment"] == "x"
    catalog.drop_namespace(("c", "n"))
    assert not workspace.databricks.statements.submitted


def test_what_databricks_keeps_in_every_catalog_is_not_listed(
    workspace: UnityServer, databricks: Connect
) -> None:
    workspace.add_schema("c", "information_schema")
    assert list(databricks().list_namespaces(("c",))) == ["s"]


def test_a_pinned_catalog_is_looked_up_in_any_case(databricks: Connect) -> None:
    pinned = databricks(catalog="C")
    made = pinned.create_table(TableRecord(("s", "t"), "s3://bucket/t", {ID: "1"}))
    assert databricks().load_table(TABLE).identity == made.identity
