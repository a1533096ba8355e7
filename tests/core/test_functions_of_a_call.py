"""How many functions and files a reader meets who follows a call, also one through a gateway."""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType

import anyio
import httpx
import lance_namespace as api
import pytest
from server.gateways import memory_namespace

import lance_bridge
import lance_bridge_server
from lance_bridge_federated import FederatedNamespace
from lance_bridge_server.app import create_app
from lance_bridge_server.gateway.gateway import Gateway

from .memory_catalog import TABLE, MemoryNamespace, count_rows, create, stream

pytestmark = pytest.mark.quick

CORE = Path(lance_bridge.__file__).parent
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


def files_of(call: Callable[[], object]) -> list[str]:
    """Return the files of core whose functions run during a call, sorted."""
    functions: set[tuple[str, str]] = set()
    with entered(functions):
        call()
    paths = {Path(file) for file, _ in functions}
    return sorted(str(path.relative_to(CORE)) for path in paths if path.is_relative_to(CORE))


def test_describing_a_table_takes_at_most_nine_files(namespace: MemoryNamespace) -> None:
    create(namespace, TABLE)
    request = api.DescribeTableRequest(id=TABLE)

    files = files_of(lambda: namespace.describe_table(request))

    assert "dataset/read.py" in files
    assert len(files) <= 9, ", ".join(files)


def test_inserting_rows_takes_at_most_thirteen_files(namespace: MemoryNamespace) -> None:
    create(namespace, TABLE, rows=3)
    request, data = api.InsertIntoTableRequest(id=TABLE), stream(2)

    files = files_of(lambda: namespace.insert_into_table(request, data))

    assert count_rows(namespace, TABLE) == 5
    assert "dataset/insert.py" in files
    # Four of them read the file that says whether another entry manages the versions.
    assert len(files) <= 13, ", ".join(files)


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
    assert len(functions) <= 131, sorted(functions)
    assert len({file for file, _ in functions}) <= 33
