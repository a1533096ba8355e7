"""A gateway that runs for longer than the secrets of its catalogs are valid."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import httpx
import pytest
from server.http_requests import done, refused
from server.serving import serving_namespace
from servers.http_proxy import Answer, HttpProxy
from servers.unity import UnityServer

from lance_bridge.testing.concurrency import race
from lance_bridge_server.catalogs import connect_catalogs, root_namespace
from lance_bridge_server.configuration.settings import ServerSettings

pytestmark = [
    pytest.mark.servers,
    pytest.mark.spec("common.md#secrets-that-change", "server.md#storage-options-in-responses"),
]

THREADS = 10
UNAUTHENTICATED = (401, 16)
LIST = "/v1/namespace/{}/list"
FIRST, SECOND, WRONG = "first-hush-token", "second-hush-token", "wrong-hush-token"


@pytest.fixture
def unity() -> Iterator[UnityServer]:
    """A server with the catalogs `a` and `b`."""
    with UnityServer() as server:
        for name in ("a", "b"):
            server.add_catalog(name)
            server.add_schema(name, f"in_{name}")
        server.token = FIRST
        yield server


@pytest.fixture
def proxy(unity: UnityServer) -> Iterator[HttpProxy]:
    with HttpProxy(unity.url) as running:
        yield running


@pytest.fixture
def files(tmp_path: Path) -> dict[str, Path]:
    """The files of secrets of both catalogs."""
    found = {name: tmp_path / f"{name}.yaml" for name in ("a", "b")}
    for file in found.values():
        file.write_text(f"token: {FIRST}\n")
    return found


@pytest.fixture
def client(proxy: HttpProxy, files: dict[str, Path]) -> Iterator[httpx.Client]:
    """A client of a gateway over both, each of which it has called."""
    catalogs = {
        name: {"impl": "unity", "host": proxy.endpoint, "catalog": name, "secrets.file": str(file)}
        for name, file in files.items()
    }
    settings = ServerSettings.model_validate({"catalogs": catalogs})
    root = root_namespace(settings, connect_catalogs(settings, {}))
    with (
        serving_namespace(root) as url,
        closing(httpx.Client(base_url=url, timeout=60)) as client,
    ):
        for name in ("a", "b"):
            done(client.get(LIST.format(name)))
        yield client


def test_each_catalog_of_a_federation_gets_the_new_secret_of_its_file(
    client: httpx.Client, unity: UnityServer, files: dict[str, Path]
) -> None:
    unity.token = SECOND
    files["a"].write_text(f"token: {SECOND}\n")
    assert done(client.get(LIST.format("a")))["namespaces"] == ["in_a"]
    found = refused(client.get(LIST.format("b")), *UNAUTHENTICATED)
    assert "are the same" in found
    files["b"].write_text(f"token: {SECOND}\n")
    assert done(client.get(LIST.format("b")))["namespaces"] == ["in_b"]


def test_many_callers_need_one_reading(
    client: httpx.Client,
    unity: UnityServer,
    files: dict[str, Path],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    opened: list[Path] = []
    read_text = Path.read_text

    def counted(path: Path, *args: str, **more: str) -> str:
        opened.extend([path] if path in files.values() else [])
        return read_text(path, *args, **more)

    monkeypatch.setattr(Path, "read_text", counted)
    unity.token = SECOND
    files["a"].write_text(f"token: {SECOND}\n")
    answers = race(lambda _: done(client.get(LIST.format("a")))["namespaces"], THREADS)
    assert answers == [["in_a"]] * THREADS
    assert opened == [files["a"]]


def test_a_server_that_repeats_a_new_secret_shows_it_to_nobody(
    client: httpx.Client,
    unity: UnityServer,
    proxy: HttpProxy,
    files: dict[str, Path],
    caplog: pytest.LogCaptureFixture,
) -> None:
    unity.token = SECOND
    files["a"].write_text(f"token: {WRONG}\n")
    content = {"error_code": "UNAUTHENTICATED", "message": f"'{WRONG}' is not a valid word"}
    proxy.fail_next(
        lambda request: WRONG in request.headers.get("authorization", ""),
        Answer.of_json(401, content),
        times=float("inf"),
    )
    text = refused(client.get(LIST.format("a")), *UNAUTHENTICATED)
    assert "'***' is not a valid word" in text
    assert "hush" not in text + caplog.text
