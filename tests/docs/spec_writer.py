"""Writes the generated parts of documents: contents, tables of properties and of options.

Run it by ``make specs``. A part begins with a comment that says what it is, and ends with
``<!-- end -->``. A document without contents gets them before its first section.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

from lance_bridge.config import Property
from lance_bridge.credentials.vendor import find_vendor

from .specs import REPOSITORY, Spec, anchor_of, namespace_class

GENERATED = [
    *sorted((REPOSITORY / "specs").glob("*.md")),
    REPOSITORY / "docs" / "architecture.md",
    REPOSITORY / "docs" / "gateway.md",
    REPOSITORY / "docs" / "write-a-catalog.md",
]
_END = "<!-- end -->"
_CONTENTS = "<!-- contents -->"
_PART = re.compile(rf"<!-- (contents|(properties|vendor): (\w+)) -->\n.*?{_END}", re.DOTALL)
_FIRST_SECTION = re.compile(r"^## ", re.MULTILINE)


def render(path: Path) -> str:
    """Return the text of a document with its generated parts as they should be."""
    text = path.read_text(encoding="utf-8")
    if _CONTENTS not in text:
        text = _FIRST_SECTION.sub(f"{_CONTENTS}\n{_END}\n\n## ", text, count=1)
    spec = Spec(path)

    def part(match: re.Match[str]) -> str:
        lines = _TABLES[match[2]](match[3]) if match[2] else contents(spec)
        return "\n".join([f"<!-- {match[1]} -->", *lines, _END])

    return _PART.sub(part, text)


def contents(spec: Spec) -> Iterator[str]:
    """Yield one item for each section, with links to its subsections."""
    sections: list[list[str]] = []
    for level, title in spec.headings:
        link = f"[{title}](#{anchor_of(title)})"
        if level == 2:
            sections.append([link])
        elif level == 3:
            sections[-1].append(link)
    for section, *inner in sections:
        yield f"- {section}" + (": " + ", ".join(inner) if inner else "")


def properties(impl: str) -> Iterator[str]:
    """Yield the table of the properties of an implementation."""
    yield "| property | default | secret | meaning | example |"
    yield "|---|---|---|---|---|"
    for row in namespace_class(impl).config_type.declared():
        cells = [f"`{row.key}`", _default(row), "yes" if row.secret else "", row.meaning]
        example = f"`{row.example}`" if row.example else ""
        yield "| " + " | ".join(_escape(cell) for cell in (*cells, example)) + " |"


def vendor_options(name: str) -> Iterator[str]:
    """Yield the table of the options of a vendor of credentials."""
    yield "| property | default | meaning |"
    yield "|---|---|---|"
    for option, field in find_vendor(name).options_type.model_fields.items():
        default = "" if field.is_required() or field.default is None else str(field.default)
        if isinstance(field.default, bool):
            default = default.lower()
        shown = "required" if field.is_required() else default and f"`{default}`"
        cells = [f"`credentials.{option}`", shown, field.description or ""]
        yield "| " + " | ".join(map(_escape, cells)) + " |"


_TABLES = {"properties": properties, "vendor": vendor_options}


def _default(row: Property) -> str:
    return row.default_text if row.required or not row.default else f"`{row.default}`"


def _escape(cell: str) -> str:
    return cell.replace("|", "\\|")


if __name__ == "__main__":
    for each in GENERATED:
        each.write_text(render(each), encoding="utf-8")
