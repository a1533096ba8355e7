"""The Java client of the specification, on a gateway to a real Hive Metastore.

Needs Maven, which fetches the client, and a JDK of release 11 or later.
"""

from __future__ import annotations

from pathlib import Path

import lance_namespace as api
import pyarrow as pa
import pytest
from clients.catalogs import Backend
from clients.fetched import java_client
from server.gateways import serve_app
from servers.processes import run_command

from lance_bridge_server.app import create_app
from lance_bridge_server.gateway.gateway import Gateway

pytestmark = [pytest.mark.servers, pytest.mark.spec("server.md#clients")]
SOURCES = Path(__file__).parent / "java"
ROWS = pa.table({"id": [0, 1, 2], "word": ["a", "b", "c"]})


@pytest.fixture(scope="module")
def classpath(tmp_path_factory: pytest.TempPathFactory) -> str:
    """The client's jars, and the compiled program."""
    jars, target = f"{java_client()}/*", tmp_path_factory.mktemp("java")
    run_command("javac", "-cp", jars, "-d", target, SOURCES / "Life.java")
    return f"{target}:{jars}"


def test_a_table_lives_its_life(hive: Backend, classpath: str, tmp_path: Path) -> None:
    rows, answer, location = (tmp_path / name for name in ("rows", "answer", "t.lance"))
    with pa.OSFile(str(rows), "wb") as file, pa.ipc.new_stream(file, ROWS.schema) as writer:
        writer.write_table(ROWS)
    database = f"java_{tmp_path.name}".lower()
    with hive.connect() as namespace, serve_app(create_app(Gateway(namespace))) as url:
        run_command("java", "-cp", classpath, "Life", url, database, rows, location, answer)
        assert database not in namespace.list_namespaces(api.ListNamespacesRequest()).namespaces
    assert pa.ipc.open_file(answer.read_bytes()).read_all()["id"].to_pylist() == [1, 2, 1, 2]
    assert not location.exists()
