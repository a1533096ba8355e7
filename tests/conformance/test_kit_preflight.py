"""What the kit's command tries before the first case, and that nothing of it is left behind."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from core.memory_catalog import CAPABILITIES, SERVERS, MemoryNamespace, MemoryServer
from lance_namespace.errors import PermissionDeniedError

from lance_bridge.catalog import NamespaceRecord
from lance_bridge.testing import command

pytestmark = [
    pytest.mark.quick,
    pytest.mark.spec("cli.md#check"),
    pytest.mark.usefixtures("runs"),
]

MEMORY = f"{MemoryNamespace.__module__}.MemoryNamespace"
PARENT = ("eu", "shop")
CLOSED = "http://127.0.0.1:9"


@pytest.fixture
def server() -> Iterator[MemoryServer]:
    """A catalog of three levels, and namespaces in it that have no location."""
    server = SERVERS["preflight"] = MemoryServer()
    for path in (PARENT[:1], PARENT):
        server.namespaces[path] = NamespaceRecord(path)
    yield server
    del SERVERS["preflight"]


def in_memory(*more: str) -> int:
    return command.main([MEMORY, "-p", "uri=preflight", "--parent", "eu.shop", *more])


def left_in(path: Path) -> list[str]:
    """Return what is left: any file, and directories that the kit has named."""
    found = [each for each in path.rglob("*") if each.is_file() or "lbkit" in each.name]
    return sorted(str(each.relative_to(path)) for each in found)


# -- levels ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["unity", "-p", f"host={CLOSED}"], "--parent CATALOG"),
        (["unity", "-p", f"host={CLOSED}", "--parent", "c.s"], "not --parent c.s"),
        (["unity", "-p", f"host={CLOSED}", "-p", "catalog=c", "--parent", "s"], "leave out"),
        (["hive", "-p", "uri=thrift://127.0.0.1:9", "-p", "catalog_levels=true"], "--parent"),
        (["hive", "-p", "uri=thrift://127.0.0.1:9", "--parent", "db"], "leave out --parent"),
        ([MEMORY, "-p", "uri=preflight", "--parent", "eu"], "--parent REGION.PROJECT"),
    ],
)
def test_a_parent_of_another_level_is_refused_without_a_call(
    runs: list[object],
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    arguments: list[str],
    said: str,
) -> None:
    called: list[object] = []
    monkeypatch.setattr(socket.socket, "connect", lambda _, address: called.append(address))
    assert command.main(arguments) == 2
    assert called == []
    assert said in capsys.readouterr().err
    assert runs == []


def test_a_catalog_that_makes_no_namespaces_takes_a_target_of_its_own(
    runs: list[object], server: MemoryServer, capsys: pytest.CaptureFixture[str]
) -> None:
    server.capabilities = replace(CAPABILITIES, no_namespace_changes="its owner makes them")
    assert in_memory() == 1
    assert "its owner makes them" in capsys.readouterr().err
    assert runs == []


# -- a table, tried --------------------------------------------------------------------------------


def test_a_catalog_whose_tables_have_no_place_is_refused_with_the_property_to_set(
    runs: list[object], server: MemoryServer, capsys: pytest.CaptureFixture[str]
) -> None:
    before = dict(server.namespaces)
    assert in_memory() == 1
    message = capsys.readouterr().err
    assert "without a location" in message
    assert "-p root=" in message
    assert (server.namespaces, server.tables, runs) == (before, {}, [])


def test_a_place_that_lance_cannot_write_is_refused(
    server: MemoryServer, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    place = "hdfs://nameservice/warehouse/db"
    monkeypatch.setattr(
        "core.memory_catalog.MemoryCatalog.location_for_tables", lambda _self, _namespace: place
    )
    assert in_memory() == 1
    assert place in capsys.readouterr().err
    assert server.tables == {}


def test_a_place_that_cannot_be_written_is_refused_and_nothing_is_left(
    runs: list[object], server: MemoryServer, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    (tmp_path / "file").touch()
    before = dict(server.namespaces)
    assert in_memory("-p", f"root={tmp_path / 'file'}") == 1
    assert "a table cannot be made" in capsys.readouterr().err
    assert (server.namespaces, server.tables, runs) == (before, {}, [])
    assert left_in(tmp_path) == ["file"]


def test_a_parent_where_no_namespace_can_be_made_is_refused(
    runs: list[object], server: MemoryServer, capsys: pytest.CaptureFixture[str]
) -> None:
    def refuse(name: str, _moment: str) -> None:
        if name == "create_namespace":
            raise PermissionDeniedError("not here")

    server.fault = refuse
    assert in_memory() == 1
    assert "no namespace can be made under eu.shop: not here" in capsys.readouterr().err
    assert runs == []


def test_a_good_catalog_is_left_as_it_was(
    runs: list[object], server: MemoryServer, tmp_path: Path
) -> None:
    before = dict(server.namespaces)
    place = tmp_path / "new" / "data"
    assert in_memory("-p", f"root={tmp_path / 'lake'}", "--data-root", str(place)) == 0
    assert len(runs) == 1
    assert "create_table" in server.effects
    assert (server.namespaces, server.tables) == (before, {})
    assert left_in(tmp_path) == []
    assert not (tmp_path / "new").exists()


def test_a_catalog_that_removes_nothing_is_refused_with_the_names_of_what_is_left(
    runs: list[object], server: MemoryServer, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    def refuse(name: str, _moment: str) -> None:
        if name.startswith("drop"):
            raise PermissionDeniedError("not here")

    server.fault = refuse
    assert in_memory("-p", f"root={tmp_path / 'lake'}") == 1
    message = capsys.readouterr().err
    assert "could not be removed" in message
    [left] = [path for path in server.namespaces if path[:2] == PARENT and len(path) == 3]
    assert ".".join(left) in message
    assert runs == []


@pytest.mark.parametrize("moment", ["before", "after"])
@pytest.mark.parametrize("change", ["create_namespace", "create_table", "drop_table"])
def test_ctrl_c_before_the_first_case_leaves_nothing(
    server: MemoryServer, tmp_path: Path, change: str, moment: str
) -> None:
    def interrupt(name: str, at: str) -> None:
        if (name, at) == (change, moment):
            server.fault = None
            raise KeyboardInterrupt

    server.fault = interrupt
    before = dict(server.namespaces)
    assert in_memory("-p", f"root={tmp_path / 'lake'}") == 130
    assert (server.namespaces, server.tables) == (before, {})
    assert left_in(tmp_path) == []
