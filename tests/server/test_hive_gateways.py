"""Gateways to real Hive Metastores: pylance and LanceDB on them, and one that stops to respond."""

from __future__ import annotations

import html
import json
import multiprocessing
import os
import re
import signal
import time
import uuid
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from multiprocessing.context import SpawnProcess
from pathlib import Path
from typing import Any

import httpx
import lance
import lance_namespace as api
import lancedb
import pyarrow as pa
import pytest
from lance.fragment import write_fragments
from lance_namespace.errors import UnauthenticatedError
from lance_namespace_urllib3_client.models import Identity
from server.authenticated import connect, one_api_key, serve
from server.gateways import serve_app
from servers.hive_entries import raw_entry
from servers.metastores import Metastores
from servers.processes import free_port, wait_until
from starlette.applications import Starlette
from starlette.routing import Mount

from lance_bridge.testing.calls import ipc
from lance_bridge_doctor import Kind, diagnose
from lance_bridge_hive import HiveNamespace
from lance_bridge_metastore import Metastore
from lance_bridge_server.access.authentication import Authenticator
from lance_bridge_server.app import create_app
from lance_bridge_server.gateway.gateway import Gateway

pytestmark = pytest.mark.servers


def rows(ids: Sequence[int]) -> pa.Table:
    return pa.table({"id": pa.array(ids, pa.int64())})


def ids(dataset: Any) -> list[int]:
    return sorted(dataset.to_table()["id"].to_pylist())


@pytest.fixture(scope="module")
def authentication(tmp_path_factory: pytest.TempPathFactory) -> tuple[Authenticator, str]:
    """What authenticates by a file of one API key, and the key."""
    return one_api_key(tmp_path_factory.mktemp("keys") / "keys.json")


@pytest.fixture(scope="module")
def key(authentication: tuple[Authenticator, str]) -> str:
    return authentication[1]


@pytest.fixture(scope="module")
def url(
    tmp_path_factory: pytest.TempPathFactory,
    metastores: Metastores,
    authentication: tuple[Authenticator, str],
) -> Iterator[str]:
    """A gateway that takes one API key, below a base path."""
    uri, root = metastores.get("2.3").uri, tmp_path_factory.mktemp("root")
    with HiveNamespace(uri=uri, root=str(root)) as hive:
        app = create_app(Gateway(hive, authenticator=authentication[0]))
        with serve_app(Starlette(routes=[Mount("/catalogs/hive", app)])) as address:
            yield f"{address}/catalogs/hive"


@pytest.fixture
def client(url: str, key: str) -> Any:
    """A client of the gateway."""
    return connect(url, **{"header.x-api-key": key})


@pytest.mark.spec("server.md#clients")
def test_a_key_may_be_in_the_request(url: str, key: str) -> None:
    """`test_authentication` has keys in headers."""
    own = api.ListNamespacesRequest(id=[], identity=Identity(api_key=key))
    assert connect(url).list_namespaces(own).namespaces
    other = api.ListNamespacesRequest(id=[], identity=Identity(api_key="s3cret"))
    for wrong in (other, api.ListNamespacesRequest(id=[])):
        with pytest.raises(UnauthenticatedError) as caught:
            connect(url).list_namespaces(wrong)
        assert "s3cret" not in str(caught.value)


# -- managed tables --------------------------------------------------------------------------------


@pytest.fixture
def managed(client: Any) -> list[str]:
    """The identifier of a table whose latest version the catalog holds."""
    table_id = [f"db_{uuid.uuid4().hex[:12]}", "managed"]
    client.create_namespace(api.CreateNamespaceRequest(id=table_id[:1]))
    request = api.DeclareTableRequest(id=table_id, properties={"managed_by": "impl"})
    client.declare_table(request)
    lance.write_dataset(rows([]), namespace_client=client, table_id=table_id, mode="overwrite")
    return table_id


@pytest.mark.spec("server.md#clients")
def test_fragments_of_several_processes_are_committed_at_once(
    client: Any, managed: list[str], tmp_path: Path
) -> None:
    described = client.describe_table(api.DescribeTableRequest(id=managed))
    assert described.managed_versioning
    spawn = multiprocessing.get_context("spawn")
    outputs = [tmp_path / str(number) for number in range(2)]
    workers = [
        spawn.Process(target=_write, args=(described.location, number, str(output)))
        for number, output in enumerate(outputs)
    ]
    _run(workers)
    written = [lance.FragmentMetadata.from_json(output.read_text()) for output in outputs]
    dataset = lance.dataset(namespace_client=client, table_id=managed)
    committed = lance.LanceDataset.commit(
        described.location,
        lance.LanceOperation.Append(written),
        read_version=dataset.version,
        namespace_client=client,
        table_id=managed,
        namespace_client_managed_versioning=described.managed_versioning,
    )
    assert committed.version == dataset.version + 1
    assert ids(lance.dataset(namespace_client=client, table_id=managed)) == [0, 1]


def _run(workers: Sequence[SpawnProcess]) -> None:
    for each in workers:
        each.start()
    for each in workers:
        each.join(60)
    assert [each.exitcode for each in workers] == [0, 0]


def _write(location: str, number: int, output: str) -> None:
    """Write a fragment in a process of its own."""
    (fragment,) = write_fragments(rows([number]), location, mode="append")
    Path(output).write_text(json.dumps(fragment.to_json()))


@pytest.mark.spec("server.md#clients", "common.md#published-columns")
@pytest.mark.parametrize("managed_by", ["storage", "impl"])
def test_commits_through_a_gateway_publish_columns(
    client: Any, metastores: Metastores, managed_by: str
) -> None:
    """Rows that the gateway writes, and versions that a client of it creates of a managed table."""
    table_id = [f"db_{uuid.uuid4().hex[:12]}", "published"]
    on = {"publish.columns": "true"}
    client.create_namespace(api.CreateNamespaceRequest(id=table_id[:1], properties=on))
    request = api.CreateTableRequest(id=table_id, properties={"managed_by": managed_by})
    client.create_table(request, ipc(rows([1, 2])))
    client.insert_into_table(api.InsertIntoTableRequest(id=table_id), ipc(rows([3])))
    if managed_by == "impl":
        lance.write_dataset(rows([4]), namespace_client=client, table_id=table_id, mode="append")
    entry = raw_entry(metastores.get("2.3").port, *table_id)
    assert [(each.name, each.type) for each in entry.sd.cols] == [("id", "bigint")]
    assert entry.parameters["numRows"] == ("4" if managed_by == "impl" else "3")


# -- gateways side by side, as behind a load balancer ----------------------------------------------


DATABASE = ["prod", "side_by_side"]
ROWS = pa.table({"id": [1, 2, 3]})


@pytest.fixture
def urls(tmp_path: Path, metastores: Metastores) -> Iterator[list[str]]:
    """Two gateways to one metastore."""
    uri = metastores.get("2.3").uri
    catalog = ["--catalog", f"prod=hive:uri={uri}", "-p", f"prod.root={tmp_path}", "--port", "0"]
    with serve(*catalog) as one, serve(*catalog) as other:
        yield [one.url, other.url]
    with HiveNamespace(uri=uri) as namespace:
        request = api.DropNamespaceRequest(id=DATABASE[1:], mode="Skip", behavior="Cascade")
        namespace.drop_namespace(request)


@pytest.mark.spec("server.md#clients", "server.md#freshness")
def test_requests_may_go_to_either(urls: list[str]) -> None:
    one, other = (connect(url) for url in urls)
    one.create_namespace(api.CreateNamespaceRequest(id=DATABASE))
    for name in "abc":
        table = [*DATABASE, name]
        lance.write_dataset(ROWS, namespace_client=other, table_id=table)
        assert lance.dataset(namespace_client=one, table_id=table).count_rows() == 3

    first = one.list_tables(api.ListTablesRequest(id=DATABASE, limit=2))
    second = api.ListTablesRequest(id=DATABASE, limit=2, page_token=first.page_token)
    assert [*first.tables, *other.list_tables(second).tables] == ["a", "b", "c"]

    tables = [
        lancedb.connect("db://prod.side_by_side", api_key="k", host_override=url).open_table("a")
        for url in urls
    ]
    for number, table in enumerate(tables):
        table.add([{"id": 10 + number}])
        assert [each.count_rows() for each in tables] == [4 + number] * 2


# -- a metastore that stops to respond -------------------------------------------------------------


GENEROUS = 4.0
"""Seconds; the machine may be busy. Without other load, each takes less than one."""
SILENT_DATABASE = "silent_metastores"


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
        hive.create_namespace(api.CreateNamespaceRequest(id=[SILENT_DATABASE], mode="ExistOk"))
        hive.declare_table(api.DeclareTableRequest(id=[SILENT_DATABASE, table]))


@pytest.fixture(scope="module")
def third(metastores: Metastores) -> Metastore:
    """The metastore that stops to respond."""
    return metastores.new("2.3")


@pytest.fixture(scope="module")
def http(
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
        httpx.Client(base_url=served.url, timeout=60) as http,
    ):
        yield http
    with HiveNamespace(uri=uri) as hive:
        request = api.DropNamespaceRequest(id=[SILENT_DATABASE], mode="Skip", behavior="Cascade")
        hive.drop_namespace(request)


@contextmanager
def failing(http: httpx.Client, metastore: Metastore, fault: str) -> Iterator[None]:
    """Break a metastore that responds; repair it, and wait until its catalog is served again."""
    tables = f"/v1/namespace/three${SILENT_DATABASE}/table/list"
    wait_until(lambda: http.get(tables).status_code == 200, 30)
    assert search(http)[0] == ["one", "three", "two"]
    FAULTS[fault](metastore)
    try:
        yield
    finally:
        resume(metastore)
    began = time.monotonic()
    wait_until(lambda: http.get(tables).status_code == 200, 30)
    print(f"{fault}: served again after {time.monotonic() - began:.2f} s")
    assert time.monotonic() - began < GENEROUS


def page(http: httpx.Client, path: str) -> str:
    return html.unescape(http.get(path).text)


def search(http: httpx.Client) -> tuple[list[str], list[str]]:
    """Return the catalogs with matches, and those that were not searched."""
    found = page(http, "/ui/search?q=films")
    matches = set(re.findall(rf">(\w+)\.{SILENT_DATABASE}\.films", found))
    return sorted(matches), re.findall(r"Could not search (\w+): .*?'three' did not respond", found)


def listed(http: httpx.Client) -> tuple[list[str], list[str]]:
    content = http.get("/v1/table").json()
    matches = {each.split("$")[0] for each in content["tables"] if SILENT_DATABASE in each}
    left_out = [key for key in content.get("context") or {} if key.startswith("unavailable.")]
    return sorted(matches), [each.removeprefix("unavailable.") for each in left_out]


def home(http: httpx.Client) -> tuple[list[str], list[str]]:
    found = page(http, "/ui")
    parts = zip(found.split("<main"), (" ", r"</th>\s*<td>"), strict=True)
    tree, rest = (
        re.findall(rf">(\w+)</a>{between}<span[^>]*>unreachable<", part) for part, between in parts
    )
    assert tree == rest
    return ["one", "two"] if ">one</a>" in found and ">two</a>" in found else [], rest


REQUESTS = {"search": search, "listing": listed, "home": home}
TABLE = f"/v1/table/three${SILENT_DATABASE}$films_three"
CALLS: dict[str, tuple[str, dict[str, Any]]] = {
    "describe": (f"{TABLE}/describe", {}),
    "count": (f"{TABLE}/count_rows", {}),
    "count of some": (f"{TABLE}/count_rows", {"predicate": "id > 1"}),
    "query": (f"{TABLE}/query", {"vector": {}, "k": 1}),
    "plan": (f"{TABLE}/explain_plan", {"query": {"vector": {}, "k": 1}}),
}


@pytest.mark.spec("server.md#health", "server.md#the-catalog-page")
@pytest.mark.parametrize("fault", FAULTS)
@pytest.mark.parametrize("kind", REQUESTS)
def test_the_first_request_after_a_metastore_fails_has_the_others_and_names_it(
    http: httpx.Client, third: Metastore, fault: str, kind: str
) -> None:
    with failing(http, third, fault):
        for _ in range(3):
            began = time.monotonic()
            up, down = REQUESTS[kind](http)
            seconds = time.monotonic() - began
            print(f"{fault}, {kind}: {seconds:.2f} s")
            assert (up, down) == (["one", "two"], ["three"])
            assert seconds < GENEROUS


@pytest.mark.spec("server.md#health", "server.md#the-catalog-page")
@pytest.mark.parametrize("fault", FAULTS)
@pytest.mark.parametrize("kind", CALLS)
def test_the_first_call_ends_when_the_breaker_opens(
    http: httpx.Client, third: Metastore, fault: str, kind: str
) -> None:
    """Not after the time limits of the metastore's client, which are over a minute."""
    path, body = CALLS[kind]
    with failing(http, third, fault):
        began = time.monotonic()
        answer = http.post(path, json=body)
        seconds = time.monotonic() - began
        print(f"{fault}, {kind}: {seconds:.2f} s")
        assert answer.status_code == 503
        assert "'three' does not respond" in answer.json()["error"]
        assert seconds < 4 + GENEROUS  # `readiness.timeout` until it is probed, and for the probe


@pytest.mark.spec("server.md#health", "server.md#the-catalog-page")
@pytest.mark.parametrize("fault", FAULTS)
def test_calls_metrics_and_readyz_agree_while_a_metastore_is_down(
    http: httpx.Client, third: Metastore, fault: str
) -> None:
    gauge = 'lance_bridge_catalog_up{catalog="three"}'
    tables = f"/v1/namespace/three${SILENT_DATABASE}/table/list"
    with failing(http, third, fault):
        home(http)
        wait_until(lambda: f"{gauge} 0.0" in http.get("/metrics").text, 30)
        wait_until(lambda: "three" in http.get("/readyz").json().get("problems", {}), 30)
        problem = http.get("/readyz").json()["problems"]["three"]
        assert "did not respond" in problem["error"]
        assert "get_all_databases" not in problem["error"]
        assert "127.0.0.1" not in problem["error"]
        [finding] = diagnose("rest", {"uri": str(http.base_url)}).findings
        assert (finding.kind, finding.subject) == (Kind.UNREACHABLE, "three")
        assert problem["since"] in finding.message
        began = time.monotonic()
        answer = http.get(tables)
        assert "tried again every half second" in answer.text
        assert (answer.status_code, answer.headers["retry-after"]) == (503, "1")
        assert time.monotonic() - began < 1
        tree = page(http, f"/ui/namespace/one/{SILENT_DATABASE}").split("<main")[0]
        assert re.findall(r">(\w+)</a> <span[^>]*>unreachable<", tree) == ["three"]
    assert f"{gauge} 1.0" in http.get("/metrics").text
    assert diagnose("rest", {"uri": str(http.base_url)}).findings == ()


@pytest.mark.spec("server.md#health", "server.md#the-catalog-page")
def test_a_port_without_a_metastore_is_named_at_once(
    metastores: Metastores, tmp_path: Path
) -> None:
    uri, closed = metastores.get("2.3").uri, f"thrift://127.0.0.1:{free_port()}"
    catalogs = [f"--catalog={name}=hive:uri={uri}" for name in ("one", "two")]
    roots = [part for name in ("one", "two") for part in ("-p", f"{name}.root={tmp_path}")]
    declare(uri, tmp_path, "films_here")
    with (
        serve(*catalogs, f"--catalog=three=hive:uri={closed}", *roots, "--port", "0") as served,
        httpx.Client(base_url=served.url, timeout=60) as http,
    ):
        assert http.get("/v1/namespace/one/list").status_code == 200  # it has connected
        for kind, request in REQUESTS.items():
            began = time.monotonic()
            up, down = request(http)
            print(f"refused, {kind}: {time.monotonic() - began:.2f} s")
            assert (up, down) == (["one", "two"], ["three"])
            assert time.monotonic() - began < GENEROUS
