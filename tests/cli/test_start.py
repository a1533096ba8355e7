"""The start of the program: what it imports, its commands, and completion.

Before it knows what to do, it imports little, and Ctrl-C ends it without a traceback.
"""

from __future__ import annotations

import importlib
import json
import logging
import sys
from collections.abc import Iterator
from importlib import metadata
from pathlib import Path

import pytest
import typer
from commands import run_command
from servers.processes import free_port

import lance_bridge
import lance_bridge_migrate as migrations
from lance_bridge_cli.app import GROUPS, app
from lance_bridge_cli.groups import ENTRY_POINTS, ProgramGroup

from .running import COMMANDS, completion, examples, offered, program, run

pytestmark = [pytest.mark.quick, pytest.mark.spec("cli.md#completion", "cli.md#commands")]


HEAVY = (
    "lance_namespace", "lance", "pyarrow", "pandas", "boto3", "pyspark", "matplotlib", "thrift",
    "databricks", "obstore", "starlette", "uvicorn", "httpx", "joserfc",
)  # fmt: skip
IN_TURN = """
import io, json, os, sys
from contextlib import redirect_stdout
from lance_bridge_cli import main
for arguments, environment in json.loads(sys.argv.pop()):
    sys.argv[:] = ["lance-bridge", *arguments]
    os.environ |= environment
    code = None
    with redirect_stdout(io.StringIO()) as printed:
        try:
            main()
        except SystemExit as end:
            code = end.code
    print(json.dumps([code, printed.getvalue(), list(sys.modules)]))
"""
"""Runs commands in one process. What each has imported is there after the next one, too."""
INTERRUPTED = """
import sys
from pathlib import Path

class Finder:
    def find_spec(self, name, path=None, target=None):
        if name == {module!r}:
            raise KeyboardInterrupt

sys.meta_path.insert(0, Finder())
from lance_bridge_cli import main
sys.argv[0] = "lance-bridge"
main()
"""


def in_turn(*commands: tuple[list[str], dict[str, str]]) -> Iterator[tuple[int, str, set[str]]]:
    """Run commands, each with its environment, in one process.

    Yields:
        The exit code of each, what it printed, and all modules that are imported by then.
    """
    done = run_command(sys.executable, "-c", IN_TURN, json.dumps(commands))
    assert done.stderr == ""
    for (arguments, _), line in zip(commands, done.stdout.splitlines(), strict=True):
        code, printed, modules = json.loads(line)
        assert "lance_bridge_cli" in modules, arguments
        yield code, printed, set(modules)


def test_help_imports_no_heavy_library() -> None:
    lines = [
        "--help",
        "--version",
        "doctor --help",
        "serve --help",
        "keys --help",
        "keys add --help",
        *(f"{group} --help" for group, _, _ in GROUPS),
        "migrate --help",
        "migrate convert --help",
        "migrate verify --help",
        "maintain compact --help",
        "config set --help",
    ]
    found = in_turn(*((line.split(), {}) for line in lines))
    for line, (code, printed, imported) in zip(lines, found, strict=True):
        assert code == 0, line
        assert "lance-bridge" in printed, line
        assert imported & set(HEAVY) == set(), line


def test_completion_imports_no_heavy_library() -> None:
    expected = {
        "met": "metastore",
        "ser": "serve",
        "doctor hi": "hive",
        "table he": "head",
        "ns list hi": "hive",
        "migrate conv": "convert",
        "maintain clean": "clean-up",
        "catalogs te": "test",
        "config sh": "show",
    }
    found = in_turn(*(([], completion(*line.split())) for line in expected))
    for (line, word), (_, printed, imported) in zip(expected.items(), found, strict=True):
        assert printed.split() == [word], line
        assert imported & set(HEAVY) == set(), line


def test_a_command_loads_no_entry_point_of_another() -> None:
    others = {f"lance_bridge_{each}" for each in ("doctor", "federated", "metastore", "spark")}
    for code, _, imported in in_turn((["table", "--help"], {}), (["ns", "list", "--help"], {})):
        assert code == 0
        assert not imported & others


@pytest.mark.spec("cli.md#ctrl-c")
@pytest.mark.parametrize("module", ["typer", "lance_namespace"])
def test_ctrl_c_while_it_starts_ends_it_without_a_traceback(module: str) -> None:
    script = INTERRUPTED.format(module=module)
    done = run_command(sys.executable, "-c", script, "catalogs", "list", code=130)
    assert "Traceback" not in done.stderr


def test_every_public_name_can_be_imported() -> None:
    found = {name: getattr(lance_bridge, name) for name in lance_bridge.__all__}

    assert set(found) <= set(dir(lance_bridge))
    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        _ = lance_bridge.nothing


def test_importing_the_package_imports_no_heavy_library() -> None:
    done = run_command(sys.executable, "-c", "import sys, lance_bridge; print(*sys.modules)")
    loaded = set(done.stdout.split())
    assert not loaded & {*HEAVY, "pydantic", "yaml", "importlib.metadata"}, done.stderr
    ours = {each for each in loaded if each.startswith("lance_bridge.")}
    assert ours == set()


def test_every_public_name_of_migrations_is_found_when_its_module_is_imported_already() -> None:
    names = set(migrations.__all__)
    importlib.import_module("lance_bridge_migrate.run")

    assert names <= set(dir(migrations))
    assert all(callable(getattr(migrations, name)) for name in names)
    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        _ = migrations.nothing


def test_commands_are_found() -> None:
    assert len(COMMANDS) > 28
    assert {("doctor",), ("table", "drop"), ("metastore", "start")} <= set(COMMANDS)


def test_every_command_has_an_example_of_itself() -> None:
    for words in COMMANDS:
        found = examples(*words)
        assert found, words
        assert all(each.startswith(f"lance-bridge {' '.join(words)}") for each in found), words


def test_the_version_is_that_of_the_package() -> None:
    assert run("--version").stdout == f"lance-bridge {metadata.version('lance-bridge')}\n"


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


def test_catalogs_of_the_configuration_file_are_completed(config: Path) -> None:
    run("config", "set", "prod", "impl=hive", "uri=thrift://localhost:1")
    run("config", "set", "proof", "impl=glue")
    shown = program(environment=completion("table", "list", "pro")).stdout
    assert shown.split() == ["prod", "proof"]
    assert offered("table", "li") == ["list"]
    config.write_text("not: [a, configuration")
    assert offered("table", "list", "hi") == ["hive"]


@pytest.mark.usefixtures("config")
def test_an_unreachable_catalog_completes_nothing() -> None:
    run("config", "set", "prod", "impl=hive", f"uri=thrift://127.0.0.1:{free_port()}")
    assert offered("table", "head", "prod", "sales") == []
    assert offered("table", "head", "nothing", "sales") == []


def test_migrations_are_completed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LANCE_BRIDGE_STATE", str(tmp_path))
    assert offered("migrate", "show", "2026") == []
    ids = ["20260101-120000-register-0a1b2c", "20260203-120000-copy-0a1b2c"]
    for each in ids:
        (tmp_path / "migrations" / each).mkdir(parents=True)
    assert offered("migrate", "show", "2026") == ids[::-1]
    assert offered("migrate", "report", "202602") == ids[1:]


def test_show_completion_prints_the_shells_script() -> None:
    named = {"_TYPER_COMPLETE_TEST_DISABLE_SHELL_DETECTION": "1"}
    done = program("--show-completion", "bash", environment=named)
    assert "_LANCE_BRIDGE_COMPLETE" in done.stdout
