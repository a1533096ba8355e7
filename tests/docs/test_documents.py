"""Documents: their headings, links and snippets, and what ``docs/architecture.md`` names.

Links work as GitHub reads them: each leads to a file and, with a fragment, to a heading.
"""

from __future__ import annotations

import ast
import re
from collections import Counter
from collections.abc import Iterator
from importlib import metadata
from pathlib import Path

import lance_namespace as api
import pytest
from commands import run_command
from servers.glue_server import GlueServer
from servers.unity import OPEN_SOURCE_0_6, UnityServer

import lance_bridge
from lance_bridge import kit_options

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
