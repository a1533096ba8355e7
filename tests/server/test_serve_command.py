"""``lance-bridge serve``, as the installed program, and the same application in granian."""

from __future__ import annotations

import json
import os
import re
import shlex
import signal
import socket
import ssl
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import lance
import lance_namespace as api
import pyarrow as pa
import pytest
import yaml
from cli.program import answer_of, program, run
from servers.processes import free_port, wait_until
from servers.replies import unanswered

from lance_bridge_server.access.authentication import ApiKeyFile

from .authenticated import AUDIENCE, LIST, children, connect, identity_provider, serve, write_config
from .certificates import Authority, loopback
from .gateways import dial, head

pytestmark = [
    pytest.mark.servers,
    pytest.mark.spec("server.md#other-asgi-servers", "server.md#serve"),
]

HIVE = "prod=hive:uri=thrift://127.0.0.1:1"
SPEC = Path(__file__).parents[2] / "specs" / "server.md"
STARTED_SECONDS = 120.0


@pytest.mark.spec("cli.md#serve")
def test_a_catalog_is_the_root_or_a_child_of_it(tmp_path: Path) -> None:
    """SIGTERM ends the first server, and Ctrl-C the second."""
    files = ["-c", f"files=dir:root={tmp_path}/lake", "--port", "0"]
    with serve(*files, "--root", "files") as served:
        request = api.CreateNamespaceRequest(id=["films"])
        connect(served.url).create_namespace(request)
        assert children(served.url) == ["films"]
        assert served.printed().splitlines().count(f"Browse: {served.url}/ui") == 1
        assert served.stop()[:2] == (0, "")
    with serve(*files, "-c", "more=dir", "-p", f"more.root={tmp_path}/more") as served:
        assert children(served.url) == ["files", "more"]
        found = connect(served.url).list_namespaces(api.ListNamespacesRequest(id=["files"]))
        assert found.namespaces == ["films"]
        served.process.send_signal(signal.SIGINT)
        code, _, error = served.end()
        assert (code, "Traceback" in error) == (0, False)


@pytest.mark.spec("server.md#keys-of-the-configuration")
def test_several_processes_serve_a_file_and_a_socket(tmp_path: Path, keys: ApiKeyFile) -> None:
    key, _ = keys.add("ann")
    config = write_config(
        tmp_path,
        catalogs={"files": {"impl": "dir", "root": f"{tmp_path}/lake"}},
        root="files",
        listeners=[{"host": "127.0.0.1", "port": 0}, {"socket": f"{tmp_path}/s"}],
        authentication=[{"method": "api_keys", "file": str(keys.path)}],
        workers=2,
        log={"format": "json"},
    )
    with serve("--config", str(config), addresses=2) as served:
        assert served.addresses[1] == f"unix:{tmp_path}/s"
        assert children(served.url, **{"header.x-api-key": key}) == []
        transport = httpx.HTTPTransport(uds=f"{tmp_path}/s")
        with httpx.Client(transport=transport) as client:
            assert client.get(f"http://x{LIST}").status_code == 401
            assert client.get(f"http://x{LIST}", headers={"x-api-key": key}).status_code == 200
        code, _, error = served.stop()
        assert code == 0, error
        assert "died" not in error
        assert len([line for line in error.splitlines() if "Started server process" in line]) == 2
        assert all(json.loads(line)["level"] for line in error.splitlines())


@pytest.mark.spec("server.md#keys-of-the-configuration", "server.md#stop-and-reload")
def test_several_processes_serve_over_tls_and_reload_its_files(tmp_path: Path) -> None:
    authority = Authority(tmp_path)
    tls = {name: tmp_path / f"server.{name}" for name in ("certificate", "key")}

    def install() -> str:
        pair = authority.issue("server", names=loopback())
        for file, content in zip(tls.values(), pair, strict=True):
            file.write_bytes(content.read_bytes())
        return pair[0].read_text()

    def found() -> set[str]:
        """Return the certificates of many connections, which the processes share."""
        return {ssl.get_server_certificate(("127.0.0.1", port)) for _ in range(20)}

    first = install()
    config = write_config(
        tmp_path,
        catalogs={"files": {"impl": "dir", "root": f"{tmp_path}/lake"}},
        listeners=[{"port": 0}],
        tls={name: str(file) for name, file in tls.items()},
        workers=2,
    )
    with serve("--config", str(config)) as served:
        assert children(served.url, **{"tls.ssl_ca_cert": str(authority.path)}) == ["files"]
        port = int(served.url.removeprefix("https://127.0.0.1:"))
        wait_until(lambda: served.printed().count("Started server process") == 2)
        assert found() == {first}
        second = install()
        served.process.send_signal(signal.SIGHUP)
        wait_until(lambda: found() == {second})
        code, _, error = served.stop()
    assert code == 0, error
    assert error.count("Started server process") == 2, error  # none was replaced


def test_it_refuses_other_addresses_without_authentication(
    tmp_path: Path, keys: ApiKeyFile
) -> None:
    files = ["-c", f"files=dir:root={tmp_path}/lake", "--host", "0.0.0.0", "--port", "0"]
    done = run("serve", *files, code=2)
    assert "--allow-anonymous" in done.output
    allowed = answer_of("serve", "--check", *files, "--allow-anonymous")
    assert allowed["authentication"] == "anonymous"
    key, _ = keys.add("ann")
    with serve(*files, "--api-keys", str(keys.path)) as served:
        url = served.url.replace("0.0.0.0", "127.0.0.1")
        assert httpx.get(f"{url}{LIST}").status_code == 401
        assert children(url, **{"header.x-api-key": key}) == ["files"]


def test_check_prints_an_ipv6_address_in_brackets(tmp_path: Path) -> None:
    shown = answer_of("serve", "--check", "-c", f"files=dir:root={tmp_path}/lake", "--host", "::1")
    assert shown["addresses"] == "http://[::1]:2333"


@pytest.mark.spec("cli.md#serve", "server.md#keys-of-the-configuration")
def test_an_address_that_is_in_use_is_a_failure(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = str(taken.getsockname()[1])
        done = run("serve", "-c", f"files=dir:root={tmp_path}", "--port", port, code=1)
    assert f"Cannot listen at 127.0.0.1:{port}: Address already in use" in done.output


@pytest.mark.spec("server.md#keys-of-the-configuration")
def test_a_socket_is_taken_over_from_a_server_that_was_killed(tmp_path: Path) -> None:
    arguments = ["-c", f"files=dir:root={tmp_path}/lake", "--socket", f"{tmp_path}/s"]
    with socket.socket(socket.AF_UNIX) as killed:  # closing one leaves its file, as a kill does
        killed.bind(f"{tmp_path}/s")
        killed.listen()
        done = run("serve", *arguments, code=1)
        assert f"Cannot listen at {tmp_path}/s" in done.output
    with serve(*arguments) as served:
        assert served.url == f"unix:{tmp_path}/s"


NO_SECRET = {
    "method": "oidc",
    "issuer": "https://login.example.com",
    "audiences": ["lance"],
    "login": {"client_id": "lance", "client_secret_file": "/nothing/secret"},
}


def test_check_names_what_does_not_answer(tmp_path: Path) -> None:
    with identity_provider("okta") as provider:
        oidc = {"method": "oidc", "issuer": provider.issuer, "audiences": [AUDIENCE]}
        config = write_config(tmp_path, authentication=[oidc])
        options = ["--check", "--config", str(config), "-c", f"files=dir:root={tmp_path}/lake"]
        good = answer_of("serve", *options)
        assert good["authentication"] == "oidc"
        assert [(each["name"], each["problem"]) for each in good["checked"]] == [
            ("files", ""),
            (provider.issuer, ""),
        ]
        provider.stop()
        options += ["-c", HIVE, "-p", "prod.client.retry-timeout=0"]
        bad = answer_of("serve", *options, code=1)
    problems = {each["name"]: each["problem"] for each in bad["checked"]}
    assert problems["files"] == ""
    assert "connection refused" in problems["prod"]
    assert "cannot be read: ConnectError" in problems[provider.issuer]


@pytest.mark.parametrize("more", [[], ["--check"]])
@pytest.mark.parametrize(
    ("settings", "text"),
    [
        ({"login": {"key_file": "/nothing/keys"}}, "/nothing/keys cannot be read"),
        ({"audit": {"to": "/nothing/audit.jsonl"}}, "The audit log cannot be opened"),
        ({"authentication": [NO_SECRET]}, "/nothing/secret cannot be read"),
    ],
)
def test_files_that_cannot_be_used_are_wrong_usage(
    tmp_path: Path, settings: dict[str, Any], text: str, more: list[str]
) -> None:
    config = str(write_config(tmp_path, **settings))
    done = run("serve", "--config", config, "-c", f"files=dir:root={tmp_path}/lake", *more, code=2)
    assert text in " ".join(done.stderr.split())


def test_check_leaves_no_audit_log(tmp_path: Path) -> None:
    (tmp_path / "old.jsonl").write_text("{}\n")
    for name in ("new.jsonl", "old.jsonl"):
        config = write_config(tmp_path, audit={"to": str(tmp_path / name)})
        options = ["--config", str(config), "-c", f"files=dir:root={tmp_path}/lake"]
        answer_of("serve", "--check", *options)
    assert [each.name for each in tmp_path.glob("*.jsonl")] == ["old.jsonl"]


def test_check_gives_up_on_a_catalog_that_does_not_answer() -> None:
    with unanswered(is_silent=True) as address:
        started = time.monotonic()
        done = program("serve", "--check", "--timeout", "1", "-c", f"x=rest:uri=http://{address}")
        assert time.monotonic() - started < 60
    assert done.returncode == 1
    assert "no response within 1 s" in done.stdout


@pytest.mark.spec("cli.md#serve")
@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        ([], "Give a --catalog"),
        (["-c", "=hive"], "--catalog must be NAME=IMPL"),
        (["-c", "prod="], "--catalog must be NAME=IMPL"),
        (["-c", "prod=hive:uri"], "--catalog must be NAME=IMPL"),
        (["-c", HIVE, "-c", HIVE], "--catalog prod is given twice"),
        (["-c", HIVE, "-p", "uri=x"], "--property must be NAME.KEY=VALUE"),
        (["-c", "prod=hvie:uri=x"], "did you mean 'hive'?"),
        (["-c", "prod=hive:url=x"], "catalog 'prod': impl=hive has no property 'url': did you"),
        (["-c", HIVE, "--root", "x"], "root: 'x' must be the one catalog"),
        (["-c", HIVE, "--tls-key", "k"], "'tls.certificate' is required"),
        (["-c", HIVE, "--port", "1", "--socket", "s"], "a listener has a host and port, or a"),
        (["-c", HIVE, "--api-keys", "/nothing"], "/nothing cannot be read: No such file"),
        (["--config", "/nothing"], "/nothing cannot be read: No such file"),
    ],
)
@pytest.mark.parametrize("more", [[], ["--check"]])
def test_wrong_options_are_wrong_usage(arguments: list[str], text: str, more: list[str]) -> None:
    done = run("serve", *arguments, *more, code=2)
    assert text in done.output.replace("\n", " ")
    assert "Traceback" not in done.output


# -- granian, by the command of the specification --------------------------------------------------


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


@pytest.mark.engines
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
    assert (missing.status_code, missing.json()["error"]) == (
        404,
        "Namespace not found: a/b. Create it first, or check its spelling",
    )
    large = httpx.post(f"{url}/v1/namespace/x/create", json={"properties": {"a": "b" * 70_000}})
    assert (large.status_code, large.json()["code"]) == (413, 13)
    assert httpx.get(f"{url}/livez", headers={"a": "b" * 50_000}).status_code == 200
    assert httpx.get(f"{url}/livez", headers={"a": "b" * 300_000}).status_code == 431


@pytest.mark.engines
def test_granian_closes_connections_without_a_whole_request(
    granian: tuple[str, subprocess.Popen[bytes]],
) -> None:
    url, _ = granian
    with dial(url) as silent, dial(url) as slow:
        slow.sendall(b"GET /livez HTTP/1.1\r\nHost:")
        for each in (silent, slow):
            each.settimeout(60)
            assert each.recv(1) == b""


@pytest.mark.engines
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
