"""A gateway over a catalog in memory, and a client of plain HTTP for it."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from lance_namespace import CreateNamespaceRequest, LanceNamespace
from server.gateways import memory_namespace, serve_app, serve_namespace

from lance_bridge_server.access.authentication import ApiKeyFile
from lance_bridge_server.app import create_app
from lance_bridge_server.gateway.gateway import Gateway
from lance_bridge_server.gateway.limits import Limits

DATABASE = "films"


class Recorder:
    """A namespace that keeps the requests it was called with."""

    def __init__(self) -> None:
        self._namespace: Any = None
        self.requests: list[Any] = []

    def use(self, namespace: LanceNamespace) -> None:
        """Become another namespace, which was not called yet."""
        self._namespace, self.requests = namespace, []

    def __getattr__(self, name: str) -> Any:
        member = getattr(self._namespace, name)
        if name not in vars(LanceNamespace):
            return member

        def call(request: Any, *rows: Any) -> Any:
            self.requests.append(request)
            return member(request, *rows)

        return call


@pytest.fixture(scope="session", autouse=True)
def wait_for_answers() -> Iterator[None]:
    """Have httpx wait for longer than its five seconds, which a busy machine may need."""
    default = inspect.signature(httpx.request).parameters["timeout"].default
    with pytest.MonkeyPatch.context() as patch:
        for each in ("connect", "read", "write", "pool"):
            patch.setattr(default, each, 60.0)
        yield


@pytest.fixture
def keys(tmp_path: Path) -> ApiKeyFile:
    """A file for API keys, which is made with the first one."""
    return ApiKeyFile(tmp_path / "keys.json")


@pytest.fixture(scope="module")
def recorder() -> Recorder:
    """What the gateway of a module serves: in each test, the `namespace` of that test."""
    return Recorder()


@pytest.fixture
def namespace(recorder: Recorder, tmp_path: Path) -> Any:
    """Databases and tables in memory."""
    namespace = memory_namespace(tmp_path)
    namespace.create_namespace(CreateNamespaceRequest(id=[DATABASE]))
    recorder.use(namespace)
    return recorder


@pytest.fixture(scope="module")
def limits() -> Limits:
    return Limits(body_bytes=1 << 16)


@pytest.fixture(scope="module")
def gateway(recorder: Any, limits: Limits) -> Gateway:
    """A gateway that the tests of a module share: one that changes it changes it back."""
    return Gateway(recorder, limits=limits)


@pytest.fixture(scope="module")
def address(gateway: Gateway) -> Iterator[str]:
    with serve_app(create_app(gateway)) as address:
        yield address


@pytest.fixture(scope="module")
def client(address: str) -> Iterator[httpx.Client]:
    with httpx.Client(base_url=address, timeout=30) as client:
        yield client


@pytest.fixture
def http(client: httpx.Client, namespace: Any) -> httpx.Client:  # noqa: ARG001 - it is served
    """A client whose paths are relative to the gateway."""
    return client


class Failing:
    """A namespace whose operations all raise the same error."""

    error: BaseException

    def describe_table(self, *_: Any) -> Any:
        raise self.error


@pytest.fixture(scope="module")
def failure() -> Iterator[Callable[..., httpx.Response]]:
    """Returns how a gateway answers an error of its namespace, to a request with some headers."""
    namespace: Any = Failing()
    with serve_namespace(namespace) as url:

        def failure(error: BaseException, **headers: str) -> httpx.Response:
            namespace.error = error
            return httpx.post(f"{url}/v1/table/films$t/describe", headers=headers)

        yield failure
