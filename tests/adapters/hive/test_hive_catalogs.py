"""The level of Hive catalogs: making and dropping them, and drops that break off."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path

import lance
import pyarrow as pa
import pymetastore.hive_metastore.ttypes as hive3
import pytest
from lance_namespace.errors import (
    InvalidInputError,
    LanceNamespaceError,
    NamespaceNotEmptyError,
    NamespaceNotFoundError,
    ServiceUnavailableError,
    UnsupportedOperationError,
)
from pymetastore.hive_metastore.ThriftHiveMetastore import Client
from servers.hive_entries import raw_client
from servers.metastores import Metastores
from servers.proxy import Fault, ThriftProxy

from lance_bridge.testing.calls import Calls
from lance_bridge_metastore import Metastore

from .conftest import open_calls

pytestmark = [pytest.mark.servers, pytest.mark.spec("hive.md#namespace")]

ROWS = pa.table({"id": [0, 1, 2]})
STEPS = ["drop_database", "alter_catalog", "drop_catalog"]
LOST = [Fault.LOSE_REPLY, Fault.DROP_REQUEST]


def with_catalogs(uri: str, **properties: str) -> closing[Calls]:
    return open_calls(uri=uri, catalog_levels="true", **properties)


@pytest.fixture(scope="module", params=["3.1", "4.2"])
def newer(request: pytest.FixtureRequest, metastores: Metastores) -> Metastore:
    return metastores.get(request.param)


@pytest.fixture
def each(newer: Metastore, tmp_path: Path) -> Iterator[tuple[Calls, str]]:
    """A client with catalogs, and a catalog of the test's own, on each of these releases."""
    name = f"cat_{uuid.uuid4().hex[:12]}"
    with with_catalogs(newer.uri, root=str(tmp_path)) as calls:
        calls.create_namespace([name])
        yield calls, name
        calls.drop_namespace([name], mode="Skip", behavior="Cascade")


@pytest.fixture
def metastore(metastores: Metastores) -> Metastore:
    return metastores.get("4.2")


@pytest.fixture
def rootless(metastore: Metastore) -> Iterator[Calls]:
    """A client without a root."""
    with with_catalogs(metastore.uri) as calls:
        yield calls


@pytest.fixture
def calls(proxy: ThriftProxy, tmp_path: Path) -> Iterator[Calls]:
    """A client behind the proxy, with a root."""
    limits = {"client.retry-timeout": "1", "client.timeout": "20"}
    with with_catalogs(proxy.uri, root=str(tmp_path), **limits) as connected:
        yield connected


# -- making --------------------------------------------------------------------------------------


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
    metastores: Metastores, call: Callable[[Calls], object]
) -> None:
    uri = metastores.get("2.3").uri
    with with_catalogs(uri) as catalogs, open_calls(uri=uri) as plain:
        with pytest.raises(UnsupportedOperationError, match="older than Hive 3"):
            call(catalogs)
        assert "leaked" not in plain.all_namespaces([])
        assert plain.all_tables(["default"]) == []


@pytest.mark.spec("hive.md#createnamespace")
@pytest.mark.parametrize("mode", ["Create", "ExistOk", "Overwrite"])
def test_a_new_catalog_needs_a_location_and_holds_no_other_property(
    rootless: Calls, tmp_path: Path, mode: str
) -> None:
    name = f"cat_{uuid.uuid4().hex}"
    location = {"catalog.location-uri": f"file:{tmp_path}/{name}"}
    for properties, message in (
        ({}, "location-uri"),
        ({"catalog.description": "x"}, "location-uri"),
        ({**location, "team": "vision"}, "'team'"),
        ({**location, "catalog.description": "d" * 4001}, "4001 characters"),
        ({"catalog.location-uri": "relative/x"}, "relative"),
    ):
        with pytest.raises(InvalidInputError, match=message):
            rootless.create_namespace([name], mode=mode, properties=properties)
    assert name not in rootless.all_namespaces([])


def test_exist_ok_of_an_existing_catalog_needs_no_location(rootless: Calls, tmp_path: Path) -> None:
    name = f"cat_{uuid.uuid4().hex}"
    location = {"catalog.location-uri": f"file:{tmp_path}/{name}"}
    rootless.create_namespace([name], properties=location)
    again = rootless.create_namespace([name], mode="ExistOk", properties={"team": "vision"})
    assert set(again.properties or {}) == {"catalog.location-uri"}
    rootless.drop_namespace([name])
    assert name not in rootless.all_namespaces([])


@pytest.mark.spec("hive.md#dropnamespace")
def test_hives_own_catalog_is_not_dropped(rootless: Calls) -> None:
    before = rootless.all_namespaces(["hive"])
    with pytest.raises(InvalidInputError, match="'hive' is built into Hive"):
        rootless.drop_namespace(["hive"])
    assert rootless.all_namespaces(["hive"]) == before


@pytest.mark.spec("hive.md#dropnamespace")
def test_a_catalog_may_be_called_like_the_first_database(calls: Calls) -> None:
    calls.create_namespace(["default"])
    calls.drop_namespace(["default"], behavior="Cascade")
    assert "default" not in calls.all_namespaces([])


# -- dropping ------------------------------------------------------------------------------------


@pytest.mark.parametrize("newer", ["3.1", "4.0", "4.1", "4.2"], indirect=True)
def test_dropping_a_catalog_leaves_its_files(each: tuple[Calls, str], tmp_path: Path) -> None:
    calls, name = each
    kept = [tmp_path / name / "default" / "kept.txt", tmp_path / name / "kept.lance" / "kept.txt"]
    for path in kept:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("kept")
    calls.drop_namespace([name])
    assert [path.read_text() for path in kept] == ["kept", "kept"]
    with pytest.raises(NamespaceNotFoundError):
        calls.describe_namespace([name])


@pytest.mark.spec("hive.md#dropnamespace")
def test_a_catalog_with_tables_is_dropped_by_cascade_alone(
    each: tuple[Calls, str], tmp_path: Path
) -> None:
    calls, name = each
    for database in ("default", "db"):
        calls.create_namespace([name, database], mode="ExistOk")
        table_id = [name, database, "t"]
        written = lance.write_dataset(ROWS, namespace_client=calls.client, table_id=table_id)
        assert Path(written.uri).exists()
        with pytest.raises(NamespaceNotEmptyError):
            calls.drop_namespace([name])
        assert calls.all_tables([name, database]) == ["t"]
    calls.drop_namespace([name], behavior="Cascade")
    assert list(tmp_path.rglob("*.lance")) == []
    assert name not in calls.all_namespaces([])


@pytest.mark.spec("hive.md#renametable")
def test_a_table_cannot_be_renamed_into_another_catalog(
    each: tuple[Calls, str], tmp_path: Path
) -> None:
    calls, name = each
    place = str(tmp_path / "t.lance")
    lance.write_dataset(ROWS, place)
    calls.register_table([name, "default", "t"], place)
    with pytest.raises(UnsupportedOperationError, match="another Hive catalog"):
        calls.rename_table([name, "default", "t"], "t", new_namespace_id=["hive", "default"])
    assert calls.all_tables([name, "default"]) == ["t"]


# -- drops that break off --------------------------------------------------------------------------


@pytest.fixture
def catalog(calls: Calls, tmp_path: Path) -> Iterator[str]:
    """A catalog with a file in its directory, which still exists after the test."""
    name = f"cat_{uuid.uuid4().hex[:12]}"
    calls.create_namespace([name])
    (tmp_path / name).mkdir(exist_ok=True)
    (tmp_path / name / "kept.txt").write_text("kept")
    yield name
    assert (tmp_path / name / "kept.txt").read_text() == "kept"


def names(calls: Calls, *path: str) -> list[str]:
    return list(calls.all_namespaces(list(path)))


def location(calls: Calls, name: str) -> str:
    found = calls.describe_namespace([name]).properties or {}
    return found["catalog.location-uri"]


def drop(calls: Calls, name: str) -> None:
    calls.drop_namespace([name])


def leave_unfinished(
    calls: Calls, proxy: ThriftProxy, catalog: str, step: str = "drop_catalog"
) -> str:
    """Begin a drop that breaks off at a step; return the catalog's location before it."""
    before = location(calls, catalog)
    proxy.fail_next(step, Fault.DROP_REQUEST, times=3)
    with pytest.raises(ServiceUnavailableError):
        drop(calls, catalog)
    return before


@pytest.mark.parametrize("fault", LOST)
@pytest.mark.parametrize("step", STEPS)
def test_a_lost_reply_does_not_keep_a_catalog_from_being_dropped(
    calls: Calls,
    proxy: ThriftProxy,
    catalog: str,
    step: str,
    fault: Fault,
) -> None:
    proxy.fail_next(step, fault)
    drop(calls, catalog)
    assert proxy.fired == [(step, fault)]
    assert catalog not in names(calls)


@pytest.mark.parametrize("step", STEPS)
def test_a_drop_that_was_left_unfinished_is_completed_by_another(
    calls: Calls, proxy: ThriftProxy, catalog: str, step: str
) -> None:
    leave_unfinished(calls, proxy, catalog, step)
    assert catalog in names(calls)
    drop(calls, catalog)
    assert catalog not in names(calls)


def test_an_unfinished_drop_of_a_catalog_that_is_used_again_is_undone(
    calls: Calls, proxy: ThriftProxy, catalog: str
) -> None:
    before = leave_unfinished(calls, proxy, catalog)
    calls.create_namespace([catalog, "new"])
    with pytest.raises(NamespaceNotEmptyError, match="new"):
        drop(calls, catalog)
    assert location(calls, catalog) == before
    calls.drop_namespace([catalog, "new"])
    drop(calls, catalog)


def test_overwrite_of_a_half_dropped_catalog_puts_its_location_back(
    calls: Calls, proxy: ThriftProxy, catalog: str
) -> None:
    before = leave_unfinished(calls, proxy, catalog)
    calls.create_namespace([catalog], mode="Overwrite")
    assert location(calls, catalog) == before
    drop(calls, catalog)


@pytest.mark.parametrize("unfinished", [False, True])
def test_a_drop_that_the_metastore_refuses_is_undone(
    calls: Calls, proxy: ThriftProxy, metastore: Metastore, catalog: str, *, unfinished: bool
) -> None:
    before = leave_unfinished(calls, proxy, catalog) if unfinished else location(calls, catalog)
    assert ("/.dropped-" in location(calls, catalog)) is unfinished
    place = before.replace(catalog, "late")
    late = hive3.Database(name="late", catalogName=catalog, locationUri=place, parameters={})
    real = Client.drop_catalog

    def drop_catalog(client: Client, request: object) -> object:
        with raw_client(metastore.port, Client) as other:
            other.create_database(late)
        return real(client, request)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Client, "drop_catalog", drop_catalog)
        with pytest.raises(LanceNamespaceError):
            drop(calls, catalog)
    assert location(calls, catalog) == before
    assert names(calls, catalog) == ["default", "late"]
    calls.drop_namespace([catalog, "late"])
    drop(calls, catalog)
