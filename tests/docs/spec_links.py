"""Which tests show which section of a document: the marker `spec`, and the table of the kit.

A section is named by its document and its anchor: ``common.md#createnamespace`` in ``specs/``, and
``docs/write-a-catalog.md#paging`` elsewhere. Files are parsed, and no test is imported.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from .spec_facts import DOCUMENTS, REPOSITORY
from .spec_reader import Spec

TESTS = REPOSITORY / "tests"
KIT = REPOSITORY / "core" / "lance_bridge" / "testing"
KIT_TABLE = Path(__file__).with_name("kit_links.txt")
MARKER = "pytest.mark.spec"
_DEFINITIONS = ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef


@dataclass(frozen=True)
class Link:
    """A test that shows a section."""

    section: str
    file: Path
    name: str
    """Of the function or class; empty for all tests of the file."""

    def __str__(self) -> str:
        return f"{self.file.relative_to(REPOSITORY)}::{self.name} ({self.section})"


@cache
def links() -> tuple[Link, ...]:
    """Return the links of all tests and of all cases of the kit."""
    marked = [path for path in sorted(TESTS.rglob("*.py")) if MARKER in path.read_text("utf-8")]
    return (*(link for path in marked for link in links_in(path)), *links_of_kit())


def links_in(path: Path) -> Iterator[Link]:
    """Yield the links of a file's markers: on functions, classes and the module."""
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, _DEFINITIONS):
            for decorator in node.decorator_list:
                yield from (Link(each, path, node.name) for each in _sections(decorator))
        elif isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "pytestmark":
            yield from (Link(each, path, "") for each in _sections(node.value))


def _sections(expression: ast.expr) -> Iterator[str]:
    for node in ast.walk(expression):
        if isinstance(node, ast.Call) and ast.unparse(node.func) == MARKER:
            yield from (ast.literal_eval(argument) for argument in node.args)


def links_of_kit() -> Iterator[Link]:
    """Yield the links of the table of the kit's cases."""
    for line in KIT_TABLE.read_text(encoding="utf-8").splitlines():
        if not line.startswith("#"):
            case, *sections = line.split()
            module, _, name = case.rpartition("/")
            yield from (Link(each, KIT / f"{module}.py", name) for each in sections)


def names_used_for(section: str) -> dict[Path, set[str]]:
    """Return the attributes and strings in the tests that show a section, by file."""
    found: dict[Path, set[str]] = {}
    for link in links():
        if link.section == section:
            found.setdefault(link.file, set()).update(_names_used(link.file, link.name))
    return found


@cache
def _names_used(path: Path, test: str) -> frozenset[str]:
    tree = ast.parse(path.read_text(encoding="utf-8"))
    definitions = [each for each in ast.walk(tree) if isinstance(each, _DEFINITIONS)]
    parts = [each for each in definitions if each.name == test] if test else [tree]
    nodes = [node for part in parts for node in ast.walk(part)]
    attributes = {each.attr for each in nodes if isinstance(each, ast.Attribute)}
    constants = {each.value for each in nodes if isinstance(each, ast.Constant)}
    return frozenset(attributes | {each for each in constants if isinstance(each, str)})


def document_of(section: str) -> Spec | None:
    """Return the document that a link names; None if it does not exist."""
    name, _, _ = section.partition("#")
    path = REPOSITORY / name
    if name.removesuffix(".md") in DOCUMENTS:
        return DOCUMENTS[name.removesuffix(".md")]
    return Spec(path) if name.startswith("docs/") and path.is_file() else None
