"""What only a Hive Metastore does: its names, properties, limits and messages, and its races."""

from __future__ import annotations

import threading
import uuid
from collections.abc import Iterator
from pathlib import Path

import hmsclient.genthrift.hive_metastore.ttypes as hive
import lance
import pyarrow as pa
import pytest
from lance_namespace.errors import (
    ConcurrentModificationError,
    InternalError,
    InvalidInputError,
    LanceNamespaceError,
    NamespaceNotEmptyError,
    TableAlreadyExistsError,
    TableNotFoundError,
)
from servers.hive_entries import only_winner, race, raw_client, raw_table
from servers.proxy import ThriftProxy

from lance_bridge.testing.calls import Calls, ipc
from lance_bridge_hive.errors import translate_errors
from lance_bridge_metastore import Metastore

from .conftest import open_calls

pytestmark = [pytest.mark.servers, pytest.mark.spec("hive.md#concurrency-and-crash-safety")]

ROWS = pa.table({"id": [0, 1, 2]})
THREADS = 8
ROUNDS = 4


@pytest.mark.spec("hive.md#namespace")
def test_fields_of_a_database_are_properties_and_marks_of_tables_mean_nothing_on_it(
    calls: Calls, tmp_path: Path
) -> None:
    given = {
        "database.description": "frames of cameras",
        "database.location-uri": f"file:{tmp_path}/vision",
        "database.owner": "ada",
        "database.owner-type": "USER",
        "Table_Type": "ICEBERG",
        "managed_by": "us",
    }
    path = [f"db_{uuid.uuid4().hex}"]
    calls.create_namespace(path, properties=given)
    found = calls.describe_namespace(path).properties
    assert found == given
    place = calls.declare_table([*path, "t"]).location
    assert place == f"{tmp_path}/vision/t.lance"
    calls.drop_namespace(path, behavior="Cascade")


@pytest.mark.spec("hive.md#interoperability", "hive.md#table")
def test_our_entry_carries_the_marks_that_others_look_for(
    metastore: Metastore, calls: Calls, database: str
) -> None:
    lance.write_dataset(ROWS, namespace_client=calls.client, table_id=[database, "ours"])
    with raw_client(metastore.port) as client:
        (table,) = client.get_table_objects_by_name(database, ["ours"])
    assert table.tableType == "EXTERNAL_TABLE"
    assert table.parameters["EXTERNAL"] == "TRUE"
    assert table.parameters["table_type"] == "lance"
    assert table.parameters["managed_by"] == "storage"
    assert "external.table.purge" not in table.parameters
    assert table.sd.location.startswith("file:")


@pytest.mark.spec("hive.md#errors-of-every-operation")
def test_a_hyphen_is_refused_by_the_metastore_before_hive_4(calls: Calls, database: str) -> None:
    with pytest.raises(InvalidInputError, match="a-b"):
        calls.declare_table([database, "a-b"])
    assert calls.all_tables([database]) == []


@pytest.mark.spec("hive.md#dropnamespace")
def test_a_database_may_be_called_like_hives_catalog(connected: Calls) -> None:
    connected.create_namespace(["hive"])
    connected.drop_namespace(["hive"], behavior="Cascade")
    assert "hive" not in connected.all_namespaces([])


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
    ({"EXTERNAL": "1"}, "'EXTERNAL' is reserved by the metastore"),
    ({"transient_lastDdlTime": "1"}, "'transient_lastDdlTime' is reserved by the metastore"),
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


@pytest.mark.spec("hive.md#dropnamespace")
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


@pytest.mark.spec("hive.md#dropnamespace")
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


# -- tables --------------------------------------------------------------------------------------


@pytest.mark.spec("hive.md#declaretable")
@pytest.mark.parametrize(
    ("properties", "message"),
    [
        ({"transactional": "true"}, "'transactional'"),
        ({"TRANSACTIONAL": "True"}, "'TRANSACTIONAL'"),
        ({"k" * 257: "v"}, "257 characters; Hive allows 256"),
        ({"k": "v" * 40_000}, "'k' has 40000 characters"),
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
    place = connected.declare_table([made, "t"]).location
    with pytest.raises(InvalidInputError, match=message):
        connected.declare_table([made, "t"], properties=properties)
    described = connected.describe_table([made, "t"])
    assert (described.location, described.properties) == (place, {})


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


# -- the metastore's own words -------------------------------------------------------------------


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


# -- many callers at one name ----------------------------------------------------------------------


def test_racing_creators_lose_no_data_and_leave_nothing_behind(calls: Calls, database: str) -> None:
    """A metastore deletes the directory that a losing creator made, with what is in it by then."""
    for turn in range(ROUNDS):
        table_id = [database, f"t{turn}"]

        def create(number: int, table_id: list[str] = table_id) -> int:
            data = ipc(pa.table({"by": [number] * (number + 1)}))
            calls.create_table(table_id, data)
            return number

        winner = only_winner(race(THREADS, create), TableAlreadyExistsError)
        found = lance.dataset(namespace_client=calls.client, table_id=table_id)
        assert found.to_table()["by"].to_pylist() == [winner] * (winner + 1)
        made = [[database, f"t{number}"] for number in range(turn + 1)]
        places = [Path(calls.describe_table(each).location or "") for each in made]
        assert sorted(places[0].parent.iterdir()) == sorted(places)


@pytest.fixture
def rooted(metastore: Metastore, tmp_path: Path) -> Iterator[Calls]:
    """A client whose tables go where nothing is yet."""
    with open_calls(uri=metastore.uri, root=str(tmp_path / "lake")) as calls:
        yield calls


@pytest.mark.parametrize("mode", ["Create", "Overwrite"])
def test_an_empty_directory_of_the_users_own_stays(
    rooted: Calls, database: str, tmp_path: Path, mode: str
) -> None:
    """A metastore deletes the directory of an entry that it could not make."""
    table_id, own = [database, "t"], tmp_path / "own"
    lance.write_dataset(pa.table({"i": [1]}), str(tmp_path / "taken.lance"))
    rooted.register_table(table_id, str(tmp_path / "taken.lance"))
    own.mkdir()
    with pytest.raises(TableAlreadyExistsError):
        rooted.register_table(table_id, str(own))
    if mode == "Overwrite":
        rooted.register_table(table_id, str(own), mode=mode)
    assert list(own.iterdir()) == []


def test_creating_and_dropping_one_table_at_once_gives_no_wrong_error(
    rooted: Calls, database: str
) -> None:
    """A creator that finds the name taken, and then gone, tries again: never "not found"."""
    wrong: list[str] = []
    data = ipc(pa.table({"i": [1]}))
    allowed = {
        "create": (TableAlreadyExistsError, ConcurrentModificationError),
        "drop": (TableNotFoundError, ConcurrentModificationError),
    }

    def work(what: str) -> None:
        for _ in range(3):
            try:
                if what == "create":
                    rooted.create_table([database, "t"], data)
                else:
                    rooted.drop_table([database, "t"])
            except allowed[what]:
                continue
            except LanceNamespaceError as error:
                wrong.append(f"{what}: {error!r}")

    threads = [
        threading.Thread(target=work, args=(what,)) for what in ("create", "drop", "create", "drop")
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(120)
    assert not any(thread.is_alive() for thread in threads)
    assert wrong == []
