"""Two principals in one process, by REST clients: whose credentials they use.

In one session, pylance shares a table's store between namespaces of equal `namespace_id`, while a
dataset is open. That of its REST client is the server's address and the delimiter.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import lance
import lancedb
import pyarrow as pa
import pytest
from adapters.vendors.building import BUCKET, TABLE, aws_properties, memory_namespace
from lance.lance import _Session
from server.policies import NamedByHeader, cedar
from server.serving import serving_namespace
from servers.glue_server import GlueServer
from servers.http_proxy import HttpProxy
from stores.short_lived import ShortLivedAws, key_of

import lance_bridge

pytestmark = [
    pytest.mark.servers,
    pytest.mark.spec(
        "clients.md#several-principals-in-one-process",
        "docs/gateway-clients.md#several-users-in-one-process",
    ),
]

POLICIES = """
permit(principal == User::"writer", action, resource);
permit(principal == User::"reader", action in Action::"read", resource);
"""


@dataclass
class Lake:
    """A gateway to one table on a store."""

    url: str
    store: HttpProxy
    open: list[lance.LanceDataset] = field(default_factory=list)

    def properties(self, user: str, **more: str) -> dict[str, str]:
        return {"uri": self.url, "header.x-user": user, **more}

    def read(self, user: str, session: Any = None, **more: str) -> set[str]:
        """Read the table as a principal, and leave it open; return in whose name that was."""
        namespace = lance_bridge.connect("rest", self.properties(user, **more))
        before = len(self.store.requests)
        dataset = lance.dataset(namespace_client=namespace, table_id=TABLE, session=session)
        dataset.to_table()
        self.open.append(dataset)
        return self.used_since(before)

    def used_since(self, before: int) -> set[str]:
        keys = {key_of(each) for each in self.store.requests[before:] if each.key != "AssumeRole"}
        return {str(ShortLivedAws.grants[key].principal) for key in keys}


@pytest.fixture(scope="module")
def lake(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lake]:
    with GlueServer() as aws, HttpProxy(aws.endpoint) as store:
        aws.make_bucket(BUCKET)
        properties = aws_properties(aws)
        properties |= {
            "credentials.vendor": "server.test_principals_in_one_process.LongLived",
            "credentials.endpoint": store.endpoint,
        }
        namespace = memory_namespace(__name__, **properties)
        rows = pa.table({"id": range(4), "image": [bytes(1 << 17)] * 4})
        lance.write_dataset(rows, namespace_client=namespace, table_id=TABLE, max_rows_per_file=1)
        authorizer = cedar(Path(tmp_path_factory.mktemp("policies")), POLICIES)
        with serving_namespace(
            namespace, authenticator=NamedByHeader(), authorizer=authorizer
        ) as url:
            yield Lake(url, store)


class LongLived(ShortLivedAws):
    """Sessions of the usual life, of which is known whose they are."""

    seconds = 3600.0


def test_each_principal_uses_its_own_credentials(lake: Lake) -> None:
    assert [lake.read(user) for user in ("writer", "reader")] == [{"writer"}, {"reader"}]


def test_so_does_each_connection_of_lancedb(lake: Lake) -> None:
    *parent, name = TABLE
    for user in ("writer", "reader"):
        before = len(lake.store.requests)
        db = lancedb.connect_namespace("rest", lake.properties(user))
        db.open_table(name, namespace_path=parent).to_arrow()
        assert lake.used_since(before) == {user}


def test_in_one_session_they_use_those_of_the_first(lake: Lake) -> None:
    """If this fails, pylance tells them apart: say so where the documentation warns."""
    session = _Session()
    assert [lake.read(user, session) for user in ("writer", "reader")] == [{"writer"}, {"writer"}]


def test_a_delimiter_of_its_own_tells_a_principal_apart_in_one_session(lake: Lake) -> None:
    session = _Session()
    used = [lake.read(user, session, delimiter=f"${user}$") for user in ("writer", "reader")]
    assert used == [{"writer"}, {"reader"}]
