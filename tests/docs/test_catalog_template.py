"""``examples/catalog-template``: copier makes a package of it whose methods are to be written."""

from __future__ import annotations

import os
import re
import shlex
from pathlib import Path

import pytest
from copier import run_copy

from lance_bridge import Catalog

from .spec_facts import REPOSITORY
from .test_write_a_catalog import COMMANDS, run

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


@pytest.mark.checks
def test_nothing_of_the_template_is_left(package: Path) -> None:
    files = [path for path in package.rglob("*") if path.is_file()]
    assert len(files) == 7
    texts = "".join(f"{path}\n{path.read_text(encoding='utf-8')}" for path in files)
    assert not re.search(r"\{\{|\{%|\.jinja", texts)


@pytest.mark.checks
def test_every_method_of_the_port_without_a_default_is_to_be_written(package: Path) -> None:
    source = (package / "src" / "lance_catalog_demo" / "catalog.py").read_text(encoding="utf-8")
    unwritten = set(re.findall(r'raise _unwritten\("(\w+)"\)', source))
    written = {"capabilities", "describe_connection"}
    promised = {"commit_guard", "rename_table"}
    assert unwritten == Catalog.__abstractmethods__ - written | promised
    assert [name for name in written if f"def {name}(" not in source] == []


@pytest.mark.checks
def test_it_passes_its_own_checks(package: Path) -> None:
    run(package, "-m", "ruff", "check", "--no-cache", ".")
    run(package, "-m", "ruff", "format", "--no-cache", "--check", ".")
    run(package, "-m", "mypy", "--cache-dir", os.devnull, "src", "tests")


@pytest.mark.spec("docs/write-a-catalog.md#the-package")
@pytest.mark.checks
def test_the_first_failure_names_the_method_to_write(package: Path) -> None:
    assert "pytest -x" in COMMANDS
    printed = run(package, "-m", "pytest", "-x", "-p", "no:cacheprovider", code=1)
    assert (
        "NotImplementedError: Write DemoCatalog.create_namespace: lance_bridge.Catalog" in printed
    )


@pytest.mark.spec("docs/write-a-catalog.md#the-package")
@pytest.mark.documents
@pytest.mark.timeout(900)
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


@pytest.mark.checks
@pytest.mark.parametrize("name", ["Demo", "1st", "a-b", ""])
def test_a_name_that_cannot_be_a_package_is_refused(name: str, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="catalog"):
        run_copy(str(TEMPLATE), tmp_path / "x", {"catalog": name}, quiet=True, defaults=True)
    assert not (tmp_path / "x" / "pyproject.toml").exists()
