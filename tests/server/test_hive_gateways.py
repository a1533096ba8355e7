"""pylance and LanceDB on gateways to a real Hive Metastore."""

from __future__ import annotations

import json
import multiprocessing
import uuid
from collections.abc import Iterator, Sequence
from multiprocessing.context import SpawnProcess
from pathlib import Path
from typing import Any

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
from starlette.applications import Starlette
from starlette.routing import Mount

from lance_bridge.testing.calls import ipc
from lance_bridge_hive import HiveNamespace
from lance_bridge_server.access.authentication import Authenticator
from lance_bridge_server.app import create_app
from lance_bridge_server.gateway.gateway import Gateway

pytestmark = [pytest.mark.servers, pytest.mark.spec("server.md#clients")]


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


@pytest.mark.spec("common.md#published-columns")
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


@pytest.mark.spec("server.md#freshness")
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
