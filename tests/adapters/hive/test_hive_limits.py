"""Names that Hive keeps, and requests that it could not hold: refused as the caller's, before
anything is made."""

from __future__ import annotations

import uuid
from pathlib import Path

import pytest
from lance_namespace.errors import InvalidInputError
from servers.hive_raw import raw_client, raw_table
from servers.metastores import Metastores
from servers.proxy import ThriftProxy

from lance_bridge.testing.calls import Calls
from lance_bridge_hive.errors import translate_errors
from lance_bridge_metastore import Metastore

from .conftest import open_calls

pytestmark = pytest.mark.servers


# -- names ---------------------------------------------------------------------------------------


@pytest.mark.spec("hive.md#dropnamespace")
def test_a_database_may_be_called_like_hives_catalog(connected: Calls) -> None:
    connected.create_namespace(["hive"])
    connected.drop_namespace(["hive"], behavior="Cascade")
    assert "hive" not in connected.all_namespaces([])


@pytest.mark.spec("hive.md#dropnamespace")
def test_a_catalog_may_be_called_like_the_first_database(
    metastores: Metastores, tmp_path: Path
) -> None:
    with open_calls(
        uri=metastores.get("4.2").uri, catalog_levels="true", root=str(tmp_path)
    ) as catalogs:
        catalogs.create_namespace(["default"])
        catalogs.drop_namespace(["default"], behavior="Cascade")
        assert "default" not in catalogs.all_namespaces([])


# -- namespaces ----------------------------------------------------------------------------------

LONGEST = {
    "k" * 180: "v" * 4000,
    "database.description": "d" * 4000,
    "database.owner": "o" * 128,
}


def test_the_longest_properties_of_a_database_are_kept(connected: Calls) -> None:
    path = [f"db_{uuid.uuid4().hex}"]
    connected.create_namespace(path, properties=LONGEST)
    found = connected.describe_namespace(path).properties or {}
    assert {key: found[key] for key in LONGEST} == LONGEST
    connected.drop_namespace(path)


TOO_MUCH: list[tuple[dict[str, str], str]] = [
    ({"k" * 181: "v"}, "181 characters; Hive allows 180"),
    ({"k": "v" * 4001}, "4001 characters; Hive allows 4000"),
    ({"k": "\N{GRINNING FACE}" * 2001}, "4002 characters"),
    ({"k": "\ud800"}, "it is not Unicode"),
    ({"database.description": "d" * 4001}, "database.description has 4001"),
    ({"database.owner": "o" * 129}, "database.owner has 129"),
    ({"database.owner-type": "CAT"}, "USER, ROLE or GROUP"),
    ({"transactional": "true"}, "'transactional'"),
    ({"database.location-uri": ""}, "empty"),
    ({"database.location-uri": "relative/x"}, "relative"),
    ({"database.location-uri": "file:x"}, "relative"),
    ({"database.location-uri": "file:///tmp/\n"}, "control"),
    ({"database.location-uri": "s3://"}, "whole file system"),
    ({"database.location-uri": "s3://b/../c"}, "'..'"),
    ({"database.location-uri": "file:///tmp/" + "n" * 256}, "255 bytes"),
    ({"database.location-uri": "s3://b/" + "n" * 4000}, "4007 characters"),
]


@pytest.mark.spec("hive.md#createnamespace")
def test_what_a_database_cannot_hold_is_refused_before_any_call(
    server: Metastore, connected: Calls, made: str
) -> None:
    new = f"db_{uuid.uuid4().hex}"
    before = connected.describe_namespace([made]).properties
    with ThriftProxy("127.0.0.1", server.port) as proxy, open_calls(uri=proxy.uri) as behind:
        for properties, message in TOO_MUCH:
            for name, mode in ((new, "Create"), (made, "Overwrite"), (made, "ExistOk")):
                with pytest.raises(InvalidInputError, match=message):
                    behind.create_namespace([name], properties=properties, mode=mode)
        assert not proxy.calls
    assert connected.describe_namespace([made]).properties == before
    assert new not in connected.all_namespaces([])


@pytest.mark.spec("hive.md#createnamespace")
@pytest.mark.parametrize("place", ["file", "file/db", "hdfs://no-host.invalid:8020/db"])
def test_a_location_where_no_directory_can_be_created_is_invalid_input(
    connected: Calls, tmp_path: Path, place: str
) -> None:
    (tmp_path / "file").write_text("no directory")
    location = place if "://" in place else f"file:{tmp_path}/{place}"
    name = f"db_{uuid.uuid4().hex}"
    with pytest.raises(InvalidInputError, match=name):
        connected.create_namespace([name], properties={"database.location-uri": location})
    assert name not in connected.all_namespaces([])


@pytest.mark.spec("hive.md#createnamespace")
@pytest.mark.parametrize(
    ("properties", "message"),
    [
        ({"catalog.description": "d" * 4001}, "4001 characters"),
        ({"catalog.location-uri": "relative/x"}, "relative"),
    ],
)
def test_what_a_catalog_cannot_hold_is_invalid_input(
    metastores: Metastores, tmp_path: Path, properties: dict[str, str], message: str
) -> None:
    name = f"cat_{uuid.uuid4().hex}"
    with open_calls(
        uri=metastores.get("4.2").uri, catalog_levels="true", root=str(tmp_path)
    ) as catalogs:
        with pytest.raises(InvalidInputError, match=message):
            catalogs.create_namespace([name], properties=properties)
        assert name not in catalogs.all_namespaces([])


def test_the_marks_of_tables_mean_nothing_on_a_namespace(connected: Calls) -> None:
    path = [f"db_{uuid.uuid4().hex}"]
    given = {"Table_Type": "ICEBERG", "managed_by": "us"}
    connected.create_namespace(path, properties=given)
    found = connected.describe_namespace(path).properties or {}
    assert {key: found.get(key) for key in given} == given
    assert not any(key.startswith("lance_bridge.") for key in found)
    connected.drop_namespace(path)


# -- tables --------------------------------------------------------------------------------------


@pytest.mark.spec("hive.md#declaretable")
def test_a_value_that_the_metastore_cannot_store_is_invalid_input(
    connected: Calls, made: str
) -> None:
    long = {"k": "v" * 40_000}
    with pytest.raises(InvalidInputError, match="'k' has 40000 characters"):
        connected.declare_table([made, "t"], properties=long)
    assert connected.all_tables([made]) == []
    place = connected.declare_table([made, "t"]).location
    with pytest.raises(InvalidInputError, match="'k' has 40000 characters"):
        connected.declare_table([made, "t"], properties=long)
    described = connected.describe_table([made, "t"])
    assert (described.location, described.properties) == (place, {})


@pytest.mark.spec("hive.md#declaretable")
@pytest.mark.parametrize(
    ("properties", "message"),
    [
        ({"transactional": "true"}, "'transactional'"),
        ({"TRANSACTIONAL": "True"}, "'TRANSACTIONAL'"),
        ({"k" * 257: "v"}, "257 characters; Hive allows 256"),
        ({"EXTERNAL": "FALSE"}, "reserved by the metastore"),
        ({"external.table.purge": "TRUE"}, "reserved by the metastore"),
    ],
)
def test_what_a_table_cannot_hold_is_invalid_input(
    connected: Calls, made: str, properties: dict[str, str], message: str
) -> None:
    with pytest.raises(InvalidInputError, match=message):
        connected.declare_table([made, "t"], properties=properties)
    assert connected.all_tables([made]) == []


@pytest.mark.spec("hive.md#declaretable")
@pytest.mark.parametrize("place", ["file", "file/below", "n" * 256])
def test_a_table_where_no_directory_can_be_is_invalid_input(
    connected: Calls, made: str, tmp_path: Path, place: str
) -> None:
    (tmp_path / "file").write_text("no directory")
    with pytest.raises(InvalidInputError, match=f"{made}.t|255 bytes"):
        connected.register_table([made, "t"], f"{tmp_path}/{place}")
    assert connected.all_tables([made]) == []
    assert (tmp_path / "file").read_text() == "no directory"


def test_the_metastores_message_for_a_table_of_hives_format_is_recognised(
    server: Metastore, made: str, tmp_path: Path
) -> None:
    table = raw_table(made, "t", str(tmp_path / "t"))
    table.parameters["transactional"] = "true"
    with (
        raw_client(server.port) as client,
        pytest.raises(InvalidInputError, match="ACID"),
        translate_errors("create it"),
    ):
        client.create_table(table)
