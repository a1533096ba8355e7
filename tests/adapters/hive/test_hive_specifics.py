"""What only a Hive Metastore does: its own names, properties, catalogs and refusals."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterator
from pathlib import Path

import hmsclient.genthrift.hive_metastore.ttypes as hive
import lance
import pyarrow as pa
import pytest
from lance_namespace import (
    CreateNamespaceRequest,
    DeclareTableRequest,
    DescribeNamespaceRequest,
    DropNamespaceRequest,
    ListNamespacesRequest,
    ListTablesRequest,
    RegisterTableRequest,
    RenameTableRequest,
)
from lance_namespace.errors import (
    InvalidInputError,
    NamespaceNotEmptyError,
    NamespaceNotFoundError,
    UnsupportedOperationError,
)
from servers.hive_raw import raw_client, raw_table
from servers.metastores import Metastores
from servers.proxy import Fault, ThriftProxy

import lance_bridge_hive.catalog as adapter
from lance_bridge_hive import HiveNamespace
from lance_bridge_metastore import Metastore

pytestmark = pytest.mark.server

ROWS = pa.table({"id": [0, 1, 2]})


# -- properties ----------------------------------------------------------------------------------


def test_fields_of_a_database_are_properties(namespace: HiveNamespace, tmp_path: Path) -> None:
    given = {
        "database.description": "frames of cameras",
        "database.location-uri": f"file:{tmp_path}/vision",
        "database.owner": "ada",
        "database.owner-type": "USER",
        "team": "vision",
    }
    path = [f"db_{uuid.uuid4().hex}"]
    namespace.create_namespace(CreateNamespaceRequest(id=path, properties=given))
    found = namespace.describe_namespace(DescribeNamespaceRequest(id=path)).properties
    assert found == given
    place = namespace.declare_table(DeclareTableRequest(id=[*path, "t"])).location
    assert place == f"{tmp_path}/vision/t.lance"
    namespace.drop_namespace(DropNamespaceRequest(id=path, behavior="Cascade"))


@pytest.mark.parametrize(
    ("properties", "message"),
    [
        ({"database.owner-type": "CAT"}, "USER, ROLE or GROUP"),
        ({"k" * 181: "v"}, "181 characters"),
        ({"lance_bridge.id": "v"}, "reserved"),
        ({"": "v"}, "reserved"),
    ],
)
def test_bad_properties_of_a_namespace_are_invalid_input(
    namespace: HiveNamespace, properties: dict[str, str], message: str
) -> None:
    path = [f"db_{uuid.uuid4().hex}"]
    with pytest.raises(InvalidInputError, match=message):
        namespace.create_namespace(CreateNamespaceRequest(id=path, properties=properties))
    assert path[0] not in namespace.list_namespaces(ListNamespacesRequest(id=[])).namespaces


@pytest.mark.parametrize(
    ("properties", "message"),
    [
        ({"EXTERNAL": "FALSE"}, "metastore's own"),
        ({"external.table.purge": "TRUE"}, "metastore's own"),
        ({"table_type": "iceberg"}, "marks Lance tables"),
        ({"k" * 257: "v"}, "257 characters"),
    ],
)
def test_bad_properties_of_a_table_are_invalid_input(
    namespace: HiveNamespace, database: str, properties: dict[str, str], message: str
) -> None:
    request = DeclareTableRequest(id=[database, "t"], properties=properties)
    with pytest.raises(InvalidInputError, match=message):
        namespace.declare_table(request)
    assert namespace.list_tables(ListTablesRequest(id=[database])).tables == []


# -- refusals ------------------------------------------------------------------------------------


def test_a_database_with_functions_is_not_empty(
    metastore: Metastore, namespace: HiveNamespace, database: str
) -> None:
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
        with pytest.raises(NamespaceNotEmptyError, match="function"):
            namespace.drop_namespace(DropNamespaceRequest(id=[database]))
        client.drop_function(database, "f")


def test_the_default_database_cannot_be_dropped(namespace: HiveNamespace) -> None:
    with pytest.raises(InvalidInputError, match="default"):
        namespace.drop_namespace(DropNamespaceRequest(id=["default"]))


def test_a_hyphen_is_refused_by_the_metastore_before_hive_4(
    namespace: HiveNamespace, database: str
) -> None:
    with pytest.raises(InvalidInputError, match="a-b"):
        namespace.declare_table(DeclareTableRequest(id=[database, "a-b"]))
    assert namespace.list_tables(ListTablesRequest(id=[database])).tables == []


def test_a_database_on_storage_that_lance_cannot_write_needs_a_root(
    metastore: Metastore, namespace: HiveNamespace, tmp_path: Path
) -> None:
    path = [f"db_{uuid.uuid4().hex}"]
    properties = {"database.location-uri": "oss://bucket/db"}
    namespace.create_namespace(CreateNamespaceRequest(id=path, properties=properties))
    request = DeclareTableRequest(id=[*path, "t"])
    with pytest.raises(InvalidInputError, match="'root'"):
        namespace.declare_table(request)
    with HiveNamespace(uri=metastore.uri, root=str(tmp_path)) as rooted:
        assert rooted.declare_table(request).location == f"{tmp_path}/{path[0]}.db/t.lance"
        rooted.drop_namespace(DropNamespaceRequest(id=path, behavior="Cascade"))


# -- listing where the metastore cannot filter ---------------------------------------------------


@pytest.mark.parametrize("fault", [Fault.LOSE_REPLY, Fault.RESET])
def test_listing_survives_a_broken_filter_call(
    proxy: ThriftProxy, namespace: HiveNamespace, database: str, fault: Fault
) -> None:
    namespace.declare_table(DeclareTableRequest(id=[database, "t"]))
    with HiveNamespace(uri=proxy.uri) as behind:
        proxy.fail_next("get_table_names_by_filter", fault)
        assert behind.list_tables(ListTablesRequest(id=[database])).tables == ["t"]


def test_where_the_metastore_cannot_filter_tables_are_read_in_batches(
    metastore: Metastore,
    proxy: ThriftProxy,
    database: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    # No metastore at hand refuses our filter. This one is refused for real, and in the same way.
    monkeypatch.setattr(adapter, "_LANCE_FILTER", "hive_filter_field_nonsense__ = 1")
    with raw_client(metastore.port) as client:
        for name in ("lance_a", "lance_b", "foreign"):
            table = raw_table(database, name, str(tmp_path / name))
            if name == "foreign":
                table.parameters = {"EXTERNAL": "TRUE"}
            client.create_table(table)
    with HiveNamespace(uri=proxy.uri) as behind:
        for _ in range(3):
            found = behind.list_tables(ListTablesRequest(id=[database])).tables
            assert found == ["lance_a", "lance_b"]
        with pytest.raises(NamespaceNotFoundError):
            behind.list_tables(ListTablesRequest(id=["missing"]))
    assert proxy.calls["get_table_names_by_filter"] == 1
    assert proxy.calls["get_table_objects_by_name_req"] == 3
    assert proxy.calls["get_table_req"] == 0


# -- catalogs ------------------------------------------------------------------------------------


def with_catalogs(metastore: Metastore, **properties: str) -> HiveNamespace:
    return HiveNamespace(uri=metastore.uri, catalog_levels="true", **properties)


@pytest.mark.parametrize(
    "call",
    [
        lambda ns: ns.list_namespaces(ListNamespacesRequest(id=[])),
        lambda ns: ns.create_namespace(CreateNamespaceRequest(id=["hive", "leaked"])),
        lambda ns: ns.declare_table(DeclareTableRequest(id=["hive", "default", "leaked"])),
    ],
)
def test_catalogs_on_hive_2_are_unsupported_and_nothing_is_made(
    metastore: Metastore, namespace: HiveNamespace, call: Callable[[HiveNamespace], object]
) -> None:
    unsupported = pytest.raises(UnsupportedOperationError, match="older than Hive 3")
    with with_catalogs(metastore) as catalogs, unsupported:
        call(catalogs)
    assert "leaked" not in namespace.list_namespaces(ListNamespacesRequest(id=[])).namespaces
    assert namespace.list_tables(ListTablesRequest(id=["default"])).tables == []


@pytest.fixture(scope="module", params=["3.1", "4.0", "4.1", "4.2"])
def newer(request: pytest.FixtureRequest, metastores: Metastores) -> Metastore:
    return metastores.get(request.param)


@pytest.fixture
def catalog(newer: Metastore, tmp_path: Path) -> Iterator[tuple[HiveNamespace, str]]:
    """A namespace with catalogs, and a catalog of the test's own."""
    name = f"cat_{uuid.uuid4().hex[:12]}"
    with with_catalogs(newer, root=str(tmp_path)) as namespace:
        namespace.create_namespace(CreateNamespaceRequest(id=[name]))
        yield namespace, name
        request = DropNamespaceRequest(id=[name], mode="Skip", behavior="Cascade")
        namespace.drop_namespace(request)


def test_dropping_a_catalog_leaves_its_files(
    catalog: tuple[HiveNamespace, str], tmp_path: Path
) -> None:
    namespace, name = catalog
    kept = [tmp_path / name / "default" / "kept.txt", tmp_path / name / "kept.lance" / "kept.txt"]
    for path in kept:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("kept")
    namespace.drop_namespace(DropNamespaceRequest(id=[name]))
    assert [path.read_text() for path in kept] == ["kept", "kept"]
    with pytest.raises(NamespaceNotFoundError):
        namespace.describe_namespace(DescribeNamespaceRequest(id=[name]))


def test_a_catalog_with_a_database_is_not_empty(catalog: tuple[HiveNamespace, str]) -> None:
    namespace, name = catalog
    namespace.create_namespace(CreateNamespaceRequest(id=[name, "db"]))
    with pytest.raises(NamespaceNotEmptyError, match="db"):
        namespace.drop_namespace(DropNamespaceRequest(id=[name]))
    found = namespace.list_namespaces(ListNamespacesRequest(id=[name])).namespaces
    assert found == ["db", "default"]


def test_a_catalog_with_a_table_in_its_default_database_is_not_empty(
    catalog: tuple[HiveNamespace, str],
) -> None:
    namespace, name = catalog
    namespace.declare_table(DeclareTableRequest(id=[name, "default", "t"]))
    with pytest.raises(NamespaceNotEmptyError):
        namespace.drop_namespace(DropNamespaceRequest(id=[name]))
    assert namespace.list_tables(ListTablesRequest(id=[name, "default"])).tables == ["t"]


def test_cascade_drops_the_tables_of_a_whole_catalog(
    catalog: tuple[HiveNamespace, str], tmp_path: Path
) -> None:
    namespace, name = catalog
    namespace.create_namespace(CreateNamespaceRequest(id=[name, "db"]))
    for database in ("db", "default"):
        table_id = [name, database, "t"]
        written = lance.write_dataset(ROWS, namespace_client=namespace, table_id=table_id)
        assert Path(written.uri).exists()
    namespace.drop_namespace(DropNamespaceRequest(id=[name], behavior="Cascade"))
    assert list(tmp_path.rglob("*.lance")) == []
    assert name not in namespace.list_namespaces(ListNamespacesRequest(id=[])).namespaces


def test_hive_keeps_its_own_catalog(catalog: tuple[HiveNamespace, str]) -> None:
    namespace, _ = catalog
    with pytest.raises((InvalidInputError, NamespaceNotEmptyError), match="hive"):
        namespace.drop_namespace(DropNamespaceRequest(id=["hive"]))
    assert "default" in namespace.list_namespaces(ListNamespacesRequest(id=["hive"])).namespaces


def test_properties_of_a_catalog_are_its_description_and_location(
    catalog: tuple[HiveNamespace, str], tmp_path: Path
) -> None:
    namespace, name = catalog
    request = CreateNamespaceRequest(id=[name], mode="ExistOk")
    found = namespace.create_namespace(request).properties or {}
    assert found["catalog.location-uri"].endswith(f"{tmp_path}/{name}")
    bad = CreateNamespaceRequest(id=[name + "_other"], properties={"team": "a"})
    with pytest.raises(InvalidInputError, match="team"):
        namespace.create_namespace(bad)
    assert name + "_other" not in namespace.list_namespaces(ListNamespacesRequest(id=[])).namespaces


def test_a_database_in_a_missing_catalog_is_namespace_not_found(
    catalog: tuple[HiveNamespace, str],
) -> None:
    namespace, _ = catalog
    with pytest.raises(NamespaceNotFoundError, match="missing"):
        namespace.create_namespace(CreateNamespaceRequest(id=["missing", "db"]))


def test_a_table_cannot_be_renamed_into_another_catalog(
    catalog: tuple[HiveNamespace, str], tmp_path: Path
) -> None:
    namespace, name = catalog
    place = str(tmp_path / "t.lance")
    lance.write_dataset(ROWS, place)
    namespace.register_table(RegisterTableRequest(id=[name, "default", "t"], location=place))
    request = RenameTableRequest(
        id=[name, "default", "t"], new_table_name="t", new_namespace_id=["hive", "default"]
    )
    with pytest.raises(UnsupportedOperationError, match="another Hive catalog"):
        namespace.rename_table(request)
    assert namespace.list_tables(ListTablesRequest(id=[name, "default"])).tables == ["t"]
