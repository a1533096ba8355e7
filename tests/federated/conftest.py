"""Catalogs that federations of the tests are made of."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import lance_namespace as api
import pytest
from core.memory_catalog import SERVERS, MemoryNamespace, MemoryServer
from lance_namespace.errors import NamespaceAlreadyExistsError

from lance_bridge.testing.calls import ipc, rows


@pytest.fixture(autouse=True)
def _empty_home(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Keep what this machine's user has set out of the tests."""
    monkeypatch.setenv("HOME", str(tmp_path / "home"))


@pytest.fixture
def memory(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[MemoryNamespace]:
    """A catalog of lance-bridge with three levels of namespaces."""
    SERVERS[request.node.nodeid] = MemoryServer()
    yield MemoryNamespace(uri=request.node.nodeid, root=str(tmp_path / "memory"))
    del SERVERS[request.node.nodeid]


@pytest.fixture
def directory(tmp_path: Path) -> api.LanceNamespace:
    """A directory namespace of pylance."""
    return api.connect("dir", {"root": str(tmp_path / "directory")})


def add_tables(namespace: api.LanceNamespace, *names: str) -> None:
    """Create tables with rows, and the namespaces above them; names are joined with dots."""
    for name in names:
        id = name.split(".")
        for depth in range(1, len(id)):
            with suppress(NamespaceAlreadyExistsError):
                namespace.create_namespace(api.CreateNamespaceRequest(id=id[:depth]))
        namespace.create_table(api.CreateTableRequest(id=id), ipc(rows(range(2))))
