"""The start of the program: what it imports before it knows what to do, and Ctrl-C until then."""

from __future__ import annotations

import importlib
import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

import lance_bridge
import lance_bridge_migrate as migrations
from lance_bridge_cli.app import GROUPS

pytestmark = pytest.mark.spec("cli.md#completion")


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


def start(program: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", program, *arguments],
        capture_output=True,
        text=True,
        check=False,
        timeout=100,
    )


def in_turn(*commands: tuple[list[str], dict[str, str]]) -> Iterator[tuple[int, str, set[str]]]:
    """Run commands, each with its environment, in one process.

    Yields:
        The exit code of each, what it printed, and all modules that are imported by then.
    """
    done = start(IN_TURN, json.dumps(commands))
    assert (done.returncode, done.stderr) == (0, "")
    for (arguments, _), line in zip(commands, done.stdout.splitlines(), strict=True):
        code, printed, modules = json.loads(line)
        assert "lance_bridge_cli" in modules, arguments
        yield code, printed, set(modules)


@pytest.mark.quick
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


@pytest.mark.quick
def test_completion_imports_no_heavy_library() -> None:
    offered = {
        "lance-bridge met": "metastore",
        "lance-bridge ser": "serve",
        "lance-bridge doctor hi": "hive",
        "lance-bridge table he": "head",
        "lance-bridge ns list hi": "hive",
        "lance-bridge migrate conv": "convert",
        "lance-bridge maintain clean": "clean-up",
        "lance-bridge catalogs te": "test",
        "lance-bridge config sh": "show",
    }
    commands: list[tuple[list[str], dict[str, str]]] = []
    for line in offered:
        words = {"COMP_WORDS": line, "COMP_CWORD": str(len(line.split()) - 1)}
        commands.append(([], {"_LANCE_BRIDGE_COMPLETE": "complete_bash", **words}))
    found = in_turn(*commands)
    for (line, expected), (_, printed, imported) in zip(offered.items(), found, strict=True):
        assert printed.split() == [expected], line
        assert imported & set(HEAVY) == set(), line


@pytest.mark.quick
def test_a_command_loads_no_entry_point_of_another() -> None:
    others = {f"lance_bridge_{each}" for each in ("doctor", "federated", "metastore", "spark")}
    for code, _, imported in in_turn((["table", "--help"], {}), (["ns", "list", "--help"], {})):
        assert code == 0
        assert not imported & others


@pytest.mark.spec("cli.md#ctrl-c")
@pytest.mark.quick
@pytest.mark.parametrize("module", ["typer", "lance_namespace"])
def test_ctrl_c_while_it_starts_ends_it_without_a_traceback(module: str) -> None:
    done = start(INTERRUPTED.format(module=module), "catalogs", "list")

    assert done.returncode == 130, done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.quick
def test_every_public_name_can_be_imported() -> None:
    found = {name: getattr(lance_bridge, name) for name in lance_bridge.__all__}

    assert set(found) <= set(dir(lance_bridge))
    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        _ = lance_bridge.nothing


@pytest.mark.quick
def test_importing_the_package_imports_no_heavy_library() -> None:
    done = start("import sys, lance_bridge; print(*sys.modules)")

    loaded = set(done.stdout.split())
    assert not loaded & {*HEAVY, "pydantic", "yaml", "importlib.metadata"}, done.stderr
    ours = {each for each in loaded if each.startswith("lance_bridge.")}
    assert ours == set()


@pytest.mark.quick
def test_every_public_name_of_migrations_is_found_when_its_module_is_imported_already() -> None:
    names = set(migrations.__all__)
    importlib.import_module("lance_bridge_migrate.run")

    assert names <= set(dir(migrations))
    assert all(callable(getattr(migrations, name)) for name in names)
    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        _ = migrations.nothing


@pytest.mark.slow
def test_start_up_is_measured_against_python_and_lance_namespace() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "bench", "start", "--rounds", "1", "--output", "json"],
        cwd=Path(__file__).parents[2],
        capture_output=True,
        text=True,
        check=False,
        timeout=250,
    )
    report = json.loads(done.stdout)
    rows = {each["name"]: each for each in report["starts"]}
    assert done.returncode == bool(report["missed"]), done.stderr
    assert rows["python -c pass"]["to_pass"] == 1
    assert rows["import lance_bridge"]["to_interface"] < 1
    assert {"lance-bridge --help", "lance-bridge migrate --help", "a worker of Spark"} <= set(rows)
