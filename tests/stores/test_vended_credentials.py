"""Clients with no credentials but what a gateway vends, on a store that enforces them."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import httpx
import lance
import lance_namespace as api
import pyarrow as pa
import pytest
from core.memory_catalog import CAPABILITIES, SERVERS, MemoryNamespace, MemoryServer, rule
from server.gateways import NamedByHeader, cedar, serve_app
from servers.http_proxy import Answer, Fault, HttpProxy
from servers.object_stores import ROLE, MinioServer, needs_minio
from servers.processes import inherited_owners, run_command
from stores.programs import LIVES, connect, count_rows, described, rows
from stores.short_lived import SECONDS, ShortLivedAws, expiring_store, key_of

from lance_bridge_server.app import create_app
from lance_bridge_server.gateway.gateway import Gateway

pytestmark = [
    pytest.mark.slow,
    needs_minio,
    pytest.mark.spec("common.md#rights-and-lifetime", "server.md#governed-commits"),
]

POLICIES = """
permit(principal == User::"writer", action, resource);
permit(principal == User::"reader", action in Action::"read", resource);
"""
TESTS = Path(__file__).parents[1]
T, NEIGHBOUR = ["films", "t"], ["films", "t_new"]
STORED = ["stored", "t"]
"""Its versions are managed by its storage, so that lance-ray can commit them."""


@dataclass
class Lake:
    """A gateway to tables on a store."""

    url: str
    namespace: MemoryNamespace
    """The catalog, with credentials of its own."""
    store: HttpProxy
    sts: HttpProxy

    def run(self, program: str, **arguments: Any) -> Any:
        """Run one of `stores.programs` and return its result."""
        environment = {
            **inherited_owners(),
            "PATH": os.environ["PATH"],
            "PYTHONPATH": f"{TESTS}:{os.environ.get('PYTHONPATH', '')}",
            "PYSPARK_PYTHON": sys.executable,
            "SPARK_LOCAL_IP": "127.0.0.1",
            "AWS_EC2_METADATA_DISABLED": "true",
        }
        given = json.dumps({"url": self.url, **arguments})
        command = [sys.executable, "-m", "stores.programs", program]
        done = run_command(*command, env=environment, input=given, seconds=1200)
        return json.loads(done.stdout.splitlines()[-1])

    def sessions_asked_for(self) -> int:
        """Return how often STS was asked; boto3 repeats a request that is not answered in time."""
        asked = [each for each in self.sts.requests if each.key == "AssumeRole"]
        return len({each.headers["amz-sdk-invocation-id"] for each in asked})

    def keys_of(self, principal: str) -> set[str]:
        """Return the keys of a principal that requests to the store were signed with."""
        used = {key_of(request) for request in self.store.requests}
        return {
            key
            for key in used & ShortLivedAws.grants.keys()
            if ShortLivedAws.grants[key].principal == principal
        }


@pytest.fixture
def lake(
    minio: MinioServer, bucket: str, tmp_path: Path, request: pytest.FixtureRequest
) -> Iterator[Lake]:
    """A gateway to tables of a catalog, which commits the versions of all but one itself.

    The vendor of their credentials is the parameter.
    """
    able: Any = {"namespace_levels": (rule("database"),), "no_rename": "", "no_alter": ""}
    SERVERS[bucket] = MemoryServer(capabilities=replace(CAPABILITIES, **able))
    with expiring_store(minio.endpoint) as store, HttpProxy(minio.endpoint) as sts:
        options = {**minio.storage_options, "aws_endpoint": store.endpoint}
        namespace = MemoryNamespace(
            uri=bucket,
            root=f"s3://{bucket}",
            **{f"storage.{key}": value for key, value in options.items()},
            **{
                "credentials.vendor": request.param,
                "credentials.role_arn": ROLE,
                "credentials.endpoint": store.endpoint,
                "credentials.sts_endpoint": sts.endpoint,
            },
        )
        managed = {"managed_by": "impl"}
        namespace.create_namespace(api.CreateNamespaceRequest(id=["films"], properties=managed))
        namespace.create_namespace(api.CreateNamespaceRequest(id=STORED[:1]))
        for path in (T, NEIGHBOUR, STORED):
            lance.write_dataset(
                pa.Table.from_batches([rows(100)]), namespace_client=namespace, table_id=path
            )
        sts.reset()
        gateway = Gateway(
            namespace, authenticator=NamedByHeader(), authorizer=cedar(tmp_path, POLICIES)
        )
        with serve_app(create_app(gateway)) as url:
            yield Lake(url, namespace, store, sts)
    del SERVERS[bucket]


on_aws = pytest.mark.parametrize("lake", ["aws"], indirect=True)
READER = {
    "read": "done",
    "append": "refused",
    "commit by location": "refused",
    "commit as lance-ray": "refused",
    "change a pickled dataset": "refused",
    "read neighbour": "refused",
    "write neighbour": "refused",
}


@pytest.mark.spec("docs/how-to/govern-commits.md#which-clients-commit-through-the-catalog")
@on_aws
def test_the_store_refuses_what_a_principal_may_not_do(lake: Lake) -> None:
    found = lake.run("rights", users=["reader", "writer"], path=T, neighbour=NEIGHBOUR)
    assert found == {"reader": READER, "writer": {**READER, "append": "done"}}
    assert [count_rows(lake.namespace, path) for path in (T, NEIGHBOUR)] == [2, 1]
    assert lake.namespace.list_out_of_band_versions(T).versions == ()


@pytest.mark.spec("common.md#vending-rules")
@pytest.mark.servers
@on_aws
def test_a_store_without_sessions_gives_no_credentials(lake: Lake) -> None:
    text = b"<ErrorResponse><Error><Code>NotImplemented</Code></Error></ErrorResponse>"
    missing = Answer(501, text, {"Content-Type": "text/xml"})
    lake.sts.fail_next("AssumeRole", missing, times=float("inf"))

    def describe(**body: Any) -> Any:
        url = f"{lake.url}/v1/table/films$t/describe"
        return httpx.post(url, json=body, headers={"x-user": "writer"}).json()

    answer = describe()
    assert (answer["code"], "NotImplemented" in answer["error"]) == (0, True)
    assert "storage_options" not in answer
    plain = describe(vend_credentials=False)
    assert plain["location"].endswith("/films.db/t.lance")
    assert not any("key" in each or "token" in each for each in plain["storage_options"])


@pytest.mark.spec("clients.md#lance-ray")
@pytest.mark.parametrize("lake", ["stores.short_lived.ShortLivedAws"], indirect=True)
@pytest.mark.parametrize(
    ("program", "path", "count"),
    [
        ("pylance", ["films", "new"], LIVES + 1),
        ("lancedb_tables", T, 1 + LIVES + 1),
        ("spark", T, 1 + 2 * (LIVES + 1)),
        pytest.param("ray_data", STORED, 1 + LIVES + 1, marks=pytest.mark.clients),
    ],
)
def test_clients_go_on_while_their_credentials_end(
    lake: Lake, program: str, path: list[str], count: int
) -> None:
    assert lake.run(program, writer="writer", reader="reader", path=path) == count
    for principal in ("writer", "reader"):
        used = lake.keys_of(principal)
        assert len(used) > LIVES, principal
        ends = sorted(ShortLivedAws.ends[key] for key in used)
        assert all(later - end > SECONDS / 2 for end, later in pairwise(ends)), ends
    assert lake.store.fired == []


@on_aws
def test_many_tasks_take_one_session_of_each_principal(lake: Lake) -> None:
    tasks = 200
    found = lake.run("spark_tasks", writer="writer", reader="reader", path=T, tasks=tasks)
    assert found == 1 + tasks
    assert lake.sessions_asked_for() == 2


@pytest.mark.servers
@on_aws
def test_a_request_to_sts_whose_answer_is_lost_is_repeated_and_asks_once(lake: Lake) -> None:
    lake.sts.fail_next("AssumeRole", Fault.LOSE_REPLY)
    answers = [described(connect(lake.url, "reader"), T) for _ in range(2)]
    assert lake.sts.counts == {"AssumeRole": 2}
    assert lake.sessions_asked_for() == 1
    assert len({each.storage_options["aws_access_key_id"] for each in answers}) == 1
