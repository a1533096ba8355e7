"""A spec says what the code does: its properties, operations, error codes and cases are checked.

Each file of ``specs/`` is the spec of the catalog that is registered under its name.
"""

from __future__ import annotations

import importlib
import re
from pathlib import Path

import pytest
from lance_namespace import LanceNamespace
from lance_namespace.errors import ErrorCode

import lance_bridge
from lance_bridge import LanceBridgeNamespace

from .spec_reader import (
    ErrorParagraph,
    Spec,
    StatedProperty,
    cases_in,
    error_paragraphs,
    paragraphs,
)

REPOSITORY = Path(__file__).parents[2]
SPECS = {path.stem: Spec(path) for path in sorted((REPOSITORY / "specs").glob("*.md"))}

BASIC_OPERATIONS = [
    "CreateNamespace",
    "ListNamespaces",
    "DescribeNamespace",
    "DropNamespace",
    "DeclareTable",
    "ListTables",
    "DescribeTable",
    "DeregisterTable",
]
TEMPLATE = [
    (2, "Background"),
    (2, "Namespace Implementation Configuration Properties"),
    (2, "Object Mapping"),
    (3, "Namespace"),
    (3, "Table"),
    (2, "Lance Table Identification"),
    (2, "Basic Operations"),
    *((3, operation) for operation in BASIC_OPERATIONS),
]
NAMESPACE_PARAGRAPHS = [
    "The **root namespace** is",
    "A **child namespace** is",
    "The **namespace identifier** is",
    "**Namespace properties** are",
]
TABLE_PARAGRAPHS = [
    "A **table** is",
    "The **table identifier** is",
    "The **table location** is",
    "**Table properties** are",
]
CASES = ("core/lance_bridge/testing", "tests/core")
"""Where the cases that a spec names may be, beside the tests of its adapter."""
COMMON_ERRORS = "Errors of Every Operation"
ERROR_NAMES = {int(code): code.name.title().replace("_", "") for code in ErrorCode}

every_spec = pytest.mark.parametrize("spec", SPECS.values(), ids=SPECS)


def operation_names(spec: Spec) -> list[str]:
    return spec.below("Basic Operations") + spec.below("Further Operations")


def sections_with_errors() -> list[tuple[Spec, str]]:
    """Every section that describes errors: the operations, and what they have in common."""
    return [
        (spec, name) for spec in SPECS.values() for name in (*operation_names(spec), COMMON_ERRORS)
    ]


def errors_of(spec: Spec, section: str) -> list[ErrorParagraph]:
    if section == COMMON_ERRORS:
        return error_paragraphs(spec.body(section))
    return spec.operation(section).errors


def namespace_class(spec: Spec) -> type[LanceBridgeNamespace]:
    """The class that is registered under the spec's name."""
    module, _, name = lance_bridge.catalogs()[spec.name].rpartition(".")
    found: type[LanceBridgeNamespace] = getattr(importlib.import_module(module), name)
    return found


def operations_of(kind: type[LanceNamespace]) -> dict[str, str]:
    """Every operation of the namespace API: its name in a spec, to that of its method."""
    public = [name for name in vars(LanceNamespace) if not name.startswith("_")]
    return {
        "".join(word.capitalize() for word in name.split("_")): name
        for name in public
        if name != "namespace_id" and callable(getattr(kind, name))
    }


def is_implemented(kind: type[LanceNamespace], method: str) -> bool:
    return getattr(kind, method) is not getattr(LanceNamespace, method)


def documented_codes(kind: type[LanceNamespace], method: str) -> set[int]:
    """The codes that a method's docstring lists: ``Errors: 1, 4 (why), 13.``"""
    match = re.search(r"Errors: ([^.]+)\.", getattr(kind, method).__doc__ or "")
    assert match, f"the docstring of {method} lists no error codes"
    return {int(code) for code in re.findall(r"\b\d+\b", match[1])}


every_section = pytest.mark.parametrize(
    ("spec", "section"),
    sections_with_errors(),
    ids=[f"{spec.name}-{section}" for spec, section in sections_with_errors()],
)
every_operation = pytest.mark.parametrize(
    ("spec", "name"),
    [(spec, name) for spec in SPECS.values() for name in operation_names(spec)],
    ids=[f"{spec.name}-{name}" for spec in SPECS.values() for name in operation_names(spec)],
)


def test_every_registered_catalog_has_a_spec_and_every_spec_a_catalog() -> None:
    assert set(SPECS) == set(lance_bridge.catalogs()), "is lance-bridge installed (make venv)?"


# -- the template --------------------------------------------------------------------------------


@every_spec
def test_a_spec_has_the_sections_of_the_template_in_their_order(spec: Spec) -> None:
    [title, *rest] = spec.headings

    assert re.fullmatch(r"Lance .+ Namespace Implementation Spec", title[1])
    assert title[0] == 1
    assert rest[: len(TEMPLATE)] == TEMPLATE


@every_spec
def test_no_heading_is_used_twice(spec: Spec) -> None:
    titles = [text for _, text in spec.headings]

    assert sorted(titles) == sorted(set(titles))


@every_spec
def test_the_background_links_to_the_catalogs_documentation(spec: Spec) -> None:
    assert re.search(r"\]\(https://[^)\s]+\)", spec.body("Background"))


@every_spec
@pytest.mark.parametrize(
    ("section", "beginnings"),
    [("Namespace", NAMESPACE_PARAGRAPHS), ("Table", TABLE_PARAGRAPHS)],
    ids=["Namespace", "Table"],
)
def test_the_object_mapping_has_the_paragraphs_of_the_template(
    spec: Spec, section: str, beginnings: list[str]
) -> None:
    found = paragraphs(spec.body(section))

    assert [text for text in found if text.startswith(tuple(beginnings))] == found
    assert len(found) == len(beginnings)
    assert all(text.startswith(start) for text, start in zip(found, beginnings, strict=True))


@every_spec
def test_a_link_within_a_spec_leads_to_one_of_its_headings(spec: Spec) -> None:
    linked = set(re.findall(r"\]\(#([^)]+)\)", spec.path.read_text(encoding="utf-8")))

    assert linked <= spec.anchors


# -- properties ----------------------------------------------------------------------------------


@every_spec
def test_the_properties_of_a_spec_are_those_that_the_catalog_declares(spec: Spec) -> None:
    declared = {
        each.key: StatedProperty(each.required, each.default, each.secret)
        for each in namespace_class(spec).config_type.declared()
    }

    assert spec.properties == declared


# -- operations ----------------------------------------------------------------------------------


@every_spec
def test_every_operation_has_a_section_exactly_if_it_is_implemented(spec: Spec) -> None:
    kind = namespace_class(spec)
    implemented = {n for n, m in operations_of(kind).items() if is_implemented(kind, m)}

    assert sorted(operation_names(spec)) == sorted(implemented)


@every_spec
def test_the_operations_called_unsupported_are_those_that_are_not_implemented(spec: Spec) -> None:
    kind = namespace_class(spec)
    absent = {n for n, m in operations_of(kind).items() if not is_implemented(kind, m)}
    section = spec.body("Unsupported Operations")
    _, _, listed = section.partition(":\n")

    assert set(re.findall(r"[A-Z]\w+", listed.partition(".\n")[0])) == absent


@every_operation
def test_an_operation_has_a_description_and_numbered_steps(spec: Spec, name: str) -> None:
    operation = spec.operation(name)

    assert operation.description
    assert operation.steps
    assert operation.steps == list(range(1, len(operation.steps) + 1))


@every_operation
def test_the_codes_that_a_method_documents_are_described(spec: Spec, name: str) -> None:
    kind = namespace_class(spec)
    documented = documented_codes(kind, operations_of(kind)[name])

    assert documented <= spec.operation(name).codes


# -- errors --------------------------------------------------------------------------------------


@every_section
def test_a_section_describes_errors_one_paragraph_per_condition(spec: Spec, section: str) -> None:
    errors = errors_of(spec, section)

    assert errors
    assert [error.text for error in errors if not error.is_well_formed] == []


@every_section
def test_an_error_code_has_the_name_that_belongs_to_it(spec: Spec, section: str) -> None:
    codes = [item for error in errors_of(spec, section) for item in error.codes.items()]

    assert codes
    assert [(code, name) for code, name in codes if ERROR_NAMES.get(code) != name] == []


@every_section
def test_every_error_is_shown_by_cases(spec: Spec, section: str) -> None:
    errors = errors_of(spec, section)

    assert errors
    assert [error.text for error in errors if not error.is_shown] == []


@every_spec
def test_nothing_waits_to_be_shown(spec: Spec) -> None:
    text = " ".join(spec.path.read_text(encoding="utf-8").split())

    assert "not yet shown" not in text.lower()


@every_section
def test_an_error_names_a_case_that_exists(spec: Spec, section: str) -> None:
    places = [REPOSITORY / place for place in (*CASES, f"tests/adapters/{spec.name}")]

    for error in errors_of(spec, section):
        assert error.cases, f"no case: {error.text}"
        for case, link in error.cases:
            file = (spec.path.parent / link).resolve()
            assert file.parent in places, f"no place for cases: {link}"
            assert file.is_file(), f"no such file: {link}"
            assert case in cases_in(file), f"{link} has no {case}"
