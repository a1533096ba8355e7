"""Converts documents of the repository to pages of the site.

Tables of contents and comments, which name tests, are left out. Links between documents are changed
to their pages. Links to other files lead to the repository in ``pyproject.toml``, or become text.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Mapping
from functools import cache
from pathlib import Path, PurePosixPath

ROOT = Path(__file__).parents[1]
EXAMPLE = "examples/sqlite-catalog/README.md"
FIXED = {
    "README.md": "index.md",
    "CONTRIBUTING.md": "contributing.md",
    "CHANGELOG.md": "changelog.md",
    "CODE_OF_CONDUCT.md": "code-of-conduct.md",
    "SECURITY.md": "security-policy.md",
    "THIRD_PARTY_LICENSES.md": "licences.md",
    "docker/README.md": "docker.md",
    EXAMPLE: "examples/sqlite-catalog.md",
    "examples/catalog-template/README.md": "examples/catalog-template.md",
}
LANGUAGES = {".py": "python", ".toml": "toml"}
_LEFT_OUT = re.compile(r"[ \t]*<!-- contents -->.*?<!-- end -->\n?|[ \t]*<!--.*?-->", re.DOTALL)
_FENCE = re.compile(r"(^ *```.*?^ *```$)", re.MULTILINE | re.DOTALL)
_INLINE = re.compile(r"\[((?:[^\[\]]|\[[^\[\]]*\])+)\]\(((?!https?:|mailto:|#)[^)\s]+)\)")
_DEFINITION = re.compile(r"^\[([\w-]+)\]: ((?!https?:)\S+)$\n?", re.MULTILINE)
_REFERENCE = re.compile(r"\[([^\[\]]+)\]\[([\w-]+)\]")
_SOURCE = re.compile(r'^Source = "(https://[^"]+)"$', re.MULTILINE)


def _pages() -> dict[str, str]:
    found = dict(FIXED)
    for path in sorted((ROOT / "docs").rglob("*.md")):
        found[path.relative_to(ROOT).as_posix()] = path.relative_to(ROOT / "docs").as_posix()
    for path in sorted((ROOT / "specs").glob("*.md")):
        found[path.relative_to(ROOT).as_posix()] = f"reference/{path.name}"
    return found


PAGES = _pages()
"""Document of the repository to page of the site."""
PICTURES = {
    path.relative_to(ROOT).as_posix(): path.relative_to(ROOT / "docs").as_posix()
    for path in sorted((ROOT / "docs").rglob("*"))
    if path.suffix in (".png", ".svg")
}
"""Picture of the repository to its path on the site."""


def render(source: str) -> str:
    """Return the text of a document for the site."""
    text = _LEFT_OUT.sub("", (ROOT / source).read_text(encoding="utf-8"))
    definitions = dict(_DEFINITION.findall(text))
    text = "".join(
        part if part.lstrip().startswith("```") else _with_links(part, source, definitions)
        for part in _FENCE.split(text)
    )
    return text + _sources() if source == EXAMPLE else text


def _with_links(text: str, source: str, definitions: Mapping[str, str]) -> str:
    text = _DEFINITION.sub("", text)
    text = _REFERENCE.sub(
        lambda found: (
            f"[{found[1]}]({definitions[found[2]]})" if found[2] in definitions else found[0]
        ),
        text,
    )
    return _INLINE.sub(_link_of(source), text)


def _link_of(source: str) -> Callable[[re.Match[str]], str]:
    def link(found: re.Match[str]) -> str:
        target = _target(source, found[2])
        return f"[{found[1]}]({target})" if target else found[1]

    return link


def _target(source: str, link: str) -> str:
    """Return the target on the site of a link in a document, or an empty string if it has none."""
    path, _, fragment = link.partition("#")
    file = (ROOT / source).parent.joinpath(path).resolve().relative_to(ROOT).as_posix()
    found = {**PAGES, **PICTURES}.get(file)
    if found:
        start = PurePosixPath(PAGES[source]).parent
        page = PurePosixPath(os.path.relpath(found, start)).as_posix()
        return f"{page}#{fragment}" if fragment else page
    return f"{_source_address()}/{file}" if _source_address() else ""


@cache
def _source_address() -> str:
    """Return the URL of the repository's files, or an empty string if it is not known."""
    found = _SOURCE.search((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    return f"{found[1]}/blob/main" if found else ""


def _sources() -> str:
    """Return the files of the example as code blocks."""
    folder = (ROOT / EXAMPLE).parent
    files = [folder / "pyproject.toml", *sorted(folder.rglob("*.py"))]
    return "".join(
        f"\n## {path.relative_to(folder).as_posix()}\n\n"
        f"```{LANGUAGES[path.suffix]}\n{path.read_text(encoding='utf-8')}```\n"
        for path in files
    )
