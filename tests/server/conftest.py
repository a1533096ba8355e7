"""A gateway over a catalog in memory, and a client of plain HTTP for it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import httpx
import pytest
from core.memory_catalog import CAPABILITIES, SERVERS, MemoryNamespace, MemoryServer, rule
from lance_namespace import CreateNamespaceRequest, LanceNamespace
from server.serving import serving

from lance_bridge_server.app import create_app
from lance_bridge_server.gateway import Gateway
from lance_bridge_server.limits import Limits

DATABASE = "films"


class Recorder:
    """A namespace that keeps the requests it was called with."""

    def __init__(self, namespace: LanceNamespace) -> None:
        self._namespace = namespace
        self.requests: list[Any] = []

    def __getattr__(self, name: str) -> Any:
        member = getattr(self._namespace, name)
        if name not in vars(LanceNamespace):
            return member

        def call(request: Any, *rows: Any) -> Any:
            self.requests.append(request)
            return member(request, *rows)

        return call


@pytest.fixture
def namespace(tmp_path: Path) -> Any:
    """Databases and tables in memory."""
    able = replace(CAPABILITIES, namespace_levels=(rule("database"),), no_rename="", no_alter="")
    SERVERS[str(tmp_path)] = MemoryServer(capabilities=able)
    namespace = MemoryNamespace(uri=str(tmp_path), root=str(tmp_path / "root"))
    namespace.create_namespace(CreateNamespaceRequest(id=[DATABASE]))
    return Recorder(namespace)


@pytest.fixture
def limits() -> Limits:
    return Limits(body_bytes=1 << 16)


@pytest.fixture
def gateway(namespace: Any, limits: Limits) -> Gateway:
    return Gateway(namespace, limits=limits)


@pytest.fixture
def http(gateway: Gateway) -> Iterator[httpx.Client]:
    """A client whose paths are relative to the gateway."""
    with serving(create_app(gateway)) as url, httpx.Client(base_url=url, timeout=30) as client:
        yield client
