"""Errors that the spec promises, each brought about on a real metastore."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path

import hmsclient.genthrift.hive_metastore.ttypes as hive
import lance
import pyarrow as pa
import pytest
from lance_namespace import (
    CountTableRowsRequest,
    CreateNamespaceRequest,
    CreateTableRequest,
    DeclareTableRequest,
    DeregisterTableRequest,
    DescribeTableRequest,
    DropNamespaceRequest,
    ListNamespacesRequest,
    ListTablesRequest,
    RegisterTableRequest,
    RenameTableRequest,
)
from lance_namespace.errors import (
    ConcurrentModificationError,
    InternalError,
    InvalidInputError,
    NamespaceNotEmptyError,
    TableAlreadyExistsError,
    UnsupportedOperationError,
)
from servers.hive_raw import raw_client, raw_table
from servers.metastores import Metastores
from servers.pools import Connect

from lance_bridge.testing.build import ipc
from lance_bridge_hive import HiveNamespace
from lance_bridge_hive.errors import translated
from lance_bridge_metastore import Metastore

pytestmark = pytest.mark.server

ROWS = pa.table({"id": [0, 1, 2]})


def count(namespace: HiveNamespace, *path: str) -> int | None:
    return namespace.count_table_rows(CountTableRowsRequest(id=list(path))).count


def tables(namespace: HiveNamespace, *path: str) -> list[str]:
    return list(namespace.list_tables(ListTablesRequest(id=list(path))).tables)


def namespaces(namespace: HiveNamespace, *path: str) -> list[str]:
    return list(namespace.list_namespaces(ListNamespacesRequest(id=list(path))).namespaces)


# -- namespaces ----------------------------------------------------------------------------------


@pytest.mark.parametrize("key", ["EXTERNAL", "transient_lastDdlTime"])
def test_a_property_that_the_metastore_keeps_for_itself_is_not_a_namespaces(
    namespace: HiveNamespace, key: str
) -> None:
    name = f"db_{uuid.uuid4().hex}"
    request = CreateNamespaceRequest(id=[name], properties={key: "1"})
    with pytest.raises(InvalidInputError, match=f"'{key}' is the metastore's own"):
        namespace.create_namespace(request)
    assert name not in namespaces(namespace)


def test_cascade_refuses_a_database_with_functions_and_changes_nothing(
    metastore: Metastore, namespace: HiveNamespace, database: str
) -> None:
    namespace.create_table(CreateTableRequest(id=[database, "t"]), ipc(ROWS))
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
            namespace.drop_namespace(DropNamespaceRequest(id=[database], behavior="Cascade"))
        client.drop_function(database, "f")
    assert count(namespace, database, "t") == ROWS.num_rows


def test_cascade_refuses_the_database_that_hive_keeps_and_changes_nothing(
    namespace: HiveNamespace, tmp_path: Path
) -> None:
    table = f"t_{uuid.uuid4().hex}"
    lance.write_dataset(pa.table({"i": [1]}), str(tmp_path / "t.lance"))
    place = str(tmp_path / "t.lance")
    namespace.register_table(RegisterTableRequest(id=["default", table], location=place))
    with pytest.raises((InvalidInputError, NamespaceNotEmptyError), match="default"):
        namespace.drop_namespace(DropNamespaceRequest(id=["default"], behavior="Cascade"))
    assert count(namespace, "default", table) == 1
    namespace.deregister_table(DeregisterTableRequest(id=["default", table]))


# -- Hive catalogs -------------------------------------------------------------------------------


@pytest.fixture
def with_catalogs(metastores: Metastores) -> Iterator[HiveNamespace]:
    """A namespace with the level of catalogs and without a root."""
    namespace = HiveNamespace(uri=metastores.get("4.0").uri, catalog_levels="true")
    with closing(namespace):
        yield namespace


@pytest.mark.parametrize("mode", ["Create", "ExistOk", "Overwrite"])
def test_a_new_catalog_needs_a_location_and_holds_no_other_property(
    with_catalogs: HiveNamespace, tmp_path: Path, mode: str
) -> None:
    name = f"cat_{uuid.uuid4().hex}"
    location = {"catalog.location-uri": f"file:{tmp_path}/{name}"}
    for properties, message in (
        ({}, "location-uri"),
        ({"catalog.description": "x"}, "location-uri"),
        ({**location, "team": "vision"}, "'team'"),
    ):
        request = CreateNamespaceRequest(id=[name], mode=mode, properties=properties)
        with pytest.raises(InvalidInputError, match=message):
            with_catalogs.create_namespace(request)
    assert name not in namespaces(with_catalogs)


def test_exist_ok_of_a_catalog_that_is_there_needs_no_location(
    with_catalogs: HiveNamespace, tmp_path: Path
) -> None:
    name = f"cat_{uuid.uuid4().hex}"
    location = {"catalog.location-uri": f"file:{tmp_path}/{name}"}
    with_catalogs.create_namespace(CreateNamespaceRequest(id=[name], properties=location))
    request = CreateNamespaceRequest(id=[name], mode="ExistOk", properties={"team": "vision"})
    found = with_catalogs.create_namespace(request).properties or {}
    assert set(found) == {"catalog.location-uri"}
    with_catalogs.drop_namespace(DropNamespaceRequest(id=[name]))
    assert name not in namespaces(with_catalogs)


def test_hives_own_catalog_is_not_dropped(with_catalogs: HiveNamespace) -> None:
    before = namespaces(with_catalogs, "hive")
    with pytest.raises(InvalidInputError, match="Hive keeps its catalog 'hive'"):
        with_catalogs.drop_namespace(DropNamespaceRequest(id=["hive"]))
    assert namespaces(with_catalogs, "hive") == before


# -- declaring -----------------------------------------------------------------------------------


# -- tables --------------------------------------------------------------------------------------


@pytest.mark.parametrize("new_name", ["t", "T"])
def test_a_table_cannot_be_renamed_to_its_own_name(
    namespace: HiveNamespace, database: str, new_name: str
) -> None:
    namespace.create_table(CreateTableRequest(id=[database, "t"]), ipc(ROWS))
    request = RenameTableRequest(id=[database, "t"], new_table_name=new_name)
    with pytest.raises(TableAlreadyExistsError, match="the table itself"):
        namespace.rename_table(request)
    assert count(namespace, database, "t") == 3


CHANGES: dict[str, tuple[str, Callable[[HiveNamespace, list[str], str], object]]] = {
    "rename": (
        "rename_table",
        lambda ns, t, _: ns.rename_table(RenameTableRequest(id=t, new_table_name="other")),
    ),
    "register": (
        "alter_table",
        lambda ns, t, place: ns.register_table(
            RegisterTableRequest(id=t, location=place, mode="Overwrite")
        ),
    ),
    "declare": (
        "alter_table",
        lambda ns, t, _: ns.declare_table(DeclareTableRequest(id=t, properties={"by": "us"})),
    ),
    "create": (
        "alter_table",
        lambda ns, t, _: ns.create_table(
            CreateTableRequest(id=t, mode="Overwrite", properties={"by": "us"}), ipc(ROWS)
        ),
    ),
}
"""Operations that change an entry (the last argument is a free place), with the port's method."""


@pytest.mark.parametrize("operation", CHANGES)
def test_an_entry_that_somebody_changes_meanwhile_is_a_concurrent_modification(
    metastore: Metastore,
    namespace: HiveNamespace,
    database: str,
    monkeypatch: pytest.MonkeyPatch,
    operation: str,
) -> None:
    method, change = CHANGES[operation]
    table_id = [database, "t"]
    place = namespace.declare_table(DeclareTableRequest(id=table_id)).location or ""
    theirs = RegisterTableRequest(
        id=table_id, location=place, mode="Overwrite", properties={"by": "somebody"}
    )
    catalog = namespace._bridge.catalog
    ours = getattr(catalog, method)

    def after_somebody(*arguments: object) -> None:
        with HiveNamespace(uri=metastore.uri) as somebody:
            somebody.register_table(theirs)
        ours(*arguments)

    monkeypatch.setattr(catalog, method, after_somebody)
    with pytest.raises(ConcurrentModificationError, match="modified concurrently"):
        change(namespace, table_id, place + "-moved")
    found = namespace.describe_table(DescribeTableRequest(id=table_id))
    assert (found.location, found.properties) == (place, {"by": "somebody"})
    assert tables(namespace, database) == ["t"]


# -- the metastore's own words -------------------------------------------------------------------


def test_a_call_that_the_metastore_does_not_know_is_unsupported(connect: Connect) -> None:
    pool = connect()
    with (
        pytest.raises(
            UnsupportedOperationError, match="does not know a call that is needed to list"
        ),
        translated("list catalogs"),
    ):
        pool.call(lambda c: c.catalogs.get_catalogs(), name="get_catalogs", repeatable=True)


def test_any_other_failure_of_the_metastore_is_internal_and_in_its_words(
    metastore: Metastore, namespace: HiveNamespace, database: str
) -> None:
    table = raw_table(database, "t", "/nowhere")
    table.sd = None
    with (
        raw_client(metastore.port) as client,
        pytest.raises(InternalError, match=r"MetaException: java.lang.NullPointerException"),
        translated("create it"),
    ):
        client.create_table(table)
    assert tables(namespace, database) == []
