"""How Glue compares and sets an entry is tried before commits depend on it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import lance_namespace as api
import pyarrow as pa
import pytest
from lance_namespace.errors import UnsupportedOperationError
from servers.glue_server import ACCESS_KEY, REGION, SECRET_KEY, GlueServer
from servers.http_proxy import HttpProxy
from servers.objectstore import MotoServer

from lance_bridge.testing.build import ipc
from lance_bridge_glue import GlueNamespace

pytestmark = pytest.mark.server

ROWS = pa.table({"a": [1, 2]})
TABLE = ["db", "t"]


@pytest.fixture
def plain_moto() -> Iterator[MotoServer]:
    """moto as it is published, which takes no notice of a VersionId."""
    with MotoServer() as running:
        yield running


def connect(endpoint: str, root: Path) -> GlueNamespace:
    return GlueNamespace(
        region=REGION,
        endpoint=endpoint,
        access_key_id=ACCESS_KEY,
        secret_access_key=SECRET_KEY,
        root=str(root),
    )


def test_a_server_that_ignores_version_ids_manages_no_table(
    plain_moto: MotoServer, tmp_path: Path
) -> None:
    with connect(plain_moto.endpoint, tmp_path) as namespace:
        namespace.create_namespace(api.CreateNamespaceRequest(id=["db"]))
        namespace.create_table(api.CreateTableRequest(id=TABLE), ipc(ROWS))
        before = namespace.describe_table(api.DescribeTableRequest(id=TABLE))
        with pytest.raises(UnsupportedOperationError, match="ignores the VersionId"):
            namespace.manage_table(TABLE)
        assert namespace.describe_table(api.DescribeTableRequest(id=TABLE)) == before


def test_one_refused_update_proves_that_version_ids_are_compared(
    server: GlueServer, proxy: HttpProxy, tmp_path: Path
) -> None:
    name = tmp_path.name.replace("-", "_").lower()
    with connect(proxy.endpoint, tmp_path) as namespace:
        namespace.create_namespace(api.CreateNamespaceRequest(id=[name]))
        namespace.create_table(api.CreateTableRequest(id=[name, "t"]), ipc(ROWS))
        before = server.glue.get_table(DatabaseName=name, Name="t")["Table"]["VersionId"]
        namespace.manage_table([name, "t"])
        after = server.glue.get_table(DatabaseName=name, Name="t")["Table"]["VersionId"]
        assert int(after) == int(before) + 1
        namespace.drop_table(api.DropTableRequest(id=[name, "t"]))
        namespace.drop_namespace(api.DropNamespaceRequest(id=[name]))
