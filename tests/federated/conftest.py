"""Fixtures for tests of federations, and a catalog that records what it is asked."""

from __future__ import annotations

import inspect
import typing
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import lance_namespace as api
import pytest
from core.memory_catalog import SERVERS, MemoryNamespace, MemoryServer
from lance_namespace import LanceNamespace
from lance_namespace.errors import NamespaceAlreadyExistsError
from pydantic import BaseModel

from lance_bridge.testing.calls import ipc, rows
from lance_bridge_federated.namespace import operations

OWN_ID = ["sales", "orders"]
TOKEN = "the catalog's own token"


@dataclass(frozen=True)
class Call:
    """One call: the operation, its request and what came with it."""

    operation: str
    request: Any
    rows: tuple[Any, ...]


class Recorder(LanceNamespace):
    """Answers every operation of the trait."""

    def __init__(self) -> None:
        self.calls: list[Call] = []

    def namespace_id(self) -> str:
        return "recorder"

    def answer(self, operation: str, request: Any, *rows: Any) -> Any:
        self.calls.append(Call(operation, request, rows))
        returned = typing.get_type_hints(getattr(LanceNamespace, operation))["return"]
        return filled(returned, OWN_ID) if isinstance(returned, type) else None


@dataclass
class Broken(LanceNamespace):
    """Fails every call with an error, until it is given none."""

    error: BaseException | None
    asked: int = field(default=0)

    def namespace_id(self) -> str:
        return "broken"

    def answer(self, operation: str, request: Any, *rows: Any) -> Any:
        self.asked += 1
        if self.error is not None:
            raise self.error
        return Recorder().answer(operation, request, *rows)


def _method(name: str) -> Any:
    def method(self: Any, request: Any, *rows: Any) -> Any:
        return self.answer(name, request, *rows)

    return method


for _name in operations():
    setattr(Recorder, _name, _method(_name))
    setattr(Broken, _name, _method(_name))


def is_id(annotation: Any) -> bool:
    """Return whether a field's type is a list of strings."""
    return any(f"List[{item}" in str(annotation) for item in ("str", "typing.Annotated[str"))


def id_fields(model: type[BaseModel]) -> list[str]:
    """Return the fields of a model that are identifiers."""
    names = ("id", "namespace", "new_namespace_id", "transaction_id")
    fields = model.model_fields
    return [name for name in names if name in fields and is_id(fields[name].annotation)]


def filled(kind: type[Any], id: list[str]) -> Any:
    """Return a model with an identifier in each of its fields for one, or a plain value."""
    if not (inspect.isclass(kind) and issubclass(kind, BaseModel)):
        return kind()
    fields: dict[str, Any] = {name: list(id) for name in id_fields(kind)}
    if "page_token" in kind.model_fields:
        fields["page_token"] = TOKEN
    return kind.model_construct(**fields)


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
