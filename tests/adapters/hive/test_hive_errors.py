"""Errors that the spec promises, each brought about on a real metastore."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from pathlib import Path

import hmsclient.genthrift.hive_metastore.ttypes as hive
import lance
import pyarrow as pa
import pytest
from lance_namespace.errors import (
    InternalError,
    InvalidInputError,
    NamespaceNotEmptyError,
    UnsupportedOperationError,
)
from servers.hive_raw import raw_client, raw_table
from servers.metastores import Metastores
from servers.pools import Connect

from lance_bridge.testing.calls import Calls
from lance_bridge_hive.errors import translate_errors
from lance_bridge_metastore import Metastore

from .conftest import open_calls

pytestmark = [pytest.mark.servers, pytest.mark.spec("hive.md#dropnamespace")]

ROWS = pa.table({"id": [0, 1, 2]})


# -- namespaces ----------------------------------------------------------------------------------


@pytest.mark.spec("hive.md#createnamespace")
@pytest.mark.parametrize("key", ["EXTERNAL", "transient_lastDdlTime"])
def test_a_property_that_the_metastore_keeps_for_itself_is_not_a_namespaces(
    calls: Calls, key: str
) -> None:
    name = f"db_{uuid.uuid4().hex}"
    with pytest.raises(InvalidInputError, match=f"'{key}' is reserved by the metastore"):
        calls.create_namespace([name], properties={key: "1"})
    assert name not in calls.all_namespaces([])


def test_a_database_with_functions_is_not_dropped(
    metastore: Metastore, calls: Calls, database: str
) -> None:
    calls.create_table([database, "t"], ROWS)
    function = hive.Function(
        functionName="f",
        dbName=database,
        className="example.F",
        ownerName="ada",
        ownerType=hive.PrincipalType.USER,
        createTime=0,
        functionType=hive.FunctionType.JAVA,
        resourceUris=[],
    )
    with raw_client(metastore.port) as client:
        client.create_function(function)
        for behavior in ("Cascade", "Restrict"):
            with pytest.raises(NamespaceNotEmptyError, match="function"):
                calls.drop_namespace([database], behavior=behavior)
            if behavior == "Cascade":
                assert calls.count([database, "t"]) == ROWS.num_rows
                calls.deregister_table([database, "t"])
        client.drop_function(database, "f")


def test_the_database_that_hive_keeps_is_not_dropped(calls: Calls, tmp_path: Path) -> None:
    table = f"t_{uuid.uuid4().hex}"
    lance.write_dataset(pa.table({"i": [1]}), str(tmp_path / "t.lance"))
    place = str(tmp_path / "t.lance")
    calls.register_table(["default", table], place)
    with pytest.raises((InvalidInputError, NamespaceNotEmptyError), match="default"):
        calls.drop_namespace(["default"], behavior="Cascade")
    assert calls.count(["default", table]) == 1
    calls.deregister_table(["default", table])
    with pytest.raises((InvalidInputError, NamespaceNotEmptyError), match="default"):
        calls.drop_namespace(["default"])


# -- Hive catalogs -------------------------------------------------------------------------------


@pytest.fixture
def with_catalogs(metastores: Metastores) -> Iterator[Calls]:
    """A namespace with the level of catalogs and without a root."""
    with open_calls(uri=metastores.get("4.2").uri, catalog_levels="true") as calls:
        yield calls


@pytest.mark.spec("hive.md#createnamespace")
@pytest.mark.parametrize("mode", ["Create", "ExistOk", "Overwrite"])
def test_a_new_catalog_needs_a_location_and_holds_no_other_property(
    with_catalogs: Calls, tmp_path: Path, mode: str
) -> None:
    name = f"cat_{uuid.uuid4().hex}"
    location = {"catalog.location-uri": f"file:{tmp_path}/{name}"}
    for properties, message in (
        ({}, "location-uri"),
        ({"catalog.description": "x"}, "location-uri"),
        ({**location, "team": "vision"}, "'team'"),
    ):
        with pytest.raises(InvalidInputError, match=message):
            with_catalogs.create_namespace([name], mode=mode, properties=properties)
    assert name not in with_catalogs.all_namespaces([])


def test_exist_ok_of_an_existing_catalog_needs_no_location(
    with_catalogs: Calls, tmp_path: Path
) -> None:
    name = f"cat_{uuid.uuid4().hex}"
    location = {"catalog.location-uri": f"file:{tmp_path}/{name}"}
    with_catalogs.create_namespace([name], properties=location)
    found = (
        with_catalogs.create_namespace(
            [name], mode="ExistOk", properties={"team": "vision"}
        ).properties
        or {}
    )
    assert set(found) == {"catalog.location-uri"}
    with_catalogs.drop_namespace([name])
    assert name not in with_catalogs.all_namespaces([])


def test_hives_own_catalog_is_not_dropped(with_catalogs: Calls) -> None:
    before = with_catalogs.all_namespaces(["hive"])
    with pytest.raises(InvalidInputError, match="'hive' is built into Hive"):
        with_catalogs.drop_namespace(["hive"])
    assert with_catalogs.all_namespaces(["hive"]) == before


# -- the metastore's own words -------------------------------------------------------------------


@pytest.mark.spec("hive.md#errors-of-every-operation")
def test_a_call_that_the_metastore_does_not_know_is_unsupported(connect: Connect) -> None:
    pool = connect()
    with (
        pytest.raises(UnsupportedOperationError, match="lacks a call that is required to list"),
        translate_errors("list catalogs"),
    ):
        pool.call(lambda c: c.catalogs.get_catalogs(), name="get_catalogs", repeatable=True)


@pytest.mark.spec("hive.md#errors-of-every-operation")
def test_any_other_failure_of_the_metastore_is_internal_with_its_message(
    metastore: Metastore, calls: Calls, database: str
) -> None:
    table = raw_table(database, "t", "/nowhere")
    table.sd = None
    with (
        raw_client(metastore.port) as client,
        pytest.raises(InternalError, match=r"MetaException: java.lang.NullPointerException"),
        translate_errors("create it"),
    ):
        client.create_table(table)
    assert calls.all_tables([database]) == []
