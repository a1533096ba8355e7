"""What only a Hive Metastore does: its own names, properties, catalogs and refusals."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path

import lance
import pyarrow as pa
import pytest
from lance_namespace.errors import (
    InvalidInputError,
    NamespaceNotEmptyError,
    NamespaceNotFoundError,
    UnsupportedOperationError,
)
from servers.hive_raw import raw_client
from servers.metastores import Metastores

from lance_bridge.testing.calls import Calls
from lance_bridge_metastore import Metastore

from .conftest import open_calls

pytestmark = [pytest.mark.servers, pytest.mark.spec("hive.md#namespace")]

ROWS = pa.table({"id": [0, 1, 2]})


# -- properties ----------------------------------------------------------------------------------


def test_fields_of_a_database_are_properties(calls: Calls, tmp_path: Path) -> None:
    given = {
        "database.description": "frames of cameras",
        "database.location-uri": f"file:{tmp_path}/vision",
        "database.owner": "ada",
        "database.owner-type": "USER",
        "team": "vision",
    }
    path = [f"db_{uuid.uuid4().hex}"]
    calls.create_namespace(path, properties=given)
    found = calls.describe_namespace(path).properties
    assert found == given
    place = calls.declare_table([*path, "t"]).location
    assert place == f"{tmp_path}/vision/t.lance"
    calls.drop_namespace(path, behavior="Cascade")


# -- entries -------------------------------------------------------------------------------------


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


# -- refusals ------------------------------------------------------------------------------------


@pytest.mark.spec("hive.md#errors-of-every-operation")
def test_a_hyphen_is_refused_by_the_metastore_before_hive_4(calls: Calls, database: str) -> None:
    with pytest.raises(InvalidInputError, match="a-b"):
        calls.declare_table([database, "a-b"])
    assert calls.all_tables([database]) == []


# -- catalogs ------------------------------------------------------------------------------------


def with_catalogs(metastore: Metastore, **properties: str) -> closing[Calls]:
    return open_calls(uri=metastore.uri, catalog_levels="true", **properties)


@pytest.mark.spec("hive.md#errors-of-every-operation")
@pytest.mark.parametrize(
    "call",
    [
        lambda ns: ns.all_namespaces([]),
        lambda ns: ns.create_namespace(["hive", "leaked"]),
        lambda ns: ns.declare_table(["hive", "default", "leaked"]),
    ],
)
def test_catalogs_on_hive_2_are_unsupported_and_nothing_is_made(
    metastore: Metastore, calls: Calls, call: Callable[[Calls], object]
) -> None:
    unsupported = pytest.raises(UnsupportedOperationError, match="older than Hive 3")
    with with_catalogs(metastore) as catalogs, unsupported:
        call(catalogs)
    assert "leaked" not in calls.all_namespaces([])
    assert calls.all_tables(["default"]) == []


@pytest.fixture(scope="module", params=["3.1", "4.2"])
def newer(request: pytest.FixtureRequest, metastores: Metastores) -> Metastore:
    return metastores.get(request.param)


@pytest.fixture
def catalog(newer: Metastore, tmp_path: Path) -> Iterator[tuple[Calls, str]]:
    """A client with catalogs, and a catalog of the test's own."""
    name = f"cat_{uuid.uuid4().hex[:12]}"
    with with_catalogs(newer, root=str(tmp_path)) as calls:
        calls.create_namespace([name])
        yield calls, name
        calls.drop_namespace([name], mode="Skip", behavior="Cascade")


@pytest.mark.parametrize("newer", ["3.1", "4.0", "4.1", "4.2"], indirect=True)
def test_dropping_a_catalog_leaves_its_files(catalog: tuple[Calls, str], tmp_path: Path) -> None:
    calls, name = catalog
    kept = [tmp_path / name / "default" / "kept.txt", tmp_path / name / "kept.lance" / "kept.txt"]
    for path in kept:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("kept")
    calls.drop_namespace([name])
    assert [path.read_text() for path in kept] == ["kept", "kept"]
    with pytest.raises(NamespaceNotFoundError):
        calls.describe_namespace([name])


@pytest.mark.spec("hive.md#dropnamespace")
def test_a_catalog_with_a_table_in_its_default_database_is_not_empty(
    catalog: tuple[Calls, str],
) -> None:
    calls, name = catalog
    calls.declare_table([name, "default", "t"])
    with pytest.raises(NamespaceNotEmptyError):
        calls.drop_namespace([name])
    assert calls.all_tables([name, "default"]) == ["t"]


def test_cascade_drops_the_tables_of_a_whole_catalog(
    catalog: tuple[Calls, str], tmp_path: Path
) -> None:
    calls, name = catalog
    calls.create_namespace([name, "db"])
    for database in ("db", "default"):
        table_id = [name, database, "t"]
        written = lance.write_dataset(ROWS, namespace_client=calls.client, table_id=table_id)
        assert Path(written.uri).exists()
    calls.drop_namespace([name], behavior="Cascade")
    assert list(tmp_path.rglob("*.lance")) == []
    assert name not in calls.all_namespaces([])


@pytest.mark.spec("hive.md#renametable")
def test_a_table_cannot_be_renamed_into_another_catalog(
    catalog: tuple[Calls, str], tmp_path: Path
) -> None:
    calls, name = catalog
    place = str(tmp_path / "t.lance")
    lance.write_dataset(ROWS, place)
    calls.register_table([name, "default", "t"], place)
    with pytest.raises(UnsupportedOperationError, match="another Hive catalog"):
        calls.rename_table([name, "default", "t"], "t", new_namespace_id=["hive", "default"])
    assert calls.all_tables([name, "default"]) == ["t"]
