"""``docs/architecture.md`` names files that exist, and the packages of the import contract."""

from __future__ import annotations

import ast
import re

from .spec_facts import REPOSITORY

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
    height = {name: -level for level, names in enumerate(layers) for name in names}
    [diagram] = re.findall(r"```mermaid\n(.*?)```", TEXT, re.DOTALL)
    packages = dict(re.findall(r"(\w+)\[(lance_bridge\w*)[\]:]", diagram))
    arrows = re.findall(r"(\w+)(?:\[[^\]]*\])? --> (\w+)", diagram)
    between = [
        (packages[above], packages[below])
        for above, below in arrows
        if above in packages and below in packages
    ]

    assert set(packages.values()) == set(height)
    assert len(between) > 8
    assert [(a, b) for a, b in between if height[a] <= height[b]] == []
