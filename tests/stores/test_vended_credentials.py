"""What vended credentials may do, as a real store enforces it: sessions, and clients with them."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from datetime import timedelta
from itertools import pairwise
from pathlib import Path
from typing import Any

import boto3
import httpx
import lance
import lance_namespace as api
import pyarrow as pa
import pytest
from adapters.vendors.grants import batch_files
from botocore.exceptions import ClientError
from core.memory_catalog import CAPABILITIES, SERVERS, MemoryNamespace, MemoryServer, rule
from server.gateways import NamedByHeader, cedar, serve_app
from servers.http_proxy import Answer, Fault, HttpProxy
from servers.object_stores import ROLE, MinioServer, needs_minio
from servers.processes import inherited_owners, run_command
from stores.programs import LIVES, connect, count_rows, described, rows
from stores.short_lived import SECONDS, ShortLivedAws, expiring_store, key_of

from lance_bridge.credentials import Grant
from lance_bridge_server.app import create_app
from lance_bridge_server.gateway.gateway import Gateway
from lance_bridge_vendors.aws import session_policy

pytestmark = [pytest.mark.servers, needs_minio, pytest.mark.spec("server.md#governed-commits")]

# -- sessions of the vendor of AWS -----------------------------------------------------------------


ROWS = pa.table({"id": range(3)})
TABLE = "films.db/t.lance"
NEIGHBOURS = [f"{TABLE}_new/a", "films.db/u.lance/a", "films.db/t.lanc", "a"]


def session(
    minio: MinioServer,
    bucket: str,
    prefix: str = TABLE,
    *,
    write: bool = True,
    governed: bool = False,
) -> dict[str, str]:
    """Return the options of a session for a table."""
    grant = Grant("s3", bucket, prefix, ("films", "t"), write, governed)
    return minio.session_options(session_policy(grant, "aws"))


def client_of(options: Mapping[str, str]) -> Any:
    """Return a boto3 client that has nothing but these options."""
    return boto3.client(
        "s3",
        endpoint_url=options["aws_endpoint"],
        region_name=options["aws_region"],
        aws_access_key_id=options["aws_access_key_id"],
        aws_secret_access_key=options["aws_secret_access_key"],
        aws_session_token=options["aws_session_token"],
    )


def refused(call: Callable[..., Any], **arguments: Any) -> bool:
    """Return whether the store refuses a call."""
    with pytest.raises(ClientError) as caught:
        call(**arguments)
    return caught.value.response["Error"]["Code"] in ("AccessDenied", "403")


def creations(s3: Any, source: str) -> list[Callable[..., Any]]:
    """Return all calls that create an object."""
    return [
        s3.put_object,
        s3.create_multipart_upload,
        lambda **target: s3.copy_object(**target, CopySource=source),
    ]


@pytest.mark.spec(
    "common.md#vending-rules",
    "common.md#limits-of-vendors",
    "docs/how-to/credentials.md#what-was-run",
)
def test_a_session_reaches_its_table_and_nothing_else(minio: MinioServer, bucket: str) -> None:
    for key in NEIGHBOURS:
        minio.put(bucket, key)
    s3 = client_of(session(minio, bucket))
    own = {"Bucket": bucket, "Key": f"{TABLE}/a"}
    s3.put_object(**own, Body=b"x")
    assert s3.get_object(**own)["Body"].read() == b"x"
    assert s3.list_objects_v2(Bucket=bucket, Prefix=f"{TABLE}/")["KeyCount"] == 1
    for key in NEIGHBOURS:
        neighbour = {"Bucket": bucket, "Key": key}
        for call in (s3.get_object, s3.delete_object, *creations(s3, f"{bucket}/{TABLE}/a")):
            assert refused(call, **neighbour), (call, key)
        assert refused(s3.copy_object, **own, CopySource=f"{bucket}/{key}")
    for prefix in ("", TABLE, f"{TABLE}_new/", "films.db/u.lance/", "films.db/"):
        assert refused(s3.list_objects_v2, Bucket=bucket, Prefix=prefix), prefix
    several = {"Objects": [{"Key": key} for key in [*NEIGHBOURS, f"{TABLE}/a"]]}
    answer = s3.delete_objects(Bucket=bucket, Delete=several)
    assert [each["Key"] for each in answer["Deleted"]] == [f"{TABLE}/a"]
    assert minio.keys(bucket) == sorted(NEIGHBOURS)


@pytest.mark.spec("common.md#vending-rules")
def test_a_session_to_read_changes_nothing(minio: MinioServer, bucket: str) -> None:
    minio.put(bucket, f"{TABLE}/a")
    s3 = client_of(session(minio, bucket, write=False))
    own = {"Bucket": bucket, "Key": f"{TABLE}/a"}
    assert s3.get_object(**own)
    assert s3.list_objects_v2(Bucket=bucket, Prefix=f"{TABLE}/")["KeyCount"] == 1
    for call in (s3.delete_object, *creations(s3, f"{bucket}/{TABLE}/a")):
        assert refused(call, **own), call


@pytest.mark.spec("common.md#vending-rules")
@pytest.mark.parametrize("prefix", ["lake/*", "lake/?", "lake/${aws:username}", "lake/$"])
def test_a_location_is_no_pattern(minio: MinioServer, bucket: str, prefix: str) -> None:
    s3 = client_of(session(minio, bucket, prefix))
    for other in ("lake/t", "lake/tt", "lake/minio", "lake/test-access-key"):
        assert refused(s3.put_object, Bucket=bucket, Key=f"{other}/a"), other
        assert refused(s3.list_objects_v2, Bucket=bucket, Prefix=f"{other}/"), other


@pytest.mark.spec("common.md#vending-rules")
def test_a_governed_session_creates_no_manifest(minio: MinioServer, bucket: str) -> None:
    s3 = client_of(session(minio, bucket, governed=True))
    staged = f"{TABLE}/_versions/18446744073709551614.manifest-0f8e"
    s3.put_object(Bucket=bucket, Key=staged)
    s3.put_object(Bucket=bucket, Key=f"{TABLE}/data/a.lance")
    finals = [
        "_versions/18446744073709551614.manifest",
        "_versions/2.manifest",
        "_versions/d1.manifest",
        "tree/b/_versions/2.manifest",
    ]
    for name in finals:
        final = {"Bucket": bucket, "Key": f"{TABLE}/{name}"}
        for call in creations(s3, f"{bucket}/{staged}"):
            assert refused(call, **final), (call, name)


@pytest.mark.spec("common.md#vending-rules")
def test_a_governed_session_decides_on_no_batch(minio: MinioServer, bucket: str) -> None:
    s3 = client_of(session(minio, bucket, governed=True))
    staged = f"{TABLE}/_transactions/1.staged.json"
    s3.put_object(Bucket=bucket, Key=staged)
    for path in batch_files():
        own = {"Bucket": bucket, "Key": f"{TABLE}/{path}"}
        for call in creations(s3, f"{bucket}/{staged}"):
            assert refused(call, **own), (call, path)
        minio.put(bucket, own["Key"])
        assert refused(s3.delete_object, **own), path
        several = s3.delete_objects(Bucket=bucket, Delete={"Objects": [{"Key": own["Key"]}]})
        assert [each["Code"] for each in several["Errors"]] == ["AccessDenied"]
        assert s3.get_object(**own)
    s3.delete_object(Bucket=bucket, Key=staged)


@pytest.mark.spec("common.md#vending-rules")
def test_a_governed_session_cleans_up_old_versions(minio: MinioServer, bucket: str) -> None:
    location = f"s3://{bucket}/{TABLE}"
    for _ in range(3):
        lance.write_dataset(ROWS, location, mode="overwrite", storage_options=minio.storage_options)
    options = session(minio, bucket, governed=True)
    dataset = lance.dataset(location, storage_options=options)
    assert dataset.cleanup_old_versions(timedelta(0)).old_versions == 2
    assert lance.dataset(location, storage_options=options).to_table() == ROWS
    assert [each["version"] for each in dataset.versions()] == [3]


@pytest.mark.spec("common.md#vending-rules")
def test_a_session_keeps_older_versions_of_objects(minio: MinioServer, bucket: str) -> None:
    status = {"Status": "Enabled"}
    minio.client.put_bucket_versioning(Bucket=bucket, VersioningConfiguration=status)
    own = {"Bucket": bucket, "Key": f"{TABLE}/a"}
    version = minio.client.put_object(**own, Body=b"x")["VersionId"]
    s3 = client_of(session(minio, bucket))
    s3.delete_object(**own)
    assert refused(s3.delete_object, **own, VersionId=version)
    assert s3.get_object(**own, VersionId=version)["Body"].read() == b"x"


# -- clients with no credentials but what a gateway vends ------------------------------------------


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


@pytest.mark.slow
@pytest.mark.spec(
    "common.md#rights-and-lifetime",
    "docs/how-to/govern-commits.md#which-clients-commit-through-the-catalog",
)
@on_aws
def test_the_store_refuses_what_a_principal_may_not_do(lake: Lake) -> None:
    found = lake.run("rights", users=["reader", "writer"], path=T, neighbour=NEIGHBOUR)
    assert found == {"reader": READER, "writer": {**READER, "append": "done"}}
    assert [count_rows(lake.namespace, path) for path in (T, NEIGHBOUR)] == [2, 1]
    assert lake.namespace.list_out_of_band_versions(T).versions == ()


@pytest.mark.spec("common.md#rights-and-lifetime", "common.md#vending-rules")
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


@pytest.mark.slow
@pytest.mark.spec("common.md#rights-and-lifetime", "clients.md#lance-ray")
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


@pytest.mark.slow
@pytest.mark.spec("common.md#rights-and-lifetime")
@on_aws
def test_many_tasks_take_one_session_of_each_principal(lake: Lake) -> None:
    tasks = 200
    found = lake.run("spark_tasks", writer="writer", reader="reader", path=T, tasks=tasks)
    assert found == 1 + tasks
    assert lake.sessions_asked_for() == 2


@pytest.mark.spec("common.md#rights-and-lifetime")
@pytest.mark.servers
@on_aws
def test_a_request_to_sts_whose_answer_is_lost_is_repeated_and_asks_once(lake: Lake) -> None:
    lake.sts.fail_next("AssumeRole", Fault.LOSE_REPLY)
    answers = [described(connect(lake.url, "reader"), T) for _ in range(2)]
    assert lake.sts.counts == {"AssumeRole": 2}
    assert lake.sessions_asked_for() == 1
    assert len({each.storage_options["aws_access_key_id"] for each in answers}) == 1
