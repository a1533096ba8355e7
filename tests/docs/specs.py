"""Documents as their tests read them, what they are held to, and the parts that are generated.

The marker `spec` links a test with a section, named by its document and its anchor:
``common.md#createnamespace`` in ``specs/``, and ``docs/write-a-catalog.md#paging`` elsewhere. Files
are parsed, and no test is imported. ``make specs`` writes what is generated: a part begins with a
comment that says what it is, and ends with ``<!-- end -->``. A document without contents gets them
before its first section.
"""

from __future__ import annotations

import ast
import importlib
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from lance_namespace import LanceNamespace, errors
from lance_namespace.errors import ErrorCode

import lance_bridge
from lance_bridge import LanceBridgeNamespace
from lance_bridge.config import Property
from lance_bridge.credentials.vendor_interface import find_vendor
from lance_bridge.operations.versions import ManagementOperations

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


# -- what specs are held to ------------------------------------------------------------------------


REPOSITORY = Path(__file__).parents[2]
DOCUMENTS = {path.stem: Spec(path) for path in sorted((REPOSITORY / "specs").glob("*.md"))}
OF_ALL_CATALOGS = (
    "common", "operations", "spark", "cli", "migration", "clients", "federated",
    "server", "managed",
)  # fmt: skip
SPECS = {name: spec for name, spec in DOCUMENTS.items() if name not in OF_ALL_CATALOGS}
"""By catalog."""
COMMON_SPEC = DOCUMENTS["common"]
OPERATIONS_SPEC = DOCUMENTS["operations"]
_ERROR_NAMES = {int(code): code.name.title().replace("_", "") for code in ErrorCode}


def operations() -> dict[str, str]:
    """Every operation of the namespace API: its name in a spec, to that of its method."""
    public = [name for name, each in vars(LanceNamespace).items() if callable(each)]
    return {
        "".join(word.capitalize() for word in name.split("_")): name
        for name in public
        if name != "namespace_id" and not name.startswith("_")
    }


def operations_inside() -> list[str]:
    """The operations that have a section in `OPERATIONS_SPEC`, in its order."""
    known = operations()
    return [text for level, text in OPERATIONS_SPEC.headings if level == 3 and text in known]


def common_operations() -> list[str]:
    """The operations that have a section in `COMMON_SPEC`, in its order."""
    return COMMON_SPEC.below("Namespace Operations") + COMMON_SPEC.below("Table Operations")


def namespace_class(impl: str) -> type[LanceBridgeNamespace]:
    """The class that is registered under a name."""
    module, _, name = lance_bridge.catalogs()[impl].rpartition(".")
    found: type[LanceBridgeNamespace] = getattr(importlib.import_module(module), name)
    return found


def methods_of_managed_tables() -> list[str]:
    """The methods beyond the namespace API, which have a section there, too."""
    return [name for name in vars(ManagementOperations) if not name.startswith("_")]


def is_implemented(kind: type[LanceNamespace], method: str) -> bool:
    return getattr(kind, method) is not getattr(LanceNamespace, method)


def documented_codes(kind: type[LanceNamespace], method: str) -> set[int]:
    """The codes of the errors that a method's docstring names: ``Raises: TableNotFound (why).``"""
    match = re.search(r"Raises: ([^.]+)\.", getattr(kind, method).__doc__ or "")
    assert match, f"the docstring of {method} names no errors"
    names = re.sub(r"\([^)]*\)", "", match[1]).split(",")
    return {int(getattr(errors, f"{name.strip()}Error").code) for name in names}


def codes_of_server(impl: str) -> set[int]:
    """The codes that an adapter gives to failures of its server, whatever the operation is."""
    package = namespace_class(impl).__module__.partition(".")[0]
    found = vars(importlib.import_module(f"{package}.errors")).values()
    of_objects = (errors.NamespaceNotFoundError, errors.TableNotFoundError)
    return {
        int(each.code)
        for each in found
        if isinstance(each, type)
        and issubclass(each, errors.LanceNamespaceError)
        and each not in (errors.LanceNamespaceError, *of_objects)
    }


def bad_errors(section: str, errors: Iterable[ErrorParagraph]) -> Iterator[str]:
    """Yield what is wrong with the paragraphs under a section's Error Handling."""
    for error in errors:
        if not error.is_well_formed:
            yield f"{section}: not of the form 'If …, return error code `N` (Name)': {error.text}"
        for code, name in error.codes.items():
            if _ERROR_NAMES.get(code) != name:
                yield f"{section}: {code} is not {name}"


# -- which tests show which section ----------------------------------------------------------------


TESTS = REPOSITORY / "tests"
KIT = REPOSITORY / "core" / "lance_bridge" / "testing"
KIT_TABLE = Path(__file__).with_name("kit_links.txt")
MARKER = "pytest.mark.spec"
_DEFINITIONS = ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef


@dataclass(frozen=True)
class Link:
    """A test that shows a section."""

    section: str
    file: Path
    name: str
    """Of the function or class; empty for all tests of the file."""

    def __str__(self) -> str:
        return f"{self.file.relative_to(REPOSITORY)}::{self.name} ({self.section})"


@cache
def links() -> tuple[Link, ...]:
    """Return the links of all tests and of all cases of the kit."""
    marked = [path for path in sorted(TESTS.rglob("*.py")) if MARKER in path.read_text("utf-8")]
    return (*(link for path in marked for link in links_in(path)), *links_of_kit())


def links_in(path: Path) -> Iterator[Link]:
    """Yield the links of a file's markers: on functions, classes and the module."""
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, _DEFINITIONS):
            for decorator in node.decorator_list:
                yield from (Link(each, path, node.name) for each in _sections(decorator))
        elif isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "pytestmark":
            yield from (Link(each, path, "") for each in _sections(node.value))


def _sections(expression: ast.expr) -> Iterator[str]:
    for node in ast.walk(expression):
        if isinstance(node, ast.Call) and ast.unparse(node.func) == MARKER:
            yield from (ast.literal_eval(argument) for argument in node.args)


def links_of_kit() -> Iterator[Link]:
    """Yield the links of the table of the kit's cases."""
    for line in KIT_TABLE.read_text(encoding="utf-8").splitlines():
        if not line.startswith("#"):
            case, *sections = line.split()
            module, _, name = case.rpartition("/")
            yield from (Link(each, KIT / f"{module}.py", name) for each in sections)


def names_used_for(section: str) -> dict[Path, set[str]]:
    """Return the attributes and strings in the tests that show a section, by file."""
    found: dict[Path, set[str]] = {}
    for link in links():
        if link.section == section:
            found.setdefault(link.file, set()).update(_names_used(link.file, link.name))
    return found


@cache
def _names_used(path: Path, test: str) -> frozenset[str]:
    tree = ast.parse(path.read_text(encoding="utf-8"))
    definitions = [each for each in ast.walk(tree) if isinstance(each, _DEFINITIONS)]
    parts = [each for each in definitions if each.name == test] if test else [tree]
    nodes = [node for part in parts for node in ast.walk(part)]
    attributes = {each.attr for each in nodes if isinstance(each, ast.Attribute)}
    constants = {each.value for each in nodes if isinstance(each, ast.Constant)}
    return frozenset(attributes | {each for each in constants if isinstance(each, str)})


def document_of(section: str) -> Spec | None:
    """Return the document that a link names; None if it does not exist."""
    name, _, _ = section.partition("#")
    path = REPOSITORY / name
    if name.removesuffix(".md") in DOCUMENTS:
        return DOCUMENTS[name.removesuffix(".md")]
    return Spec(path) if name.startswith("docs/") and path.is_file() else None


# -- generated parts: contents, tables of properties and of options --------------------------------


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
