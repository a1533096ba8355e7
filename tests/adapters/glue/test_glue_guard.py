"""How Glue compares and sets an entry is tried before commits depend on it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pytest
from lance_namespace.errors import UnsupportedOperationError
from servers.glue_server import ACCESS_KEY, REGION, SECRET_KEY, GlueServer
from servers.http_proxy import HttpProxy
from servers.objectstore import MotoServer

from lance_bridge.testing.calls import Calls
from lance_bridge_glue import GlueNamespace

pytestmark = pytest.mark.server

ROWS = pa.table({"a": [1, 2]})
TABLE = ["db", "t"]


@pytest.fixture
def plain_moto() -> Iterator[MotoServer]:
    """moto as it is published, which takes no notice of a VersionId."""
    with MotoServer() as running:
        yield running


def connect(endpoint: str, root: Path) -> tuple[GlueNamespace, Calls]:
    keys = {"access_key_id": ACCESS_KEY, "secret_access_key": SECRET_KEY}
    namespace = GlueNamespace(region=REGION, endpoint=endpoint, root=str(root), **keys)
    return namespace, Calls(namespace)


def test_a_server_that_ignores_version_ids_manages_no_table(
    plain_moto: MotoServer, tmp_path: Path
) -> None:
    namespace, calls = connect(plain_moto.endpoint, tmp_path)
    with namespace:
        calls.create_namespace(["db"])
        calls.create_table(TABLE, ROWS)
        before = calls.describe_table(TABLE)
        with pytest.raises(UnsupportedOperationError, match="ignores the VersionId"):
            namespace.manage_table(TABLE)
        assert calls.describe_table(TABLE) == before


def test_one_refused_update_proves_that_version_ids_are_compared(
    server: GlueServer, proxy: HttpProxy, tmp_path: Path
) -> None:
    name = tmp_path.name.replace("-", "_").lower()
    namespace, calls = connect(proxy.endpoint, tmp_path)
    with namespace:
        calls.create_namespace([name])
        calls.create_table([name, "t"], ROWS)
        before = server.glue.get_table(DatabaseName=name, Name="t")["Table"]["VersionId"]
        namespace.manage_table([name, "t"])
        after = server.glue.get_table(DatabaseName=name, Name="t")["Table"]["VersionId"]
        assert int(after) == int(before) + 1
        calls.drop_table([name, "t"])
        calls.drop_namespace([name])
