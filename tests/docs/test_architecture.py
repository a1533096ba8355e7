"""``docs/architecture.md`` names files that exist, and the packages of the import contract."""

from __future__ import annotations

import ast
import re

import pytest

from .spec_facts import REPOSITORY

pytestmark = pytest.mark.checks

DOCUMENT = REPOSITORY / "docs" / "architecture.md"
TEXT = DOCUMENT.read_text(encoding="utf-8")
FILES = dict(re.findall(r"^\[([\w-]+)\]: (\S+)$", TEXT, re.MULTILINE))
LABELS = [(label, key) for label, key in re.findall(r"\[`([^`]+)`\]\[([\w-]+)\]", TEXT)]


def test_every_file_that_is_named_exists() -> None:
    missing = [path for path in FILES.values() if not (DOCUMENT.parent / path).is_file()]

    assert len(FILES) > 30
    assert missing == []


def test_a_label_is_the_end_of_its_path() -> None:
    assert {key for _, key in LABELS} == set(FILES)
    assert [label for label, key in LABELS if not FILES[key].endswith(f"/{label}")] == []


def test_the_layers_are_those_of_the_import_contract() -> None:
    settings = (REPOSITORY / "pyproject.toml").read_text(encoding="utf-8")
    contract = re.findall(r"^layers = (\[.*?^\])", settings, re.MULTILINE | re.DOTALL)[0]
    layers = [layer.split(" | ") for layer in ast.literal_eval(contract)]
    picture = (REPOSITORY / "docs" / "layers.svg").read_text(encoding="utf-8")
    drawn = re.findall(r'y="(\d+)" font-weight="bold">(lance_bridge\w*)<', picture)
    lines = sorted({int(y) for y, _ in drawn})

    assert len(lines) == len(layers)
    for y, names in zip(lines, layers, strict=True):
        assert sorted(name for at, name in drawn if int(at) == y) == sorted(names)


def test_no_page_has_a_diagram_that_a_browser_must_load_a_script_for() -> None:
    pages = [*REPOSITORY.glob("*.md"), *(REPOSITORY / "specs").glob("*.md")]
    pages += [*(REPOSITORY / "docs").rglob("*.md"), *(REPOSITORY / "examples").rglob("*.md")]
    assert len(pages) > 30
    assert [page.name for page in pages if "```mermaid" in page.read_text(encoding="utf-8")] == []
