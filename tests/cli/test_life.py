"""The program as a process: Ctrl-C, completion, its metastore, and commands of entry points."""

from __future__ import annotations

import logging
import os
import socket
import subprocess
from importlib import metadata
from pathlib import Path

import lance
import pyarrow as pa
import pytest
import typer
from servers.processes import free_port, wait_until
from typer.testing import CliRunner

from lance_bridge_cli.app import app
from lance_bridge_cli.groups import ENTRY_POINTS, ProgramGroup

from .conftest import Lake
from .running import PROGRAM, program, run, started

pytestmark = pytest.mark.spec("cli.md#completion")


FRAGMENTS = 400


@pytest.mark.spec("cli.md#commands")
@pytest.mark.quick
def test_the_version_is_that_of_the_package() -> None:
    assert run("--version").stdout == f"lance-bridge {metadata.version('lance-bridge')}\n"


@pytest.mark.servers
@pytest.mark.spec("cli.md#ctrl-c")
def test_ctrl_c_ends_a_command_that_waits_for_a_server() -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        uri = f"uri=thrift://127.0.0.1:{silent.getsockname()[1]}"
        with started("doctor", "hive", "-p", uri) as running:
            silent.settimeout(60)
            connection, _ = silent.accept()
            with connection:
                assert connection.recv(1)  # it has asked, and waits
                code, out, error = running.interrupt()
    assert (code, out) == (130, "")
    assert "Traceback" not in error


@pytest.mark.spec("cli.md#ctrl-c")
@pytest.mark.servers
def test_ctrl_c_while_a_table_is_compacted_leaves_it_whole(lake: Lake) -> None:
    name = lake.create("orders", pa.table({"id": [0]}))
    place = str(lake.place("orders"))
    more = pa.table({"id": range(1, FRAGMENTS)})
    lance.write_dataset(more, place, mode="append", max_rows_per_file=1, max_rows_per_group=1)
    before = lance.dataset(place)
    data = Path(place, "data")
    files = len(list(data.iterdir()))
    command = ["maintain", "compact", "prod", name, "--target-rows", "2"]
    with started(*command) as running:
        wait_until(lambda: len(list(data.iterdir())) > files)
        code, out, error = running.interrupt()
    assert (code, out) == (130, "")
    assert "Traceback" not in error
    after = lance.dataset(place)
    assert after.version == before.version
    assert after.count_rows() == FRAGMENTS
    run("maintain", "compact", "prod", name)
    assert len(lance.dataset(place).get_fragments()) == 1


@pytest.mark.spec("cli.md#commands")
@pytest.mark.quick
def test_a_command_that_cannot_be_imported_is_left_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "other-1.dist-info").mkdir()
    (tmp_path / "other-1.dist-info" / "METADATA").write_text("Name: other\nVersion: 1\n")
    points = f"[{ENTRY_POINTS}]\nbroken = there_is_no_such_module:app\n"
    (tmp_path / "other-1.dist-info" / "entry_points.txt").write_text(points)
    monkeypatch.syspath_prepend(str(tmp_path))
    assert "broken" in {each.name for each in metadata.entry_points(group=ENTRY_POINTS)}
    group, context = ProgramGroup(), typer.Context(typer.main.get_command(app))
    with caplog.at_level(logging.WARNING):
        assert group.get_command(context, "broken") is None
    assert "there_is_no_such_module" in caplog.text
    assert {"broken", "doctor", "metastore"} <= set(group.list_commands(context))
    assert group.get_command(context, "metastore").name == "metastore"


# -- completion ------------------------------------------------------------------------------------


def line(*words: str) -> dict[str, str]:
    """What bash gives to the program, to complete the last word."""
    return {
        "_LANCE_BRIDGE_COMPLETE": "complete_bash",
        "COMP_WORDS": " ".join(["lance-bridge", *words]),
        "COMP_CWORD": str(len(words)),
    }


def offered(*words: str) -> list[str]:
    """What bash is offered for the last word, by this process."""
    done = CliRunner().invoke(app, [], env=line(*words), prog_name="lance-bridge")
    assert done.exit_code == 0, done.output
    assert done.stderr == ""
    return done.stdout.split()


def completed(*words: str) -> list[str]:
    """What bash is offered for the last word."""
    done = subprocess.run(
        [PROGRAM],
        env={**os.environ, **line(*words)},
        capture_output=True,
        text=True,
        check=False,
        timeout=100,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.split()


@pytest.mark.quick
def test_catalogs_of_the_configuration_file_are_completed(config: Path) -> None:
    run("config", "set", "prod", "impl=hive", "uri=thrift://localhost:1")
    run("config", "set", "proof", "impl=glue")
    assert completed("table", "list", "pro") == ["prod", "proof"]
    assert completed("table", "li") == ["list"]
    config.write_text("not: [a, configuration")
    assert completed("table", "list", "hi") == ["hive"]


@pytest.mark.servers
def test_tables_and_namespaces_are_completed(lake: Lake) -> None:
    lake.create("orders")
    lake.create("orders_old")
    name = lake.database
    assert offered("table", "head", "prod", name[:-1]) == [f"{name}.orders", f"{name}.orders_old"]
    assert offered("table", "head", "prod", f"{name}.orders_") == [f"{name}.orders_old"]
    assert offered("ns", "describe", "prod", name) == [name]
    given = ["-p", f"uri={lake.metastore.uri}"]
    assert offered("table", "count", *given, "hive", f"{name}.orders_") == [f"{name}.orders_old"]


@pytest.mark.quick
@pytest.mark.usefixtures("config")
def test_an_unreachable_catalog_completes_nothing() -> None:
    run("config", "set", "prod", "impl=hive", f"uri=thrift://127.0.0.1:{free_port()}")
    assert offered("table", "head", "prod", "sales") == []
    assert offered("table", "head", "nothing", "sales") == []


@pytest.mark.quick
def test_migrations_are_completed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LANCE_BRIDGE_STATE", str(tmp_path))
    assert offered("migrate", "show", "2026") == []
    ids = ["20260101-120000-register-0a1b2c", "20260203-120000-copy-0a1b2c"]
    for each in ids:
        (tmp_path / "migrations" / each).mkdir(parents=True)
    assert offered("migrate", "show", "2026") == ids[::-1]
    assert offered("migrate", "report", "202602") == ids[1:]


@pytest.mark.quick
def test_show_completion_prints_the_shells_script() -> None:
    done = program(
        "--show-completion",
        "bash",
        environment={"_TYPER_COMPLETE_TEST_DISABLE_SHELL_DETECTION": "1"},
    )
    assert "_LANCE_BRIDGE_COMPLETE" in done.stdout
