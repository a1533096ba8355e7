"""Documents: their headings, links and snippets, and the tests that comments in specs name.

Links work as GitHub reads them: each leads to a file and, with a fragment, to a heading.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator

import pytest

from .spec_facts import DOCUMENTS, REPOSITORY, SPECS
from .spec_reader import Spec, function_links, functions_in
from .spec_writer import GENERATED, render

LANGUAGES = {"python", "sql", "yaml", "toml", "sh", "cedar", "js", "text"}
OTHERS = {
    str(path.relative_to(REPOSITORY)): path
    for pattern in ("*.md", "docs/**/*.md", "*/README.md", "examples/*/README.md")
    for path in sorted(REPOSITORY.glob(pattern))
}
"""Documents besides those of ``specs/``."""
GUIDE = Spec(REPOSITORY / "docs" / "write-a-catalog.md")
WITH_TESTS = {**DOCUMENTS, GUIDE.name: GUIDE}
TESTS = ("tests/", "core/lance_bridge/testing/")
FEWEST_TESTS = {
    "write-a-catalog": 30,
    "cli": 61,
    "glue": 45,
    "hive": 45,
    "migration": 51,
    "spark": 101,
}
"""How many tests a document names at least, where it is not 60."""
_CODE = re.compile(r"^```.*?^```$|`[^`\n]*`", re.MULTILINE | re.DOTALL)
SHOWN = {
    "cli": ("What All Commands Share", "Groups"),
    "spark": ("Data Source", "SQL Catalog", "Functions", "Jobs"),
}
"""Headings whose every section names a test."""


def complaints(spec: Spec) -> Iterator[str]:
    """Yield what is wrong with a document."""
    text = spec.path.read_text(encoding="utf-8")
    headings = Counter(title for _, title in spec.headings)
    yield from (f"a heading is used twice: {title}" for title, n in headings.items() if n > 1)
    fences = re.findall(r"^```(\w*)$", text, re.MULTILINE)
    if {*fences[::2]} - LANGUAGES or {*fences[1::2]} - {""} or len(fences) % 2:
        yield f"a snippet has no end, or is of another language: {fences}"
    if "not yet shown" in " ".join(text.split()).lower():
        yield "a claim waits for its test"
    yield from bad_links(spec, text)
    yield from bad_references(spec, text)


def bad_links(spec: Spec, text: str) -> Iterator[str]:
    """Yield links that lead to no heading and to no file."""
    for link in re.findall(r"\]\(((?!https?:)[^)\s]+)\)", _CODE.sub("", text)):
        path, _, anchor = link.partition("#")
        file = (spec.path.parent / path).resolve() if path else spec.path
        anchors = Spec(file).anchors if anchor and file.is_file() else set()
        if not file.exists() or (anchor and anchor not in anchors):
            yield f"a link leads nowhere: {link}"


def bad_references(spec: Spec, text: str) -> Iterator[str]:
    """Yield tests that are named and do not exist, and sections that name none."""
    links = function_links(text)
    if len(links) < FEWEST_TESTS.get(spec.name, 60):
        yield f"only {len(links)} tests are named"
    yield from missing_tests(text)
    for _, path in links:
        adapter = re.match(r"tests/adapters/(\w+)/", path)
        if spec.name in SPECS and adapter and adapter[1] != spec.name:
            yield f"a test of another catalog: {path}"
    for section in (name for part in SHOWN.get(spec.name, ()) for name in spec.below(part)):
        if not function_links(spec.body(section)):
            yield f"no test is named: {section}"


def missing_tests(text: str) -> Iterator[str]:
    """Yield tests that are named and do not exist."""
    for name, path in function_links(text):
        if not path.startswith(TESTS) or not (REPOSITORY / path).is_file():
            yield f"not a file of tests: {path}"
        elif name not in functions_in(REPOSITORY / path):
            yield f"{path} has no {name}"


@pytest.mark.parametrize("name", WITH_TESTS)
def test_a_document_is_well_formed_and_names_tests_that_exist(name: str) -> None:
    assert list(complaints(WITH_TESTS[name])) == []


def test_sections_whose_tests_are_required_exist() -> None:
    assert all(DOCUMENTS[name].below(part) for name, parts in SHOWN.items() for part in parts)


@pytest.mark.parametrize("name", OTHERS)
def test_a_link_leads_to_a_file_or_a_heading(name: str) -> None:
    path = OTHERS[name]
    text = path.read_text(encoding="utf-8")
    assert list(bad_links(Spec(path), text)) == []
    assert list(missing_tests(_CODE.sub("", text))) == []


def test_generated_parts_are_as_make_specs_writes_them() -> None:
    stale = [path.name for path in GENERATED if render(path) != path.read_text(encoding="utf-8")]
    assert stale == []
