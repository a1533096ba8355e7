"""Links of documents work on GitHub: each leads to a file and, with a fragment, to a heading."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from .spec_facts import REPOSITORY
from .spec_reader import Spec

DOCUMENTS = {
    str(path.relative_to(REPOSITORY)): path
    for pattern in ("*.md", "specs/*.md", "docs/*.md", "*/README.md")
    for path in sorted(REPOSITORY.glob(pattern))
}
_CODE = re.compile(r"^```.*?^```$|`[^`\n]*`", re.MULTILINE | re.DOTALL)
_LINK = re.compile(r"\]\((?!https?://|mailto:)([^)#\s]*)(?:#([^)\s]+))?\)")


@pytest.mark.parametrize("name", DOCUMENTS)
def test_every_link_leads_to_a_file_and_a_heading(name: str) -> None:
    path = DOCUMENTS[name]
    links = _LINK.findall(_CODE.sub("", path.read_text(encoding="utf-8")))

    assert [link for link in links if not leads_somewhere(path, *link)] == []


@pytest.mark.parametrize("name", [each for each in DOCUMENTS if each.startswith("specs/")])
def test_no_heading_of_a_spec_is_used_twice(name: str) -> None:
    titles = [text for _, text in Spec(DOCUMENTS[name]).headings]

    assert sorted(titles) == sorted(set(titles))


def leads_somewhere(document: Path, link: str, fragment: str) -> bool:
    target = document.parent / link if link else document
    if not fragment or target.suffix != ".md":
        return target.exists()
    return target.is_file() and fragment in Spec(target).anchors
