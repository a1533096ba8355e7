"""A gateway that is killed, and a metastore that is, under clients that write and read."""

from __future__ import annotations

import itertools
import uuid
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import httpx
import lance
import lance_namespace as api
import pytest
from cli.running import wait_until
from lance_namespace.errors import InternalError, ServiceUnavailableError
from server.clients_under_load import CLIENTS, SCHEMA, Load
from server.gateway_process import GatewayProcess
from servers.metastores import Metastores

from lance_bridge.testing.build import ipc
from lance_bridge_hive import HiveNamespace
from lance_bridge_metastore import Metastore

pytestmark = pytest.mark.server

_SECONDS = 120.0
"""How long a client may take to be served again."""
MANAGED = {"managed_by": "impl"}


@pytest.fixture
def metastore(metastores: Metastores) -> Metastore:
    return metastores.get("2.3")


@pytest.fixture
def catalog(metastore: Metastore, tmp_path: Path) -> Iterator[Any]:
    """The catalog itself, past the gateway."""
    with HiveNamespace(uri=metastore.uri, root=f"{tmp_path}/root") as namespace:
        yield namespace


@pytest.fixture
def gateway(metastore: Metastore, tmp_path: Path) -> Iterator[GatewayProcess]:
    hive = f"prod=hive:uri={metastore.uri}"
    options = ["-c", hive, "-p", f"prod.root={tmp_path}/root", "--root", "prod"]
    options += ["-p", "prod.client.retry-timeout=2"]
    with GatewayProcess(tmp_path / "gateway.log", *options) as process:
        yield process


@pytest.fixture
def tables(catalog: Any) -> list[list[str]]:
    """A table whose versions Lance manages in storage, and one whose the catalog does."""
    database = f"kills_{uuid.uuid4().hex[:12]}"
    catalog.create_namespace(api.CreateNamespaceRequest(id=[database]))
    ids = [[database, "stored"], [database, "managed"]]
    for table_id, properties in zip(ids, (None, MANAGED), strict=True):
        request = api.CreateTableRequest(id=table_id, properties=properties)
        catalog.create_table(request, ipc(SCHEMA.empty_table()))
    return ids


@contextmanager
def clients(url: str, tables: Sequence[Sequence[str]], writers: int) -> Iterator[Load]:
    """Writers of every protocol on each table, so many of a kind, and four readers."""
    load = Load()
    for table_id, connect, _ in itertools.product(tables, CLIENTS, range(writers)):
        load.add_writer(connect(url, table_id), table_id)
    for table_id, connect in itertools.product(tables, CLIENTS[1:]):
        load.add_reader(connect(url, table_id), table_id)
    with load.running():
        load.await_progress(_SECONDS)
        yield load
    print(dict(load.failures), dict(load.done))


def reader(catalog: Any) -> Callable[[Sequence[str]], Any]:
    return lambda table_id: lance.dataset(
        namespace_client=catalog, table_id=list(table_id)
    ).to_table()


# -- the gateway -----------------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.parametrize(
    ("writers", "kills"),
    [
        pytest.param(1, 2, id="twice"),
        pytest.param(2, 30, id="often", marks=pytest.mark.timeout(3600)),
    ],
)
def test_a_killed_gateway_loses_no_acknowledged_write_and_doubles_none(
    gateway: GatewayProcess, tables: list[list[str]], catalog: Any, writers: int, kills: int
) -> None:
    with clients(gateway.url, tables, writers) as load:
        for _ in range(kills):
            gateway.restart()
            load.await_progress(_SECONDS)
    assert load.failures, "no client noticed"
    load.require_all(reader(catalog))


# -- the metastore ---------------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.parametrize(
    "load_size",
    [
        pytest.param((1, 1), id="once"),
        pytest.param((2, 10), id="often", marks=pytest.mark.timeout(3600)),
    ],
)
def test_while_the_metastore_is_down_the_only_error_is_service_unavailable(
    gateway: GatewayProcess,
    tables: list[list[str]],
    metastore: Metastore,
    load_size: tuple[int, int],
) -> None:
    load = Load()
    refusals: list[int] = []
    writers, kills = load_size
    for table_id, connect, _ in itertools.product(tables, CLIENTS, range(writers)):
        load.add_writer(connect(gateway.url, table_id), table_id)
    with httpx.Client(base_url=gateway.url, timeout=_SECONDS) as http:
        for method, path in _requests(tables[1]):
            load.add_call(partial(_ask, http, method, path, refusals))
        with load.running():
            load.await_progress(_SECONDS)
            for _ in range(kills):
                go_down(metastore, refusals)
                load.await_progress(_SECONDS)
    print(dict(load.failures), dict(load.done))
    assert InternalError not in load.failures
    with HiveNamespace(uri=metastore.uri) as catalog:
        load.require_all(reader(catalog))


def go_down(metastore: Metastore, refusals: list[int]) -> None:
    """End a metastore until requests have been refused, and start it again."""
    metastore.kill()
    enough = len(refusals) + 5
    wait_until(lambda: len(refusals) >= enough)
    metastore.start()


def _requests(table_id: Sequence[str]) -> list[tuple[str, str]]:
    database, table = table_id[0], f"/v1/table/{'$'.join(table_id)}"
    reads = [f"{table}/{each}" for each in ("describe", "exists", "count_rows")]
    return [("GET", f"/v1/namespace/{database}/table/list"), *(("POST", each) for each in reads)]


def _ask(http: httpx.Client, method: str, path: str, refusals: list[int]) -> bool:
    """Ask once.

    Raises:
        ServiceUnavailableError: (17) it was answered as the specification has it.
    """
    answer = http.request(method, path)
    if answer.status_code == 200:
        return True
    assert (answer.status_code, answer.json()["code"]) == (503, 17), answer.text
    refusals.append(answer.status_code)
    raise ServiceUnavailableError(answer.json()["error"])
