"""Sessions of AWS STS, made by moto's: what is asked, what is handed out, and how it is renewed.

moto's STS takes any policy and heeds none. What policies allow is in `test_aws_policy`.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any

import lance
import lance_namespace as api
import pyarrow as pa
import pytest
from core.forking import returns_in_child
from core.memory_catalog import MemoryNamespace
from servers.glue_server import ACCESS_KEY, ROLE, SECRET_KEY, GlueServer
from servers.http_proxy import HttpProxy

from lance_bridge.credentials import EXPIRES_AT, REFRESH_OFFSET
from lance_bridge_vendors.aws import AwsOptions, AwsVendor

from .building import BUCKET, TABLE, aws_properties, grant, memory_namespace

pytestmark = [pytest.mark.servers, pytest.mark.spec("common.md#concurrency-and-crash-safety")]
ROWS = pa.table({"a": [1, 2, 3]})


@pytest.fixture
def namespace(aws: GlueServer, request: pytest.FixtureRequest) -> MemoryNamespace:
    root = f"s3://{BUCKET}/{abs(hash(request.node.nodeid)):x}"
    properties = {**aws_properties(aws), "root": root, "credentials.write": "true"}
    return memory_namespace(request.node.nodeid, **properties)


def described(namespace: Any, **more: Any) -> dict[str, str]:
    answer = namespace.describe_table(api.DescribeTableRequest(id=TABLE, **more))
    return answer.storage_options or {}


@pytest.mark.spec("common.md#vending-rules")
def test_clients_get_a_session_and_never_the_key_that_made_it(
    namespace: MemoryNamespace,
) -> None:
    lance.write_dataset(ROWS, namespace_client=namespace, table_id=TABLE)
    options = described(namespace)
    assert options["aws_access_key_id"].startswith("ASIA")
    assert options["aws_session_token"]
    assert not {ACCESS_KEY, SECRET_KEY} & set(options.values())
    life = int(options[EXPIRES_AT]) / 1000 - time.time()
    assert 3590 < life < 3610
    assert options[REFRESH_OFFSET] == "300000"


@pytest.mark.spec("common.md#rights-and-lifetime")
def test_lance_renews_it_while_it_writes_and_reads(
    namespace: MemoryNamespace, aws: GlueServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Rows that come for longer than a session lasts are written: an expired key is refused."""
    keys: set[str] = set()
    describe = MemoryNamespace.describe_table

    def noted(self: MemoryNamespace, request: Any) -> Any:
        answer = describe(self, request)
        keys.add((answer.storage_options or {})["aws_access_key_id"])
        return answer

    monkeypatch.setattr(MemoryNamespace, "describe_table", noted)

    def slowly() -> Iterator[pa.RecordBatch]:
        until = time.monotonic() + 14
        while time.monotonic() < until:
            time.sleep(0.25)
            yield ROWS.to_batches()[0]

    with aws.short_sessions(4):
        lance.write_dataset(ROWS, namespace_client=namespace, table_id=TABLE)
        lance.write_dataset(
            pa.RecordBatchReader.from_batches(ROWS.schema, slowly()),
            namespace_client=namespace, table_id=TABLE, mode="append", max_rows_per_file=3,
        )  # fmt: skip
        opened = lance.dataset(namespace_client=namespace, table_id=TABLE)
        read = sum(batch.num_rows for batch in opened.to_batches())
    assert read > 30
    assert len(keys) > 3


def sts_vendor(address: str) -> AwsVendor:
    options = AwsOptions(role_arn=ROLE, region="eu-west-1", sts_endpoint=address)
    keys = {"aws_access_key_id": ACCESS_KEY, "aws_secret_access_key": SECRET_KEY}
    return AwsVendor(options, keys)


def test_a_child_process_uses_no_connection_of_its_parent(aws: GlueServer) -> None:
    with HttpProxy(aws.endpoint) as sts:
        vendor = sts_vendor(sts.endpoint)
        vendor.vend(grant())
        assert returns_in_child(lambda: vendor.vend(grant()))
        vendor.vend(grant())
        assert sts.counts["AssumeRole"] == 3
        assert sts.connections == 2


def test_a_child_process_does_not_wait_for_a_thread_of_its_parent(aws: GlueServer) -> None:
    vendor = sts_vendor(aws.endpoint)
    with vendor._sts._lock:  # as if another thread was making the client
        assert returns_in_child(lambda: vendor.vend(grant()))
