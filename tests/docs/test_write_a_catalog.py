"""``docs/write-a-catalog.md`` shows parts of the example, which is used, and passes the kit.

copier makes a package of ``examples/catalog-template`` whose methods are to be written.
"""

from __future__ import annotations

import os
import re
import shlex
import sys
from configparser import ConfigParser
from importlib import import_module
from pathlib import Path

import pytest
from commands import run_command
from copier import run_copy

from lance_bridge import Catalog, registry

from .specs import REPOSITORY, Spec

pytestmark = pytest.mark.checks

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
    given = {**os.environ, "PYTHONPATH": os.pathsep.join(map(str, places)), **variables}
    words = [sys.executable, *arguments]
    return run_command(*words, code=code, seconds=seconds, cwd=directory, env=given).stdout


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A directory of packages in which the example is installed."""
    target = tmp_path_factory.mktemp("installed")
    options = ["--quiet", "--no-deps", "--no-build-isolation", "--disable-pip-version-check"]
    command = [sys.executable, "-m", "pip", "install", *options, "--target", target]
    run_command(*command, EXAMPLE)
    return target


def test_every_part_that_is_shown_is_the_examples_own() -> None:
    assert len(PARTS) > 5
    assert [part for part in PARTS if not any(part in source for source in SOURCES)] == []


def test_every_file_that_is_named_exists() -> None:
    [tree] = GUIDE.snippets("text")
    top, *rows = tree.splitlines()
    named = [row.split()[0] for row in rows]
    assert top == f"{EXAMPLE.name}/"
    assert len(named) == 4
    assert [path for path in named if not (EXAMPLE / path).is_file()] == []


@pytest.mark.spec("docs/write-a-catalog.md#use-it")
def test_the_example_is_used_as_it_is_written(installed: Path, tmp_path: Path) -> None:
    printed = run(installed, "-c", USE.replace("/tmp/", f"{tmp_path}/"))
    assert re.findall(r"^print\(.*\)  # (.*)$", USE, re.MULTILINE) == printed.splitlines()


@pytest.mark.spec("docs/write-a-catalog.md#run-the-kit")
@pytest.mark.documents
def test_the_example_passes_the_kit(tmp_path: Path) -> None:
    options = ("-c", str(EXAMPLE / "pyproject.toml"), "-p", "no:cacheprovider", "-q")
    printed = run(tmp_path, "-m", "pytest", *options, str(EXAMPLE / "tests"), seconds=800)
    assert int(re.findall(r"(\d+) passed", printed)[-1]) > 290


@pytest.mark.spec("docs/write-a-catalog.md#run-the-kit")
@pytest.mark.documents
def test_the_installed_example_passes_groups_of_the_kit(installed: Path, tmp_path: Path) -> None:
    command = shlex.split(KIT.replace("/tmp/", f"{tmp_path}/"))[1:]
    assert " 0 failed" in run(installed, *command, "-k", "rename or managed", seconds=800)


@pytest.mark.spec("docs/write-a-catalog.md#the-package")
def test_the_entry_point_is_of_the_group_that_is_read() -> None:
    [shown] = GUIDE.snippets("toml")
    assert shown in (EXAMPLE / "pyproject.toml").read_text(encoding="utf-8")
    parser = ConfigParser()
    parser.read_string(shown)
    [section] = parser.sections()
    assert section == f'project.entry-points."{registry.GROUP}"'


@pytest.mark.spec("docs/write-a-catalog.md#what-is-public")
def test_public_modules_have_the_names_of_the_table() -> None:
    rows = GUIDE.rows("What is public", "module")
    assert len(rows) == 8
    for module, names, *_ in rows:
        exported = vars(import_module(module.strip("`")))
        shown = [name for name in re.findall(r"`(\w+)`", names) if name != "__all__"]
        assert [name for name in shown if name not in exported.get("__all__", exported)] == []


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


# -- the template ----------------------------------------------------------------------------------


TEMPLATE = REPOSITORY / "examples" / "catalog-template"
WRITTEN = '''"""The methods of the example."""

from lance_catalog_sqlite import SqliteCatalog
from lance_catalog_sqlite.database import Database


class DemoCatalog(SqliteCatalog):
    def __init__(self, uri: str, timeout: float) -> None:
        super().__init__(Database(uri, timeout))
'''


@pytest.fixture(scope="module")
def package(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What the command of the guide makes."""
    [command] = [line for line in COMMANDS if line.startswith("copier copy")]
    _, _, defaults, _, data, template, name = shlex.split(command)
    assert (defaults, data) == ("--defaults", "catalog=demo")
    target = tmp_path_factory.mktemp("template") / name
    run_copy(str(REPOSITORY / template), target, {"catalog": "demo"}, quiet=True, defaults=True)
    return target


def test_nothing_of_the_template_is_left(package: Path) -> None:
    files = [path for path in package.rglob("*") if path.is_file()]
    assert len(files) == 7
    texts = "".join(f"{path}\n{path.read_text(encoding='utf-8')}" for path in files)
    assert not re.search(r"\{\{|\{%|\.jinja", texts)


def test_every_method_of_the_port_without_a_default_is_to_be_written(package: Path) -> None:
    source = (package / "src" / "lance_catalog_demo" / "catalog.py").read_text(encoding="utf-8")
    unwritten = set(re.findall(r'raise _unwritten\("(\w+)"\)', source))
    written = {"capabilities", "describe_connection"}
    promised = {"commit_guard", "rename_table"}
    assert unwritten == Catalog.__abstractmethods__ - written | promised
    assert [name for name in written if f"def {name}(" not in source] == []


def test_it_passes_its_own_checks(package: Path) -> None:
    run(package, "-m", "ruff", "check", "--no-cache", ".")
    run(package, "-m", "ruff", "format", "--no-cache", "--check", ".")
    run(package, "-m", "mypy", "--cache-dir", os.devnull, "src", "tests")


@pytest.mark.spec("docs/write-a-catalog.md#the-package")
def test_the_first_failure_names_the_method_to_write(package: Path) -> None:
    assert "pytest -x" in COMMANDS
    printed = run(package, "-m", "pytest", "-x", "-p", "no:cacheprovider", code=1)
    assert (
        "NotImplementedError: Write DemoCatalog.create_namespace: lance_bridge.Catalog" in printed
    )


@pytest.mark.spec("docs/write-a-catalog.md#the-package")
@pytest.mark.documents
def test_with_its_methods_written_the_package_passes_its_own_tests(
    package: Path, tmp_path: Path
) -> None:
    catalog = package / "src" / "lance_catalog_demo" / "catalog.py"
    empty = catalog.read_text(encoding="utf-8")
    catalog.write_text(WRITTEN, encoding="utf-8")
    options = ("-m", "pytest", "-p", "no:cacheprovider")
    printed = run(package, *options, seconds=800, DEMO_URI=f"{tmp_path}/catalog.db")
    catalog.write_text(empty, encoding="utf-8")
    assert int(re.findall(r"(\d+) passed", printed)[-1]) > 100


@pytest.mark.parametrize("name", ["Demo", "1st", "a-b", ""])
def test_a_name_that_cannot_be_a_package_is_refused(name: str, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="catalog"):
        run_copy(str(TEMPLATE), tmp_path / "x", {"catalog": name}, quiet=True, defaults=True)
    assert not (tmp_path / "x" / "pyproject.toml").exists()
