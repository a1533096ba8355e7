"""``docs/write-a-catalog.md`` shows parts of the example, which is used, and passes the kit."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
from configparser import ConfigParser
from importlib import import_module
from pathlib import Path

import pytest

from lance_bridge import Catalog, registry

from .spec_facts import REPOSITORY
from .spec_reader import Spec

EXAMPLE = REPOSITORY / "examples" / "sqlite-catalog"
SOURCES = [path.read_text(encoding="utf-8") for path in sorted(EXAMPLE.rglob("*.py"))]
GUIDE = Spec(REPOSITORY / "docs" / "write-a-catalog.md")
TEXT = GUIDE.path.read_text(encoding="utf-8")
PARTS = [each for each in GUIDE.snippets("python") if not each.startswith("import ")]
[USE] = [each for each in GUIDE.snippets("python") if each.startswith("import ")]
COMMANDS = [line for block in GUIDE.snippets("sh") for line in block.splitlines()]
[KIT] = [each for each in GUIDE.snippets("sh") if "lance_bridge.testing" in each]


def run(
    directory: Path, *arguments: str, code: int = 0, seconds: float = 200, **variables: str
) -> str:
    """Run Python where the example can be imported, and a package here; return what it printed."""
    places = [directory, directory / "src", EXAMPLE / "src", *sys.path]
    done = subprocess.run(
        [sys.executable, *arguments],
        cwd=directory,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(map(str, places)), **variables},
        capture_output=True,
        text=True,
        check=False,
        timeout=seconds,
    )
    assert done.returncode == code, done.stdout + done.stderr
    return done.stdout


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A directory of packages in which the example is installed."""
    target = tmp_path_factory.mktemp("installed")
    options = ["--quiet", "--no-deps", "--no-build-isolation", "--disable-pip-version-check"]
    command = [sys.executable, "-m", "pip", "install", *options, "--target", str(target)]
    subprocess.run([*command, str(EXAMPLE)], check=True)
    return target


@pytest.mark.checks
def test_every_part_that_is_shown_is_the_examples_own() -> None:
    assert len(PARTS) > 5
    assert [part for part in PARTS if not any(part in source for source in SOURCES)] == []


@pytest.mark.checks
def test_every_file_that_is_named_exists() -> None:
    [tree] = GUIDE.snippets("text")
    top, *rows = tree.splitlines()
    named = [row.split()[0] for row in rows]
    assert top == f"{EXAMPLE.name}/"
    assert len(named) == 4
    assert [path for path in named if not (EXAMPLE / path).is_file()] == []


@pytest.mark.spec("docs/write-a-catalog.md#use-it")
@pytest.mark.checks
def test_the_example_is_used_as_it_is_written(installed: Path, tmp_path: Path) -> None:
    printed = run(installed, "-c", USE.replace("/tmp/", f"{tmp_path}/"))
    assert re.findall(r"^print\(.*\)  # (.*)$", USE, re.MULTILINE) == printed.splitlines()


@pytest.mark.spec("docs/write-a-catalog.md#run-the-kit")
@pytest.mark.documents
@pytest.mark.timeout(900)
def test_the_example_passes_the_kit(tmp_path: Path) -> None:
    options = ("-c", str(EXAMPLE / "pyproject.toml"), "-p", "no:cacheprovider", "-q")
    printed = run(tmp_path, "-m", "pytest", *options, str(EXAMPLE / "tests"), seconds=800)
    assert int(re.findall(r"(\d+) passed", printed)[-1]) > 290


@pytest.mark.spec("docs/write-a-catalog.md#run-the-kit")
@pytest.mark.documents
@pytest.mark.timeout(900)
def test_the_installed_example_passes_groups_of_the_kit(installed: Path, tmp_path: Path) -> None:
    command = shlex.split(KIT.replace("/tmp/", f"{tmp_path}/"))[1:]
    assert " 0 failed" in run(installed, *command, "-k", "rename or managed", seconds=800)


@pytest.mark.spec("docs/write-a-catalog.md#the-package")
@pytest.mark.checks
def test_the_entry_point_is_of_the_group_that_is_read() -> None:
    [shown] = GUIDE.snippets("toml")
    assert shown in (EXAMPLE / "pyproject.toml").read_text(encoding="utf-8")
    parser = ConfigParser()
    parser.read_string(shown)
    [section] = parser.sections()
    assert section == f'project.entry-points."{registry.GROUP}"'


@pytest.mark.spec("docs/write-a-catalog.md#what-is-public")
@pytest.mark.checks
def test_public_modules_have_the_names_of_the_table() -> None:
    rows = GUIDE.rows("What is public", "module")
    assert len(rows) == 8
    for module, names, *_ in rows:
        exported = vars(import_module(module.strip("`")))
        shown = [name for name in re.findall(r"`(\w+)`", names) if name != "__all__"]
        assert [name for name in shown if name not in exported.get("__all__", exported)] == []


@pytest.mark.checks
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
