"""Clients whose clock is off: pylance, on moto's S3, which refuses sessions that have ended.

A client whose clock is behind by some seconds believes, when its session ends, that it has so many
left. So the answers here say when the session ends by that clock, and the sessions end then.
"""

from __future__ import annotations

import time
from collections.abc import Iterator

import lance
import lance_namespace as api
import pyarrow as pa
import pytest
from core.memory_catalog import MemoryNamespace
from servers.glue_server import GlueServer

from lance_bridge.credentials import EXPIRES_AT, REFRESH_OFFSET, CredentialCache

from .building import BUCKET, TABLE, aws_properties, memory_namespace

pytestmark = [pytest.mark.servers, pytest.mark.spec("common.md#rights-and-lifetime")]
FILES = 3
OFFSET_SECONDS = 300


class AtTheEnd(MemoryNamespace):
    """Answers with a new session each time, which ends now by all clocks but the client's."""

    behind: float
    """By how many seconds the client's clock is behind."""
    keys: list[str]

    def describe_table(self, request: api.DescribeTableRequest) -> api.DescribeTableResponse:
        """As the base class."""
        self.connection.credentials._cache = CredentialCache()
        answer = super().describe_table(request)
        options = answer.storage_options or {}
        assert int(options[REFRESH_OFFSET]) == OFFSET_SECONDS * 1000
        options[EXPIRES_AT] = str(int((time.time() + self.behind) * 1000))
        self.keys.append(options["aws_access_key_id"])
        return answer


@pytest.fixture(scope="module")
def properties(aws: GlueServer) -> dict[str, str]:
    """A catalog with one table, of several files that Lance does not read to open it."""
    given = {**aws_properties(aws), "root": f"s3://{BUCKET}/clocks"}
    rows = pa.table({"id": range(FILES), "image": [bytes(1 << 17)] * FILES})
    lance.write_dataset(
        rows, namespace_client=memory_namespace(__name__, **given), table_id=TABLE,
        max_rows_per_file=1,
    )  # fmt: skip
    return given


@pytest.fixture
def namespace(aws: GlueServer, properties: dict[str, str]) -> Iterator[AtTheEnd]:
    made = AtTheEnd(uri=__name__, **properties)
    made.keys = []
    with aws.known_keys_only():
        yield made


@pytest.mark.parametrize("behind", [OFFSET_SECONDS - 60, -7200])
def test_a_clock_that_is_behind_by_less_than_the_offset_or_ahead_is_no_trouble(
    namespace: AtTheEnd, aws: GlueServer, behind: float
) -> None:
    namespace.behind = behind
    fragments = lance.dataset(namespace_client=namespace, table_id=TABLE).get_fragments()
    for fragment in fragments:
        aws.end_sessions()
        assert fragment.to_table().num_rows == 1
    assert len(set(namespace.keys)) > FILES


def test_a_clock_that_is_behind_by_more_than_the_offset_is_refused_by_the_store(
    namespace: AtTheEnd, aws: GlueServer
) -> None:
    namespace.behind = OFFSET_SECONDS + 60
    fragments = lance.dataset(namespace_client=namespace, table_id=TABLE).get_fragments()
    assert fragments[0].to_table().num_rows == 1
    aws.end_sessions()
    with pytest.raises(ValueError, match="lacked the necessary privileges"):
        fragments[1].to_table()
    assert len(namespace.keys) == 1
    opened = api.DescribeTableRequest(id=TABLE)
    assert namespace.describe_table(opened)
    assert lance.dataset(namespace_client=namespace, table_id=TABLE).count_rows() == FILES
