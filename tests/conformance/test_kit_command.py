"""``python -m lance_bridge.testing``: it checks first, and cleans up when it is interrupted."""

from __future__ import annotations

import os
import signal
import socket
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any, NoReturn

import pytest
from core.memory_catalog import CAPABILITIES, SERVERS, MemoryNamespace, MemoryServer
from lance_namespace.errors import PermissionDeniedError

from lance_bridge import kit_options
from lance_bridge.catalog import NamespaceRecord
from lance_bridge.testing import command, concurrency
from lance_bridge.testing.catalog.workspace import skip_if
from lance_bridge.testing.command import Results
from lance_bridge.testing.concurrency import race
from lance_bridge.testing.target import Features, without

pytestmark = [pytest.mark.quick, pytest.mark.spec("cli.md#check")]


@pytest.fixture
def runs(monkeypatch: pytest.MonkeyPatch) -> list[object]:
    """Runs of pytest, which are not made but noted here."""
    runs: list[object] = []

    def run(arguments: object, _plugins: object) -> int:
        runs.append(arguments)
        return 0

    monkeypatch.setattr(pytest, "main", run)
    return runs


IN_DIRECTORY = ["dir", "-p", "root={path}/root"]
DEAD = "127.0.0.1:9"


def in_directory(path: Path) -> list[str]:
    return ["dir", "-p", f"root={path}"]


NOT_A_ROOT = "--data-root must be an absolute path or a URI"


@pytest.mark.parametrize(
    ("code", "arguments", "said"),
    [
        (1, ["no_such"], ["no_such"]),
        (
            1,
            ["hive", "-p", f"uri=thrift://{DEAD}", "-p", "client.retry-timeout=0"],
            ["could not list the namespaces", DEAD],
        ),
        (1, [*IN_DIRECTORY, "--parent", "no_such"], ["--parent"]),
        (
            1,
            [*IN_DIRECTORY, "--data-root", "{path}/file"],
            ["--data-root {path}/file cannot be written", "--storage-option"],
        ),
        (1, [*IN_DIRECTORY, "--data-root", "nosuchscheme://bucket/x"], ["cannot be written"]),
        (2, [*IN_DIRECTORY, "--without", "wings"], ["wings"]),
        *(
            (2, [*IN_DIRECTORY, "--data-root", each], [NOT_A_ROOT])
            for each in ("relative/place", "./here", "s3:/bucket", "file:here", "file://host/x", "")
        ),
    ],
)
def test_what_cannot_be_tested_is_reported_before_any_case_runs(
    runs: list[object],
    capsys: pytest.CaptureFixture[str],
    tmp_path: Path,
    *,
    code: int,
    arguments: list[str],
    said: list[str],
) -> None:
    (tmp_path / "file").touch()
    assert command.main([each.format(path=tmp_path) for each in arguments]) == code
    message = capsys.readouterr().err
    assert all(each.format(path=tmp_path) in message for each in said), message
    assert "Traceback" not in message
    assert runs == []


@pytest.mark.parametrize("prefix", ["", "file://"])
def test_a_good_place_and_the_handling_of_signals_are_left_as_they_were(
    runs: list[object], tmp_path: Path, prefix: str
) -> None:
    place, before = tmp_path / "data", signal.getsignal(signal.SIGTERM)
    place.mkdir()
    given = [*in_directory(tmp_path / "root"), "--data-root", f"{prefix}{place}"]
    assert command.main(given) == 0
    assert len(runs) == 1
    assert list(place.iterdir()) == []
    assert signal.getsignal(signal.SIGTERM) is before


@pytest.mark.timeout(30)
def test_an_interrupt_while_threads_start_does_not_wait_for_the_others(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    class Interrupted(ThreadPoolExecutor):
        def map(self, fn: Callable[..., Any], *_: Iterable[Any], **__: object) -> NoReturn:
            self.submit(fn, 0)
            raise KeyboardInterrupt

    monkeypatch.setattr(concurrency, "ThreadPoolExecutor", Interrupted)
    with pytest.raises(KeyboardInterrupt):
        race(lambda number: number)


def test_without_a_feature_the_cases_of_the_adapter_skip_too() -> None:
    target = command.ConfiguredTarget("hive", {})
    target.features = without(Features(), "rename")
    target.reasons = {"rename": "--without rename"}
    able = SimpleNamespace(no_rename="", no_alter="")
    workspace: Any = SimpleNamespace(capabilities=able, target=target)
    skip_if(workspace, "no_alter")
    with pytest.raises(pytest.skip.Exception, match="--without rename"):
        skip_if(workspace, "no_alter", "no_rename")


# -- the outcome -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("of_pytest", "of_the_kit"),
    [
        (pytest.ExitCode.OK, 0),
        (pytest.ExitCode.TESTS_FAILED, 3),
        (pytest.ExitCode.NO_TESTS_COLLECTED, 2),
        (pytest.ExitCode.USAGE_ERROR, 2),
        (pytest.ExitCode.INTERNAL_ERROR, 1),
        (pytest.ExitCode.INTERRUPTED, 1),  # by what cannot be collected
    ],
)
def test_the_exit_code_is_that_of_all_commands(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, of_pytest: int, of_the_kit: int
) -> None:
    monkeypatch.setattr(pytest, "main", lambda _arguments, _plugins: of_pytest)
    assert command.main([*in_directory(tmp_path), "-k", "rename"]) == of_the_kit


def test_ctrl_c_has_an_exit_code_of_its_own(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    def run(_arguments: object, _plugins: object) -> int:
        try:
            os.kill(os.getpid(), signal.SIGINT)
            signal.pause()
        except KeyboardInterrupt:
            return int(pytest.ExitCode.INTERRUPTED)
        return 0

    monkeypatch.setattr(pytest, "main", run)
    assert command.main(in_directory(tmp_path)) == 130


def test_a_signal_that_a_case_catches_ends_the_run_after_it(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    session = SimpleNamespace(shouldstop=False)

    def run(_arguments: object, plugins: Iterable[Any]) -> int:
        with suppress(KeyboardInterrupt):
            os.kill(os.getpid(), signal.SIGTERM)
            signal.pause()
        for each in plugins:
            end = getattr(each, "pytest_runtest_teardown", None)
            if end is not None:
                end(SimpleNamespace(session=session))
        return int(pytest.ExitCode.TESTS_FAILED)

    monkeypatch.setattr(pytest, "main", run)
    assert command.main(in_directory(tmp_path)) == 130
    assert session.shouldstop


@pytest.mark.parametrize(
    "arguments",
    [
        [],
        ["dir", "--no-such-option"],
        ["dir", "-p", "no-value"],
        ["dir", "--parent", "a..b"],
        ["dir", "-o", "yaml"],
    ],
)
def test_a_command_that_is_given_wrongly_is_refused(
    runs: list[object], arguments: list[str]
) -> None:
    with pytest.raises(SystemExit) as refused:
        command.main(arguments)
    assert (refused.value.code, runs) == (2, [])


def test_an_adapter_that_cannot_be_made_is_one_line(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], runs: list[object]
) -> None:
    def connect(*_: object) -> object:
        raise TypeError("Catalog must override rename_table")

    monkeypatch.setattr("lance_bridge.connect", connect)
    assert command.main(["unfinished"]) == 1
    shown = capsys.readouterr().err.strip().splitlines()
    assert len(shown) == 1
    assert "unfinished cannot be made: TypeError: Catalog must override rename_table" in shown[0]
    assert runs == []


def test_groups_are_listed_without_a_catalog(capsys: pytest.CaptureFixture[str]) -> None:
    assert command.main(["--list-groups"]) == 0
    lines = capsys.readouterr().out.splitlines()
    groups = [line.split()[0] for line in lines]
    assert {"namespaces", "tables", "requests", "managed", "data"} <= set(groups)
    assert all(int(line.split()[1]) > 0 and len(line.split()) > 2 for line in lines)


def test_the_text_output_has_the_reasons_of_skips() -> None:
    results = Results("prod")
    results.passed, results.failed = 3, ["test_a"]
    results.skipped.update({"no server": 1, "rename: it has no call for that": 2})
    assert results.to_text().splitlines() == [
        "prod: 3 cases passed, 1 failed, 3 skipped",
        "     2 skipped: rename: it has no call for that",
        "     1 skipped: no server",
    ]


def test_features_are_missing_for_the_reasons_that_the_catalog_gives() -> None:
    target = command._target(kit_options.parse(["unity", "-p", "host=http://127.0.0.1:9"]))
    assert "no call that changes a table" in target.lacks("alter")
    assert "within their schema" in target.lacks("rename_across")
    assert "a Target of your own" in target.lacks("stop_server")
    assert target.lacks("register") == ""


# -- what is tried before the first case, of which nothing is left behind --------------------------


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


def refuse(server: MemoryServer, change: str) -> None:
    """Have the server refuse changes whose names begin so."""

    def fault(name: str, _moment: str) -> None:
        if name.startswith(change):
            raise PermissionDeniedError("not here")

    server.fault = fault


@pytest.mark.parametrize(
    ("owner", "refused", "root", "said"),
    [
        ("its owner makes them", "", "lake", ["its owner makes them"]),
        ("", "create_namespace", "lake", ["no namespace can be made under eu.shop: not here"]),
        ("", "", None, ["without a location", "-p root="]),
        ("", "", "file", ["a table cannot be made"]),
    ],
    ids=["no changes of namespaces", "no right", "no place", "a place that cannot be written"],
)
def test_a_catalog_in_which_no_table_can_be_made_is_refused_and_left_as_it_was(
    runs: list[object],
    server: MemoryServer,
    capsys: pytest.CaptureFixture[str],
    tmp_path: Path,
    *,
    owner: str,
    refused: str,
    root: str | None,
    said: list[str],
) -> None:
    (tmp_path / "file").touch()
    before = dict(server.namespaces)
    server.capabilities = replace(CAPABILITIES, no_namespace_changes=owner)
    if refused:
        refuse(server, refused)
    assert in_memory(*(["-p", f"root={tmp_path / root}"] if root else [])) == 1
    message = capsys.readouterr().err
    assert all(each in message for each in said), message
    assert (server.namespaces, server.tables, runs) == (before, {}, [])
    assert left_in(tmp_path) == ["file"]


@pytest.mark.usefixtures("runs")
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
    refuse(server, "drop")
    assert in_memory("-p", f"root={tmp_path / 'lake'}") == 1
    message = capsys.readouterr().err
    assert "could not be removed" in message
    [left] = [path for path in server.namespaces if path[:2] == PARENT and len(path) == 3]
    assert ".".join(left) in message
    assert runs == []


@pytest.mark.usefixtures("runs")
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
