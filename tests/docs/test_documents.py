"""Documents and the site of them: headings, links, snippets, and what the pages name."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator
from importlib import metadata
from pathlib import Path

import lance_namespace as api
import pytest
from lance_namespace import LanceNamespace
from servers.glue_server import GlueServer
from servers.processes import run_command
from servers.unity import OPEN_SOURCE_0_6, UnityServer

import lance_bridge
from lance_bridge import kit_options
from lance_bridge_server.operations import OPERATIONS
from release.layers import settings
from website import __main__ as site
from website import pages, reference
from website.links import broken_links
from website.rest import routes

from .specs import DOCUMENTS, GENERATED, REPOSITORY, Spec, render

pytestmark = pytest.mark.checks

LANGUAGES = {"python", "sql", "yaml", "toml", "sh", "cedar", "js", "text"}
OTHERS = {
    str(path.relative_to(REPOSITORY)): path
    for pattern in ("*.md", "docs/**/*.md", "*/README.md", "examples/*/README.md")
    for path in sorted(REPOSITORY.glob(pattern))
}
"""Documents besides those of ``specs/``."""
GUIDE = Spec(REPOSITORY / "docs" / "write-a-catalog.md")
WELL_FORMED = {**DOCUMENTS, GUIDE.name: GUIDE}
_CODE = re.compile(r"^```.*?^```$|`[^`\n]*`", re.MULTILINE | re.DOTALL)
CONFIGURATION = (REPOSITORY / "website" / "zensical.toml").read_text(encoding="utf-8")
ENVIRONMENT = REPOSITORY / ".cache" / "docs"
"""`make docs` makes it. That builds the site, and fails on a warning."""


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
    if "<!-- tests:" in text:
        yield "a test says which section it shows, by the marker `spec`, and no comment does"
    yield from bad_links(spec, text)


def bad_links(spec: Spec, text: str) -> Iterator[str]:
    """Yield links that lead to no heading and to no file."""
    for link in re.findall(r"\]\(((?!https?:)[^)\s]+)\)", _CODE.sub("", text)):
        path, _, anchor = link.partition("#")
        file = (spec.path.parent / path).resolve() if path else spec.path
        anchors = Spec(file).anchors if anchor and file.is_file() else set()
        if not file.exists() or (anchor and anchor not in anchors):
            yield f"a link leads nowhere: {link}"


@pytest.mark.parametrize("name", WELL_FORMED)
def test_a_document_is_well_formed(name: str) -> None:
    assert list(complaints(WELL_FORMED[name])) == []


@pytest.mark.parametrize("name", OTHERS)
def test_a_link_leads_to_a_file_or_a_heading(name: str) -> None:
    path = OTHERS[name]
    text = path.read_text(encoding="utf-8")
    assert list(bad_links(Spec(path), text)) == []


def test_generated_parts_are_as_make_specs_writes_them() -> None:
    stale = [path.name for path in GENERATED if render(path) != path.read_text(encoding="utf-8")]
    assert stale == []


# -- docs/architecture.md --------------------------------------------------------------------------


DOCUMENT = REPOSITORY / "docs" / "architecture.md"
TEXT = DOCUMENT.read_text(encoding="utf-8")
FILES = dict(re.findall(r"^\[([\w-]+)\]: (\S+)$", TEXT, re.MULTILINE))
LABELS = [(label, key) for label, key in re.findall(r"\[`([^`]+)`\]\[([\w-]+)\]", TEXT)]


def test_a_label_is_the_end_of_its_path() -> None:
    assert {key for _, key in LABELS} == set(FILES)
    assert [label for label, key in LABELS if not FILES[key].endswith(f"/{label}")] == []


def test_the_layers_are_those_of_the_import_contract() -> None:
    contract = settings()["contracts"][0]
    layers = [layer.split(" | ") for layer in contract["layers"]]
    picture = (REPOSITORY / "docs" / "layers.svg").read_text(encoding="utf-8")
    drawn = re.findall(r'y="(\d+)" font-weight="bold">(lance_bridge\w*)<', picture)
    lines = sorted({int(y) for y, _ in drawn})

    assert len(lines) == len(layers)
    for y, names in zip(lines, layers, strict=True):
        assert sorted(name for at, name in drawn if int(at) == y) == sorted(names)


def test_no_page_has_a_diagram_that_a_browser_must_load_a_script_for() -> None:
    pages = [*OTHERS.values(), *(spec.path for spec in DOCUMENTS.values())]
    assert len(pages) > 30
    assert [page.name for page in pages if "```mermaid" in page.read_text(encoding="utf-8")] == []


# -- README.md and CONTRIBUTING.md -----------------------------------------------------------------


README = (REPOSITORY / "README.md").read_text(encoding="utf-8")
CONTRIBUTING = (REPOSITORY / "CONTRIBUTING.md").read_text(encoding="utf-8")
PAGES = {
    path.stem: path.read_text(encoding="utf-8")
    for path in sorted((REPOSITORY / "docs").rglob("*.md"))
}
URI = "thrift://metastore:9083"
UNITY = "http://unity:8080"
CONNECTED = dict(re.findall(r'\| `(lance_bridge\.connect\("(\w+)", .*\))` \|', README))
"""The line that connects, to the implementation."""


@pytest.mark.servers
def test_glue_and_unity_answer_as_the_readme_connects_to_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert set(CONNECTED.values()) == {"hive", "glue", "unity"}
    lines = {impl: line for line, impl in CONNECTED.items()}
    with GlueServer() as glue, UnityServer(OPEN_SOURCE_0_6) as unity:
        unity.add_catalog("lake")
        for key, value in glue.properties.items():
            monkeypatch.setenv(f"LANCE_BRIDGE_GLUE_{key.upper()}", value)
        for name in ("glue", "unity"):
            line = lines[name].replace(UNITY, unity.url)
            namespace = eval(line, {"lance_bridge": lance_bridge})
            namespace.create_namespace(api.CreateNamespaceRequest(id=["sales"]))
            assert namespace.list_namespaces(api.ListNamespacesRequest()).namespaces == ["sales"]
            place = f"{tmp_path}/{name}"
            namespace.declare_table(api.DeclareTableRequest(id=["sales", "t"], location=place))
            assert namespace.list_tables(api.ListTablesRequest(id=["sales"])).tables == ["t"]


def test_every_make_target_that_is_named_exists() -> None:
    text = "".join([README, CONTRIBUTING, *PAGES.values()])
    targets = set(re.findall(r"(?:^ *|`)make ([a-z-]+)", text, re.MULTILINE))
    assert {"demo", "test", "check", "bench"} <= targets
    for target in targets:
        run_command("make", "--dry-run", target, cwd=REPOSITORY)


def test_the_options_of_the_kit_exist(capsys: pytest.CaptureFixture[str]) -> None:
    [command] = re.findall(r"^python -m (lance_bridge\.testing .*)$", PAGES["tested"], re.MULTILINE)
    with pytest.raises(SystemExit):
        kit_options.parse(["--help"])
    shown = capsys.readouterr().out
    for option in re.findall(r"(?<= )--?[a-z-]+", command):
        assert option in shown


def test_every_extra_has_a_row_and_every_install_line_names_extras() -> None:
    declared = set(metadata.metadata("lance-bridge").get_all("Provides-Extra") or [])
    table = PAGES["install"].partition("## Extras\n")[2].partition("\n## ")[0]
    assert set(re.findall(r"^\| `([a-z-]+)` +\|", table, re.MULTILINE)) == declared
    lines = r"pip install '(?:\.|lance-bridge|\./lance_bridge-[\w.-]+\.whl)\[([a-z,-]+)\]'"
    named = re.findall(lines, "".join([README, *PAGES.values()]))
    assert len(named) > 10
    assert {extra for each in named for extra in each.split(",")} <= declared


def test_every_file_that_is_named_exists() -> None:
    assert len(FILES) > 30
    assert [path for path in FILES.values() if not (DOCUMENT.parent / path).is_file()] == []
    folders = "core|adapters|apps|specs|docs|examples|tests|docker|demo|bench|requirements"
    named = re.findall(rf"[`(]((?:{folders})/[\w./-]*)[`)]", README + CONTRIBUTING)
    known = {"core/lance_bridge/", "apps/lance_bridge_spark/", "docs/write-a-catalog.md"}
    assert known <= set(named)
    assert [path for path in named if not (REPOSITORY / path).exists()] == []


# -- the site --------------------------------------------------------------------------------------


def test_every_page_is_in_the_navigation_once() -> None:
    shown = re.findall(r'= "([\w./-]+\.md)"', CONFIGURATION)
    assert sorted(shown) == sorted([*pages.PAGES.values(), *reference.GENERATED])


def test_links_lead_to_pages_and_others_become_text_or_lead_to_sources(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(pages, "_source_address", lambda: "")
    guide, architecture = (
        pages.render("docs/write-a-catalog.md"),
        pages.render("docs/architecture.md"),
    )
    assert "](reference/managed.md)" in guide
    assert "](examples/sqlite-catalog.md)" in guide
    assert "](../reference/hive.md)" in pages.render("docs/how-to/hive.md")
    assert "](overview.svg)" in pages.render("README.md")
    assert "1. `namespace.py`: `LanceBridgeNamespace`" in architecture
    assert not re.search(r"\]\(\.\./(?:core|adapters|apps|tests)/", guide + architecture)
    address = "https://example.com/lance-bridge/blob/main"
    monkeypatch.setattr(pages, "_source_address", lambda: address)
    text = pages.render("docs/architecture.md")
    assert f"[`namespace.py`]({address}/core/lance_bridge/namespace.py)" in text


def test_pages_leave_out_contents_and_names_of_tests_and_show_sources_of_the_example() -> None:
    text = "".join(map(pages.render, pages.PAGES))
    assert "<!--" not in re.sub(r"```.*?```|`[^`]*`", "", text, flags=re.DOTALL)
    assert "def test_" not in pages.render("docs/write-a-catalog.md")

    page = pages.render("examples/sqlite-catalog/README.md")
    assert "## src/lance_catalog_sqlite/catalog.py\n\n```python\n" in page
    assert "class SqliteCatalog(Catalog):" in page


def test_generated_pages_have_every_property_command_and_operation() -> None:
    for key in ("`root`", "`uri`", "`catalog_id`", "`warehouse_id`"):
        assert reference.properties().count(f"| {key} |") == 1
    page = reference.commands()
    commands = (row[0].strip("`") for row in DOCUMENTS["cli"].rows("Commands", "command"))
    listed = [*commands, "migrate convert"]
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
