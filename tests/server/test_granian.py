"""The gateway's application in granian, by the command of the specification."""

from __future__ import annotations

import os
import re
import shlex
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import httpx
import lance
import lance_namespace as api
import pyarrow as pa
import pytest
import yaml
from server.authenticated import connect
from server.http_requests import dial, head
from servers.processes import free_port, wait_until

pytestmark = [pytest.mark.engines, pytest.mark.spec("server.md#other-asgi-servers")]
SPEC = Path(__file__).parents[2] / "specs" / "server.md"
STARTED_SECONDS = 120.0


def command(port: int) -> list[str]:
    """Return the command of the specification, with a port."""
    text = SPEC.read_text(encoding="utf-8").replace("\\\n", "")
    found = re.search(
        r"^ +LANCE_BRIDGE_SERVER_CONFIG=server.yaml granian (.*)$", text, re.MULTILINE
    )
    assert found is not None
    return [sys.executable, "-m", "granian", "--port", str(port), *shlex.split(found[1])]


@pytest.fixture
def granian(tmp_path: Path) -> Iterator[tuple[str, subprocess.Popen[bytes]]]:
    """The address of a server with a directory, and its process."""
    settings = {
        "catalogs": {"files": {"impl": "dir", "root": str(tmp_path / "lake")}},
        "root": "files",
        "limits": {"body_bytes": 1 << 16},
    }
    (tmp_path / "server.yaml").write_text(yaml.safe_dump(settings))
    port = free_port()
    url = f"http://127.0.0.1:{port}"
    environment = {**os.environ, "LANCE_BRIDGE_SERVER_CONFIG": "server.yaml"}
    process = subprocess.Popen(command(port), cwd=tmp_path, env=environment, start_new_session=True)
    try:
        require_started(url, process)
        yield url, process
    finally:
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()


def require_started(url: str, process: subprocess.Popen[bytes]) -> None:
    wait_until(lambda: process.poll() is not None or listens(url), STARTED_SECONDS)
    assert process.poll() is None, f"granian did not start; exit code {process.poll()}"
    assert httpx.get(f"{url}/livez", timeout=STARTED_SECONDS).status_code == 200


def listens(url: str) -> bool:
    try:
        dial(url).close()
    except ConnectionRefusedError:
        return False
    return True


def test_clients_work_and_limits_hold_in_granian(
    granian: tuple[str, subprocess.Popen[bytes]],
) -> None:
    url, _ = granian
    client = connect(url)
    client.create_namespace(api.CreateNamespaceRequest(id=["films"]))
    table = {"namespace_client": client, "table_id": ["films", "t"]}
    lance.write_dataset(pa.table({"id": [1, 2]}), **table)
    assert lance.dataset(**table).count_rows() == 2
    missing = httpx.post(f"{url}/v1/namespace/a%2Fb/describe")
    assert (missing.status_code, missing.json()["error"]) == (404, "Namespace not found: a/b")
    large = httpx.post(f"{url}/v1/namespace/x/create", json={"properties": {"a": "b" * 70_000}})
    assert (large.status_code, large.json()["code"]) == (413, 13)
    assert httpx.get(f"{url}/livez", headers={"a": "b" * 50_000}).status_code == 200
    assert httpx.get(f"{url}/livez", headers={"a": "b" * 300_000}).status_code == 431


def test_granian_closes_connections_without_a_whole_request(
    granian: tuple[str, subprocess.Popen[bytes]],
) -> None:
    url, _ = granian
    with dial(url) as silent, dial(url) as slow:
        slow.sendall(b"GET /livez HTTP/1.1\r\nHost:")
        for each in (silent, slow):
            each.settimeout(60)
            assert each.recv(1) == b""


def test_granian_completes_requests_when_it_is_stopped(
    granian: tuple[str, subprocess.Popen[bytes]],
) -> None:
    url, process = granian
    with dial(url) as connection:
        json = ("Content-Type: application/json", "Content-Length: 2", "Expect: 100-continue")
        connection.sendall(head("/v1/namespace/made/create", *json))
        assert connection.recv(1 << 10).startswith(b"HTTP/1.1 100")  # the application reads it
        process.send_signal(signal.SIGTERM)
        wait_until(lambda: not listens(url), 30)
        connection.sendall(b"{}")
        assert connection.recv(1 << 10).startswith(b"HTTP/1.1 200")
    assert process.wait(60) == 0
