"""A drop of a Hive catalog that breaks off: nothing is lost, and another drop completes it."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from pathlib import Path

import pymetastore.hive_metastore.ttypes as hive3
import pytest
from lance_namespace.errors import (
    LanceNamespaceError,
    NamespaceNotEmptyError,
    ServiceUnavailableError,
)
from pymetastore.hive_metastore.ThriftHiveMetastore import Client
from servers.hive_raw import raw_client
from servers.metastores import Metastores
from servers.proxy import Fault, ThriftProxy

from lance_bridge.testing.calls import Calls
from lance_bridge_metastore import Metastore

from .conftest import open_calls

pytestmark = pytest.mark.servers

STEPS = ["drop_database", "alter_catalog", "drop_catalog"]
LOST = [Fault.LOSE_REPLY, Fault.DROP_REQUEST]


@pytest.fixture(scope="module")
def server(metastores: Metastores) -> Metastore:
    return metastores.get("4.2")


@pytest.fixture
def wire(server: Metastore) -> Iterator[ThriftProxy]:
    with ThriftProxy("127.0.0.1", server.port) as running:
        yield running


@pytest.fixture
def calls(wire: ThriftProxy, tmp_path: Path) -> Iterator[Calls]:
    with open_calls(
        uri=wire.uri,
        catalog_levels="true",
        root=str(tmp_path),
        **{"client.retry-timeout": "1", "client.timeout": "20"},
    ) as connected:
        yield connected


@pytest.fixture
def catalog(calls: Calls, tmp_path: Path) -> Iterator[str]:
    """A catalog with a file in its directory, which still exists after the test."""
    name = f"cat_{uuid.uuid4().hex[:12]}"
    calls.create_namespace([name])
    (tmp_path / name).mkdir(exist_ok=True)
    (tmp_path / name / "kept.txt").write_text("kept")
    yield name
    assert (tmp_path / name / "kept.txt").read_text() == "kept"


class LateDatabase:
    """Creates the database `late` in the catalog just before it is dropped."""

    def __init__(self, port: int, database: hive3.Database, patch: pytest.MonkeyPatch) -> None:
        self._port = port
        self._database = database
        self._patch = patch

    def begin(self) -> None:
        real = Client.drop_catalog

        def drop_catalog(client: Client, request: object) -> object:
            with raw_client(self._port, Client) as other:
                other.create_database(self._database)
            return real(client, request)

        self._patch.setattr(Client, "drop_catalog", drop_catalog)

    def end(self) -> None:
        self._patch.undo()


@pytest.fixture
def late(
    server: Metastore, catalog: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> LateDatabase:
    place = f"file:{tmp_path}/late"
    database = hive3.Database(name="late", catalogName=catalog, locationUri=place, parameters={})
    return LateDatabase(server.port, database, monkeypatch)


def names(calls: Calls, *path: str) -> list[str]:
    return list(calls.all_namespaces(list(path)))


def location(calls: Calls, name: str) -> str:
    found = calls.describe_namespace([name]).properties or {}
    return found["catalog.location-uri"]


def drop(calls: Calls, name: str) -> None:
    calls.drop_namespace([name])


def leave_unfinished(
    calls: Calls, wire: ThriftProxy, catalog: str, step: str = "drop_catalog"
) -> str:
    """Begin a drop that breaks off at a step; return the catalog's location before it."""
    before = location(calls, catalog)
    wire.fail_next(step, Fault.DROP_REQUEST, times=3)
    with pytest.raises(ServiceUnavailableError):
        drop(calls, catalog)
    return before


@pytest.mark.parametrize("fault", LOST)
@pytest.mark.parametrize("step", STEPS)
def test_a_lost_reply_does_not_keep_a_catalog_from_being_dropped(
    calls: Calls,
    wire: ThriftProxy,
    catalog: str,
    step: str,
    fault: Fault,
) -> None:
    wire.fail_next(step, fault)
    drop(calls, catalog)
    assert wire.fired == [(step, fault)]
    assert catalog not in names(calls)


@pytest.mark.parametrize("step", STEPS)
def test_a_drop_that_was_left_unfinished_is_completed_by_another(
    calls: Calls, wire: ThriftProxy, catalog: str, step: str
) -> None:
    leave_unfinished(calls, wire, catalog, step)
    assert catalog in names(calls)
    drop(calls, catalog)
    assert catalog not in names(calls)


def test_an_unfinished_drop_of_a_catalog_that_is_used_again_is_undone(
    calls: Calls, wire: ThriftProxy, catalog: str
) -> None:
    before = leave_unfinished(calls, wire, catalog)
    calls.create_namespace([catalog, "new"])
    with pytest.raises(NamespaceNotEmptyError, match="new"):
        drop(calls, catalog)
    assert location(calls, catalog) == before
    calls.drop_namespace([catalog, "new"])
    drop(calls, catalog)


def test_overwrite_of_a_half_dropped_catalog_puts_its_location_back(
    calls: Calls, wire: ThriftProxy, catalog: str
) -> None:
    before = leave_unfinished(calls, wire, catalog)
    calls.create_namespace([catalog], mode="Overwrite")
    assert location(calls, catalog) == before
    drop(calls, catalog)


@pytest.mark.parametrize("unfinished", [False, True])
def test_a_drop_that_the_metastore_refuses_is_undone(
    calls: Calls, wire: ThriftProxy, catalog: str, late: LateDatabase, unfinished: bool
) -> None:
    before = leave_unfinished(calls, wire, catalog) if unfinished else location(calls, catalog)
    assert ("/.dropped-" in location(calls, catalog)) is unfinished
    late.begin()
    with pytest.raises(LanceNamespaceError):
        drop(calls, catalog)
    assert location(calls, catalog) == before
    assert names(calls, catalog) == ["default", "late"]
    late.end()
    calls.drop_namespace([catalog, "late"])
    drop(calls, catalog)
