"""Every marker `spec` names a section that exists, and every section of a spec has a test."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from .spec_facts import DOCUMENTS, REPOSITORY, SPECS
from .spec_links import KIT, MARKER, Link, document_of, links, links_in, links_of_kit
from .spec_reader import Spec, anchor_of

pytestmark = pytest.mark.checks

NOT_SHOWN = {
    "Background": "introduces what others made",
    "What Was Tested": "is about tests",
    "Limits and Known Deviations": "says what cannot be done",
    "migration.md#limits": "says what cannot be done",
    "migration.md#speed": "has figures of make bench-migrate",
    "operations.md#memory": "has figures of make bench",
    "spark.md#parts": "is an overview",
    "clients.md#clients-of-directories-and-rest-only": "says what other clients cannot do",
    "clients.md#lance-namespace-impls": "says what another package cannot do",
}
"""Sections without a test, with the reason: a title in every spec, or one section."""


def sections(spec: Spec) -> Iterator[tuple[str, str]]:
    """Yield title and name of each section with a text of its own.

    The title of the document is none, nor is a heading above others, which introduces those.
    """
    following = [level for level, _ in spec.headings[1:]] + [0]
    for (level, title), next_level in zip(spec.headings, following, strict=True):
        if level > 1 and next_level <= level and spec.body(title).strip():
            yield title, f"{spec.path.name}#{anchor_of(title)}"


ALL = {name: title for spec in DOCUMENTS.values() for title, name in sections(spec)}
NEED_NONE = {name for name, title in ALL.items() if {name, title} & {*NOT_SHOWN}}
SHOWN = {link.section for link in links()}


def test_a_test_names_sections_that_exist() -> None:
    assert [str(link) for link in links() if not exists(link)] == []


def exists(link: Link) -> bool:
    document = document_of(link.section)
    return document is not None and link.section.partition("#")[2] in document.anchors


def test_every_section_is_shown_by_a_test_or_needs_none() -> None:
    assert sorted({*ALL} - NEED_NONE - SHOWN) == []
    assert {*NOT_SHOWN} - {*ALL, *ALL.values()} == set()
    assert set() == NEED_NONE & SHOWN


def test_a_section_of_a_catalog_is_shown_by_no_test_of_another() -> None:
    for link in links():
        adapter = re.search(r"/tests/adapters/(\w+)/", str(link.file))
        catalog = link.section.partition(".md")[0]
        assert catalog not in SPECS or not adapter or adapter[1] == catalog, str(link)


def test_a_case_of_the_kit_exists_and_has_no_marker() -> None:
    for link in links_of_kit():
        assert f"def {link.name}(" in link.file.read_text(encoding="utf-8"), str(link)
    assert [path for path in KIT.rglob("*.py") if MARKER in path.read_text("utf-8")] == []


def test_markers_of_functions_classes_and_modules_are_found(tmp_path: Path) -> None:
    path = tmp_path / "test_it.py"
    path.write_text(
        'pytestmark = [pytest.mark.slow, pytest.mark.spec("a.md#a")]\n'
        '@pytest.mark.spec("b.md#b", "c.md#c")\nclass TestIt:\n'
        '    @pytest.mark.spec("d.md#d")\n    def test_it(self): ...\n',
        encoding="utf-8",
    )
    found = {(link.section, link.name) for link in links_in(path)}
    of_class = {("b.md#b", "TestIt"), ("c.md#c", "TestIt")}
    assert found == {("a.md#a", ""), *of_class, ("d.md#d", "test_it")}
    assert not exists(Link("common.md#no-such-section", path, ""))
    assert not exists(Link("no-such.md#names", path, ""))
    assert exists(Link("docs/write-a-catalog.md#what-is-public", REPOSITORY / "tests", ""))
