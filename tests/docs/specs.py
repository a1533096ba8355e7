"""Reads an implementation spec: its headings, properties, operations and what they claim."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

_HEADING = re.compile(r"^(#{1,6}) (.+)$")
_FENCE = "```"
_STEP = re.compile(r"^(\d+)\. ", re.MULTILINE)
_CONDITION = re.compile(r"If .+?, return error code `\d+` \(\w+\)")
_CODE_AND_NAME = re.compile(r"`(\d+)` \((\w+)\)")
_ROW = re.compile(r"^\|(?! *-)(.*)\|$", re.MULTILINE)
_ERROR_HANDLING = "**Error Handling:**"
_AS_COMMON = re.compile(
    r"\[(?:As on every catalog|Finding the table)\]\([\w.]*#([\w-]+)\): "
    r"((?:`\d+` \(\w+\)(?: also without data)?(?:, )?)+)\."
)
"""A paragraph in place of those of another section, with the codes of that."""
_DETAILS = re.compile(r"Details are in \[common\.md\]\(common\.md#([\w-]+)\)\.")
"""A paragraph before conditions that another section describes in detail."""
_REQUEST = "**Request:**"
_NAMES = r"(?:\*\*\w+\*\*(?:,\s+)?)+"
_FIELDS = re.compile(rf"^- (?P<names>{_NAMES}): (?P<text>(?:.|\n(?!- |\n))+)", re.MULTILINE)
_ALL_FIELDS = re.compile(r"^- All fields of \[(\w+)\]\(#\w+\)\.$", re.MULTILINE)
_REFUSED = re.compile(r"refused with `(\d+)`")


@dataclass(frozen=True)
class ErrorParagraph:
    """One condition of an Error Handling section."""

    text: str

    @property
    def is_well_formed(self) -> bool:
        """Whether it has the template's form: ``If …, return error code `N` (Name)``."""
        return _CONDITION.match(self.text) is not None

    @property
    def codes(self) -> dict[int, str]:
        """Error codes to names, as written."""
        return {int(code): name for code, name in _CODE_AND_NAME.findall(self.text)}


@dataclass(frozen=True)
class Operation:
    """The section of one operation."""

    name: str
    text: str

    @property
    def description(self) -> str:
        """What stands before the steps."""
        return self.text.partition("The implementation:")[0].strip()

    @property
    def steps(self) -> list[int]:
        """The numbers of the steps, in their order."""
        _, _, after = self.text.partition("The implementation:")
        return [int(number) for number in _STEP.findall(after.partition(_ERROR_HANDLING)[0])]

    @property
    def has_numbered_steps(self) -> bool:
        """Whether there are steps, numbered from one without a gap."""
        return bool(self.steps) and self.steps == list(range(1, len(self.steps) + 1))

    @property
    def request(self) -> str:
        """What it says of the request's fields; nothing where there is no such part."""
        return self.text.partition(_REQUEST)[2].partition("The implementation:")[0]

    @property
    def fields(self) -> dict[str, str]:
        """The request's fields that it names, each with what it says of it."""
        return {
            name: " ".join(match["text"].split())
            for match in _FIELDS.finditer(self.request)
            for name in re.findall(r"\w+", match["names"])
        }

    @property
    def same_fields_as(self) -> str | None:
        """The operation whose fields it has, all of them."""
        match = _ALL_FIELDS.search(self.request)
        return match[1] if match else None

    @property
    def refused(self) -> dict[str, int]:
        """Fields that are refused whatever their value is, with the code."""
        said = {name: _REFUSED.match(text) for name, text in self.fields.items()}
        return {name: int(match[1]) for name, match in said.items() if match}

    @property
    def answer(self) -> str:
        """What it answers; nothing where that is not said."""
        found = [text for text in paragraphs(self.text) if text.startswith("**Response:** ")]
        return found[0].removeprefix("**Response:** ") if found else ""

    @property
    def errors(self) -> list[ErrorParagraph]:
        """The paragraphs under Error Handling that describe a condition."""
        return error_paragraphs(self.text.partition(_ERROR_HANDLING)[2])

    @property
    def common_errors(self) -> tuple[str, dict[int, str]]:
        """The fragment of the section whose errors it refers to, and the codes that it names."""
        found = _AS_COMMON.search(" ".join(self.text.split()))
        if found is None:
            return "", {}
        return found[1], {int(code): name for code, name in _CODE_AND_NAME.findall(found[2])}

    @property
    def details(self) -> str:
        """The fragment of the section that has the details of its errors; empty for none."""
        found = _DETAILS.search(" ".join(self.text.split()))
        return found[1] if found else ""

    @property
    def codes(self) -> set[int]:
        """All error codes of the section, with those of the section that it refers to."""
        return {code for error in self.errors for code in error.codes} | {*self.common_errors[1]}


class Spec:
    """One file of ``specs/``."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.name = path.stem
        self.headings: list[tuple[int, str]] = []
        """Level and text of every heading, in order."""
        self._bodies: list[str] = []
        self._read(path.read_text(encoding="utf-8"))

    def _read(self, text: str) -> None:
        fenced = False
        for line in text.splitlines():
            fenced ^= line.startswith(_FENCE)
            heading = None if fenced else _HEADING.match(line)
            if heading:
                self.headings.append((len(heading[1]), heading[2].strip()))
                self._bodies.append("")
            elif self._bodies:
                self._bodies[-1] += line + "\n"

    def body(self, title: str) -> str:
        """Return what stands directly under a heading; empty where there is no such heading."""
        titles = [text for _, text in self.headings]
        return self._bodies[titles.index(title)] if title in titles else ""

    def rows(self, title: str, first: str) -> list[list[str]]:
        """Return the rows of the table under a heading whose first cell is given."""
        for table in re.split(r"\n(?!\|)", self.body(title)):
            found = [_cells(row) for row in _ROW.findall(table.strip())]
            if found and found[0][0] == first:
                return found[1:]
        return []

    def below(self, title: str) -> list[str]:
        """Return the headings one level below a heading of level 2."""
        found, inside = [], False
        for level, text in self.headings:
            if level <= 2:
                inside = text == title
            elif inside and level == 3:
                found.append(text)
        return found

    def operation(self, name: str) -> Operation:
        """Return the section of an operation."""
        return Operation(name, self.body(name))

    def snippets(self, language: str) -> list[str]:
        """Return the code blocks of a language, in their order."""
        text = self.path.read_text(encoding="utf-8")
        return re.findall(rf"^```{language}\n(.*?)^```$", text, re.MULTILINE | re.DOTALL)

    @property
    def anchors(self) -> set[str]:
        """The fragments that links within the file may have."""
        return {anchor_of(text) for _, text in self.headings}


def anchor_of(heading: str) -> str:
    """Return the fragment of a link to a heading, as GitHub makes it."""
    return re.sub(r"[^\w -]", "", heading.lower()).replace(" ", "-")


def paragraphs(text: str) -> list[str]:
    """Return the paragraphs of a text, each on one line."""
    return [" ".join(block.split()) for block in re.split(r"\n\s*\n", text) if block.strip()]


def error_paragraphs(text: str) -> list[ErrorParagraph]:
    """Return the paragraphs of a text that must each describe one error."""
    reference = re.compile(f"{_AS_COMMON.pattern}|{_DETAILS.pattern}")
    return [ErrorParagraph(each) for each in paragraphs(text) if not reference.match(each)]


def _cells(row: str) -> list[str]:
    return [cell.strip() for cell in row.split("|")]
