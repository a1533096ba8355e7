"""The documentation site: which pages it has, where their links lead, and what fails a build."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from lance_namespace import LanceNamespace

from lance_bridge_server.operations import OPERATIONS
from website import __main__ as site
from website import pages
from website.links import broken_links
from website.pages import PAGES, render
from website.reference import GENERATED, commands, properties
from website.rest import routes

from .gateway_pages import REPOSITORY
from .test_specs_of_apps import first_cells

pytestmark = pytest.mark.checks

CONFIGURATION = (REPOSITORY / "website" / "zensical.toml").read_text(encoding="utf-8")

ENVIRONMENT = REPOSITORY / ".cache" / "docs"
"""`make docs` makes it. That builds the site, and fails on a warning."""


def test_every_page_is_in_the_navigation_once() -> None:
    shown = re.findall(r'= "([\w./-]+\.md)"', CONFIGURATION)
    assert sorted(shown) == sorted([*PAGES.values(), *GENERATED])


def test_links_lead_to_pages_and_others_become_text_or_lead_to_sources(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(pages, "_source_address", lambda: "")
    guide, architecture = render("docs/write-a-catalog.md"), render("docs/architecture.md")
    assert "](reference/managed.md)" in guide
    assert "](examples/sqlite-catalog.md)" in guide
    assert "](../reference/hive.md)" in render("docs/how-to/hive.md")
    assert "](overview.svg)" in render("README.md")
    assert "1. `namespace.py`: `LanceBridgeNamespace`" in architecture
    assert not re.search(r"\]\(\.\./(?:core|adapters|apps|tests)/", guide + architecture)
    address = "https://example.com/lance-bridge/blob/main"
    monkeypatch.setattr(pages, "_source_address", lambda: address)
    text = render("docs/architecture.md")
    assert f"[`namespace.py`]({address}/core/lance_bridge/namespace.py)" in text


def test_pages_leave_out_contents_and_names_of_tests_and_show_sources_of_the_example() -> None:
    text = "".join(map(render, PAGES))
    assert "<!--" not in re.sub(r"```.*?```|`[^`]*`", "", text, flags=re.DOTALL)
    assert "def test_" not in render("docs/write-a-catalog.md")

    page = render("examples/sqlite-catalog/README.md")
    assert "## src/lance_catalog_sqlite/catalog.py\n\n```python\n" in page
    assert "class SqliteCatalog(Catalog):" in page


def test_generated_pages_have_every_property_command_and_operation() -> None:
    for key in ("`root`", "`uri`", "`catalog_id`", "`warehouse_id`"):
        assert properties().count(f"| {key} |") == 1
    page = commands()
    listed = [*first_cells("Commands", "command"), "migrate convert"]
    assert [name for name in listed if f"\n## {name}\n" not in page] == []


def test_the_page_of_routes_has_what_each_takes_and_answers() -> None:
    page = routes()
    sections = dict(re.findall(r"^### ([a-z_]+)\n(.*?)(?=^##)", page, re.MULTILINE | re.DOTALL))
    assert {name for name in sections if not hasattr(LanceNamespace, name)} == set()
    assert {each.name for each in OPERATIONS} == set(sections)
    for operation in OPERATIONS:
        assert f"- `{operation.method} {operation.path}`" in sections[operation.name]
    create, describe = sections["create_table"], sections["describe_table"]
    assert re.search(r"^\| `mode` \| query \| string ", create, re.MULTILINE)
    assert re.search(r"^\| `version` \| int \| {2}\| Version of the table", describe, re.MULTILINE)
    assert re.search(r"^\| `location` \| str ", describe, re.MULTILINE)
    assert "| 404 | " in page
    assert "`GET /ui/rows/{path}`" in page
    assert "`GET /readyz`" in page


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


def test_what_is_loaded_from_another_site_is_found(tmp_path: Path) -> None:
    outside = "https://cdn.example.com/x"
    links = f'<a href="{outside}"></a><link rel="canonical" href="{outside}">'
    (tmp_path / "good.html").write_text(links)
    (tmp_path / "bad.html").write_text(
        f'<script src="{outside}.js"></script><link rel="stylesheet" href="{outside}.css">'
    )
    assert list(broken_links(tmp_path)) == [
        f"bad.html: it is loaded from another site: {outside}.{each}" for each in ("js", "css")
    ]


@pytest.mark.slow
@pytest.mark.skipif(not (ENVIRONMENT / ".complete").exists(), reason="make docs has not run")
def test_a_page_with_a_broken_link_fails_the_build(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(site, "GENERATED", {"bad.md": lambda: "# Bad\n\n[link](start.md#no)\n"})
    monkeypatch.setattr(site, "PAGES", {"docs/start.md": "start.md"})
    [complaint] = site.build(tmp_path / "site", str(ENVIRONMENT / "bin" / "python"))
    assert "bad.md" in complaint
