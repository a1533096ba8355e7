"""Gateways of three Hive catalogs, one of which stops to respond: requests about all of them."""

from __future__ import annotations

import html
import os
import re
import signal
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import httpx
import lance_namespace as api
import pytest
from server.authenticated import serve
from servers.metastores import Metastores
from servers.processes import free_port, wait_until

from lance_bridge_doctor import Kind, diagnose
from lance_bridge_hive import HiveNamespace
from lance_bridge_metastore import Metastore

pytestmark = [
    pytest.mark.servers,
    pytest.mark.spec("server.md#health", "server.md#the-catalog-page"),
]

GENEROUS = 4.0
"""Seconds; the machine may be busy. Without other load, each takes less than one."""
DATABASE = "silent_metastores"


def suspend(metastore: Metastore) -> None:
    assert metastore.pid is not None
    os.kill(metastore.pid, signal.SIGSTOP)


def resume(metastore: Metastore) -> None:
    if metastore.pid is None:
        metastore.start()
    else:
        os.kill(metastore.pid, signal.SIGCONT)


FAULTS: dict[str, Callable[[Metastore], None]] = {"suspended": suspend, "killed": Metastore.kill}


def declare(uri: str, root: Path, table: str) -> None:
    with HiveNamespace(uri=uri, root=str(root)) as hive:
        hive.create_namespace(api.CreateNamespaceRequest(id=[DATABASE], mode="ExistOk"))
        hive.declare_table(api.DeclareTableRequest(id=[DATABASE, table]))


@pytest.fixture(scope="module")
def third(metastores: Metastores) -> Metastore:
    """The metastore that stops to respond."""
    return metastores.new("2.3")


@pytest.fixture(scope="module")
def client(
    tmp_path_factory: pytest.TempPathFactory, metastores: Metastores, third: Metastore
) -> Iterator[httpx.Client]:
    """A server of three catalogs; two are on one metastore."""
    uri, root = metastores.get("2.3").uri, tmp_path_factory.mktemp("root")
    uris = {"one": uri, "two": uri, "three": third.uri}
    declare(uri, root, "films")
    declare(third.uri, root, "films_three")
    catalogs = [f"--catalog={name}=hive:uri={uri}" for name, uri in uris.items()]
    roots = [part for name in uris for part in ("-p", f"{name}.root={root}")]
    with (
        serve(*catalogs, *roots, "--port", "0") as served,
        httpx.Client(base_url=served.url, timeout=60) as client,
    ):
        yield client
    with HiveNamespace(uri=uri) as hive:
        request = api.DropNamespaceRequest(id=[DATABASE], mode="Skip", behavior="Cascade")
        hive.drop_namespace(request)


@contextmanager
def failing(client: httpx.Client, metastore: Metastore, fault: str) -> Iterator[None]:
    """Break a metastore that responds; repair it, and wait until its catalog is served again."""
    tables = f"/v1/namespace/three${DATABASE}/table/list"
    wait_until(lambda: client.get(tables).status_code == 200, 30)
    assert search(client)[0] == ["one", "three", "two"]
    FAULTS[fault](metastore)
    try:
        yield
    finally:
        resume(metastore)
    began = time.monotonic()
    wait_until(lambda: client.get(tables).status_code == 200, 30)
    print(f"{fault}: served again after {time.monotonic() - began:.2f} s")
    assert time.monotonic() - began < GENEROUS


def page(client: httpx.Client, path: str) -> str:
    return html.unescape(client.get(path).text)


def search(client: httpx.Client) -> tuple[list[str], list[str]]:
    """Return the catalogs with matches, and those that were not searched."""
    found = page(client, "/ui/search?q=films")
    matches = set(re.findall(rf">(\w+)\.{DATABASE}\.films", found))
    return sorted(matches), re.findall(
        r"Could not search (\w+): .*?'three' does not respond", found
    )


def listed(client: httpx.Client) -> tuple[list[str], list[str]]:
    content = client.get("/v1/table").json()
    matches = {each.split("$")[0] for each in content["tables"] if DATABASE in each}
    left_out = [key for key in content.get("context") or {} if key.startswith("unavailable.")]
    return sorted(matches), [each.removeprefix("unavailable.") for each in left_out]


def home(client: httpx.Client) -> tuple[list[str], list[str]]:
    found = page(client, "/ui")
    tree, rest = (
        re.findall(r">(\w+)</a> <span[^>]*>unreachable<", part) for part in found.split("<main")
    )
    assert tree == rest
    return ["one", "two"] if ">one</a>" in found and ">two</a>" in found else [], rest


REQUESTS = {"search": search, "listing": listed, "home": home}


@pytest.mark.parametrize("fault", FAULTS)
@pytest.mark.parametrize("kind", REQUESTS)
def test_the_first_request_after_a_metastore_fails_has_the_others_and_names_it(
    client: httpx.Client, third: Metastore, fault: str, kind: str
) -> None:
    with failing(client, third, fault):
        for _ in range(3):
            began = time.monotonic()
            up, down = REQUESTS[kind](client)
            seconds = time.monotonic() - began
            print(f"{fault}, {kind}: {seconds:.2f} s")
            assert (up, down) == (["one", "two"], ["three"])
            assert seconds < GENEROUS


@pytest.mark.parametrize("fault", FAULTS)
def test_the_first_call_ends_when_the_breaker_opens(
    client: httpx.Client, third: Metastore, fault: str
) -> None:
    """Not after the time limits of the metastore's client, which are over a minute."""
    with failing(client, third, fault):
        began = time.monotonic()
        answer = client.get(f"/v1/namespace/three${DATABASE}/table/list")
        seconds = time.monotonic() - began
        print(f"{fault}, first call: {seconds:.2f} s")
        assert answer.status_code == 503
        assert "'three' does not respond" in answer.json()["error"]
        assert seconds < 4 + GENEROUS  # `readiness.timeout` until it is probed, and for the probe


@pytest.mark.parametrize("fault", FAULTS)
def test_calls_metrics_and_readyz_agree_while_a_metastore_is_down(
    client: httpx.Client, third: Metastore, fault: str
) -> None:
    gauge = 'lance_bridge_catalog_up{catalog="three"}'
    tables = f"/v1/namespace/three${DATABASE}/table/list"
    with failing(client, third, fault):
        home(client)
        wait_until(lambda: f"{gauge} 0.0" in client.get("/metrics").text, 30)
        wait_until(lambda: "three" in client.get("/readyz").json().get("problems", {}), 30)
        problem = client.get("/readyz").json()["problems"]["three"]
        assert "did not respond" in problem["error"]
        assert "get_all_databases" not in problem["error"]
        assert "127.0.0.1" not in problem["error"]
        [finding] = diagnose("rest", {"uri": str(client.base_url)}).findings
        assert (finding.kind, finding.subject) == (Kind.UNREACHABLE, "three")
        assert problem["since"] in finding.message
        began = time.monotonic()
        answer = client.get(tables)
        assert "tried again every half second" in answer.text
        assert (answer.status_code, answer.headers["retry-after"]) == (503, "1")
        assert time.monotonic() - began < 1
        tree = page(client, f"/ui/namespace/one/{DATABASE}").split("<main")[0]
        assert re.findall(r">(\w+)</a> <span[^>]*>unreachable<", tree) == ["three"]
    assert f"{gauge} 1.0" in client.get("/metrics").text
    assert diagnose("rest", {"uri": str(client.base_url)}).findings == ()


def test_a_port_without_a_metastore_is_named_at_once(
    metastores: Metastores, tmp_path: Path
) -> None:
    uri, closed = metastores.get("2.3").uri, f"thrift://127.0.0.1:{free_port()}"
    catalogs = [f"--catalog={name}=hive:uri={uri}" for name in ("one", "two")]
    roots = [part for name in ("one", "two") for part in ("-p", f"{name}.root={tmp_path}")]
    declare(uri, tmp_path, "films_here")
    with (
        serve(*catalogs, f"--catalog=three=hive:uri={closed}", *roots, "--port", "0") as served,
        httpx.Client(base_url=served.url, timeout=60) as client,
    ):
        assert client.get("/v1/namespace/one/list").status_code == 200  # it has connected
        for kind, request in REQUESTS.items():
            began = time.monotonic()
            up, down = request(client)
            print(f"refused, {kind}: {time.monotonic() - began:.2f} s")
            assert (up, down) == (["one", "two"], ["three"])
            assert time.monotonic() - began < GENEROUS
