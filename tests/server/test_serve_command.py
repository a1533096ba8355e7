"""``lance-bridge serve``, as the installed program."""

from __future__ import annotations

import json
import signal
import socket
import time
from pathlib import Path
from typing import Any

import httpx
import lance_namespace as api
import pytest
from cli.running import answer_of, program, run
from servers.replies import unanswered

from lance_bridge_server.authentication.key_file import ApiKeyFile

from .authenticated import AUDIENCE, LIST, children, connect, identity_provider, serve, write_config

pytestmark = [pytest.mark.servers, pytest.mark.spec("server.md#serve")]

HIVE = "prod=hive:uri=thrift://127.0.0.1:1"


@pytest.mark.spec("cli.md#serve")
def test_a_catalog_is_the_root_or_a_child_of_it(tmp_path: Path) -> None:
    """SIGTERM ends the first server, and Ctrl-C the second."""
    files = ["-c", f"files=dir:root={tmp_path}/lake", "--port", "0"]
    with serve(*files, "--root", "files") as served:
        request = api.CreateNamespaceRequest(id=["films"])
        connect(served.url).create_namespace(request)
        assert children(served.url) == ["films"]
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
