"""``specs/adapters.md`` shows an adapter that works: it is used, and put through the kit."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from configparser import ConfigParser
from pathlib import Path

import pytest

from lance_bridge import Catalog, registry

from .spec_facts import DOCUMENTS

ADAPTERS_SPEC = DOCUMENTS["adapters"]
TEXT = ADAPTERS_SPEC.path.read_text(encoding="utf-8")
ADAPTER, USE = ADAPTERS_SPEC.snippets("python")


@pytest.fixture
def place(tmp_path: Path) -> Path:
    """A directory with the adapter in it, as the module that the text calls it."""
    (tmp_path / "sqlite_adapter.py").write_text(ADAPTER, encoding="utf-8")
    return tmp_path


def run(place: Path, *arguments: str, seconds: float = 100) -> subprocess.CompletedProcess[str]:
    """Run Python where the adapter can be imported."""
    return subprocess.run(
        [sys.executable, *arguments],
        cwd=place,
        env={**os.environ, "PYTHONPATH": os.pathsep.join([str(place), *sys.path])},
        capture_output=True,
        text=True,
        check=False,
        timeout=seconds,
    )


def command_for_the_kit(place: Path) -> list[str]:
    """The command that the text shows, with files in ``place``."""
    [command] = re.findall(r"^    python (-m lance_bridge\.testing .+)$", TEXT, re.MULTILINE)
    return str(command).replace("/tmp/", f"{place}/").split()


def test_the_example_is_used_as_it_is_written(place: Path) -> None:
    done = run(place, "-c", f"ROOT = {str(place / 'lake')!r}\n{USE}")
    assert done.returncode == 0, done.stderr
    assert re.findall(r"^print\(.*\)  # (.*)$", USE, re.MULTILINE) == done.stdout.splitlines()


@pytest.mark.slow
def test_the_example_passes_groups_of_the_kit(place: Path) -> None:
    done = run(place, *command_for_the_kit(place), "-k", "rename or managed")
    assert done.returncode == 0, done.stdout + done.stderr
    assert " 0 failed" in done.stdout


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_the_example_passes_the_kit(place: Path) -> None:
    done = run(place, *command_for_the_kit(place), seconds=800)
    assert done.returncode == 0, done.stdout + done.stderr


def test_the_entry_point_is_of_the_group_that_is_read() -> None:
    [shown] = ADAPTERS_SPEC.snippets("toml")
    parser = ConfigParser()
    parser.read_string(shown)
    [section] = parser.sections()
    assert section == f'project.entry-points."{registry.GROUP}"'
    assert dict(parser[section]) == {"sqlite": '"sqlite_adapter:SqliteNamespace"'}


def test_every_method_of_the_port_says_what_it_guarantees() -> None:
    """Errors are named, each with its code."""
    methods = [each for name, each in vars(Catalog).items() if callable(each) and name[0] != "_"]
    documented = [each.__doc__ or "" for each in methods]
    assert len(documented) > 15
    assert all(documented)
    raised = [part for text in documented for part in text.partition("Raises:")[2].splitlines()]
    named = [line for line in raised if re.match(r" {12}\w", line)]
    assert len(named) > 30
    assert [line for line in named if not re.match(r" {12}\w+Error: \(\d+\)", line)] == []
