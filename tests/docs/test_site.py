"""The documentation site: which pages it has, where their links lead, and what fails a build."""

from __future__ import annotations

import re
import sys
from pathlib import Path

import pytest
from lance_namespace import LanceNamespace

from website import building
from website.links import broken_links
from website.pages import PAGES, render
from website.reference import GENERATED, commands, properties, routes

from .gateway_pages import REPOSITORY
from .test_cli_spec import first_cells

CONFIGURATION = (REPOSITORY / "website" / "zensical.toml").read_text(encoding="utf-8")

needs_zensical = pytest.mark.skipif(
    sys.version_info < (3, 11), reason="Zensical needs Python 3.11 or later"
)


def test_every_page_is_in_the_navigation_once() -> None:
    shown = re.findall(r'= "([\w./-]+\.md)"', CONFIGURATION)
    assert sorted(shown) == sorted([*PAGES.values(), *GENERATED])


def test_links_lead_to_pages_and_others_become_text() -> None:
    guide, architecture = render("docs/write-a-catalog.md"), render("docs/architecture.md")
    assert "](reference/operations.md#implementation-managed-tables)" in guide
    assert "](examples/sqlite-catalog.md)" in guide
    assert "](../reference/hive.md)" in render("docs/how-to/hive.md")
    assert "](overview.svg)" in render("docs/index.md")
    assert "1. `namespace.py`: `LanceBridgeNamespace`" in architecture
    assert not re.search(r"\]\(\.\./(?:core|adapters|apps|tests)/", guide + architecture)


def test_contents_and_names_of_tests_are_left_out() -> None:
    pages = "".join(map(render, PAGES))
    assert "<!--" not in re.sub(r"```.*?```|`[^`]*`", "", pages, flags=re.DOTALL)
    assert "def test_" not in render("docs/write-a-catalog.md")


def test_the_example_is_shown_with_its_sources() -> None:
    page = render("examples/sqlite-catalog/README.md")
    assert "## src/lance_catalog_sqlite/catalog.py\n\n```python\n" in page
    assert "class SqliteCatalog(Catalog):" in page


def test_generated_pages_have_every_property_command_and_operation() -> None:
    for key in ("`root`", "`uri`", "`catalog_id`", "`warehouse_id`"):
        assert properties().count(f"| {key} |") == 1
    page = commands()
    listed = [*first_cells("Commands", "command"), "migrate convert"]
    assert [name for name in listed if f"\n## {name}\n" not in page] == []
    missing = [
        name
        for name in re.findall(r"^\| (\w+) \| `[A-Z]+ /v1/", routes(), re.MULTILINE)
        if not hasattr(LanceNamespace, re.sub(r"(?<!^)(?=[A-Z])", "_", name).lower())
    ]
    assert missing == []


@pytest.mark.parametrize(
    "link", ["missing.html", "other.html#missing", "#missing", "folder/", "/nowhere"]
)
def test_a_link_that_leads_nowhere_is_found(link: str, tmp_path: Path) -> None:
    (tmp_path / "other.html").write_text('<h1 id="there">There</h1>')
    good = "<a href='other.html#there'></a><a href='https://example.com/x'></a><p id='here'>"
    page = tmp_path / "page.html"
    page.write_text(f"{good}<a href='#here'></a>")
    assert list(broken_links(tmp_path)) == []
    (tmp_path / "bad.html").write_text(f"<a href='{link}'></a>")
    assert list(broken_links(tmp_path)) == [f"bad.html: a link leads nowhere: {link}"]


@pytest.mark.slow
@needs_zensical
def test_the_site_is_built_without_a_warning(tmp_path: Path) -> None:
    assert building.build(tmp_path / "site") == []
    pages = list((tmp_path / "site" / "html").rglob("index.html"))
    assert len(pages) == len(PAGES) + len(GENERATED)


@pytest.mark.slow
@needs_zensical
def test_a_page_with_a_broken_link_fails_the_build(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(building, "GENERATED", {"bad.md": lambda: "# Bad\n\n[link](start.md#no)\n"})
    monkeypatch.setattr(building, "PAGES", {"docs/start.md": "start.md"})
    [complaint] = building.build(tmp_path / "site")
    assert "bad.md" in complaint
