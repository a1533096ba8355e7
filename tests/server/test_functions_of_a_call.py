"""How many functions and files a reader meets between a request and a table of a catalog."""

from __future__ import annotations

import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType

import anyio
import httpx
import pytest
from server.gateways import memory_namespace

import lance_bridge
import lance_bridge_server
from lance_bridge_federated import FederatedNamespace
from lance_bridge_server.app import create_app
from lance_bridge_server.gateway.gateway import Gateway

pytestmark = pytest.mark.quick

SOURCES = tuple(
    str(Path(str(each.__file__)).parents[1]) for each in (lance_bridge, lance_bridge_server)
)


@contextmanager
def entered(functions: set[tuple[str, str]]) -> Iterator[None]:
    """Collect the functions of this project that run in any thread, with their files."""

    def profile(frame: FrameType, event: str, _: object) -> None:
        name, file = frame.f_code.co_name, frame.f_code.co_filename
        if event == "call" and file.startswith(SOURCES) and not name.startswith("<"):
            functions.add((file, f"{name}:{frame.f_code.co_firstlineno}"))

    before = sys.getprofile()
    threading.setprofile(profile)
    sys.setprofile(profile)
    try:
        yield
    finally:
        sys.setprofile(before)
        threading.setprofile(None)


def test_describing_a_table_through_a_gateway_takes_few_functions(tmp_path: Path) -> None:
    namespace = memory_namespace(tmp_path)
    app = create_app(Gateway(FederatedNamespace({"prod": namespace})))
    functions: set[tuple[str, str]] = set()

    async def describe() -> httpx.Response:
        transport = httpx.ASGITransport(app)
        async with httpx.AsyncClient(transport=transport, base_url="http://localhost") as client:
            await client.post("/v1/namespace/prod$eu/create", json={})
            await client.post("/v1/table/prod$eu$t/declare", json={})
            await client.post("/v1/table/prod$eu$t/describe", json={})
            functions.clear()  # the first call imports and caches
            return await client.post("/v1/table/prod$eu$t/describe", json={})

    with entered(functions):
        response = anyio.run(describe)
    assert response.json()["location"].endswith("t.lance")
    assert len(functions) <= 119, sorted(functions)
    assert len({file for file, _ in functions}) <= 35
