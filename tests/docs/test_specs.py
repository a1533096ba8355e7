"""A spec says what the code does: its properties, operations, error codes and cases are checked.

Each file of ``specs/`` is the spec of the catalog that is registered under its name.
"""

from __future__ import annotations

import re

import pytest

import lance_bridge
from lance_bridge.operations.compute import UNSUPPORTED

from .spec_facts import (
    COMMON_SPEC,
    OPERATIONS_SPEC,
    SPECS,
    common_operations,
    documented_codes,
    is_implemented,
    misnamed_codes,
    namespace_class,
    operations,
    operations_inside,
)
from .spec_reader import ErrorParagraph, Spec, anchor_of, error_paragraphs, paragraphs

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
COMMON_ERRORS = "Errors of Every Operation"
INSIDE = "Operations Inside a Table"
MANAGED = "Implementation-Managed Tables"

every_spec = pytest.mark.parametrize("spec", SPECS.values(), ids=SPECS)
every_spec_and_common = pytest.mark.parametrize(
    "spec", [*SPECS.values(), COMMON_SPEC], ids=[*SPECS, COMMON_SPEC.name]
)


def operation_names(spec: Spec) -> list[str]:
    if spec is COMMON_SPEC:
        return common_operations()
    return spec.below("Basic Operations") + spec.below("Further Operations")


def shared_operations(spec: Spec) -> list[str]:
    """The operations that are the same on every catalog, so that a spec only refers to them."""
    return [name for name in common_operations() if name not in operation_names(spec)]


def errors_of(spec: Spec, section: str) -> list[ErrorParagraph]:
    if section == COMMON_ERRORS:
        return error_paragraphs(spec.body(section))
    return spec.operation(section).errors


def all_errors(spec: Spec) -> dict[str, list[ErrorParagraph]]:
    """Every section that describes errors: the operations, and what they have in common."""
    return {name: errors_of(spec, name) for name in (*operation_names(spec), COMMON_ERRORS)}


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


# -- operations ----------------------------------------------------------------------------------


@every_spec
def test_every_operation_is_specified_exactly_once(spec: Spec) -> None:
    """Here, or with those that are the same on every catalog, or with the reason why it is not."""
    unsupported = {n for n, m in operations().items() if m in UNSUPPORTED}
    places = [operation_names(spec), shared_operations(spec), operations_inside(), unsupported]

    assert sorted(name for place in places for name in place) == sorted(operations())


@every_spec
def test_a_spec_refers_to_the_operations_that_are_the_same_on_every_catalog(spec: Spec) -> None:
    shared = shared_operations(spec)
    links = [f"[{name}](common.md#{anchor_of(name)})" for name in shared]
    found = " ".join(spec.body("Further Operations").split())

    assert shared
    assert [link for link in links if link not in found] == []
    assert [name for name in shared if not COMMON_SPEC.operation(name).has_numbered_steps] == []


@every_spec
def test_what_is_specified_is_implemented(spec: Spec) -> None:
    kind = namespace_class(spec.name)
    methods = operations()
    named = [*operation_names(spec), *shared_operations(spec), *operations_inside()]

    assert [name for name in named if not is_implemented(kind, methods[name])] == []


def test_the_common_spec_lists_each_operation_inside_a_table() -> None:
    links = re.findall(r"\[(\w+)\]\(operations\.md#(\w+)\)", COMMON_SPEC.body(INSIDE))

    assert sorted(name for name, _ in links) == sorted(operations_inside())
    assert [name for name, anchor in links if anchor != name.lower()] == []


@every_spec
def test_a_spec_says_how_its_catalog_finds_the_table_of_an_operation_inside(spec: Spec) -> None:
    assert "(common.md#operations-inside-a-table)" in spec.body(INSIDE)


def test_the_operations_called_unsupported_are_those_that_no_catalog_can_do() -> None:
    section = COMMON_SPEC.body("Unsupported Operations")
    listed = {n for n in operations() if re.search(rf"\b{n}\b", section)}

    assert {operations()[name] for name in listed} == set(UNSUPPORTED)


@every_spec
def test_a_spec_says_how_its_catalog_compares_and_sets(spec: Spec) -> None:
    assert spec.body(MANAGED).strip()
    assert OPERATIONS_SPEC.body(MANAGED).strip()


@every_spec
def test_an_operation_has_a_description_and_numbered_steps(spec: Spec) -> None:
    found = [spec.operation(name) for name in operation_names(spec)]

    assert [each.name for each in found if not each.description] == []
    assert [each.name for each in found if not each.has_numbered_steps] == []


@every_spec
def test_the_codes_that_a_method_documents_are_described(spec: Spec) -> None:
    kind, missing = namespace_class(spec.name), {}
    for name in [*operation_names(spec), *shared_operations(spec)]:
        described = spec.operation(name).codes | COMMON_SPEC.operation(name).codes
        missing[name] = documented_codes(kind, operations()[name]) - described

    assert {name: codes for name, codes in missing.items() if codes} == {}


# -- errors --------------------------------------------------------------------------------------


@every_spec
def test_an_operation_names_the_codes_that_it_has_on_every_catalog(spec: Spec) -> None:
    for name in operation_names(spec):
        common = COMMON_SPEC.operation(name).errors
        codes = {code: each for error in common for code, each in error.codes.items()}
        assert spec.operation(name).common_errors == (anchor_of(name), codes)
    every = {code for e in errors_of(COMMON_SPEC, COMMON_ERRORS) for code in e.codes}
    fragment, named = spec.operation(COMMON_ERRORS).common_errors
    assert (fragment, set(named)) == (anchor_of(COMMON_ERRORS), every)


@every_spec_and_common
def test_a_section_describes_errors_one_paragraph_per_condition(spec: Spec) -> None:
    found = all_errors(spec)

    assert [e.text for errors in found.values() for e in errors if not e.is_well_formed] == []


@every_spec_and_common
def test_an_error_code_has_the_name_that_belongs_to_it(spec: Spec) -> None:
    found = [error for errors in all_errors(spec).values() for error in errors]

    assert misnamed_codes(found) == []


@every_spec_and_common
def test_every_error_names_its_tests(spec: Spec) -> None:
    found = all_errors(spec).values()

    assert [error.text for errors in found for error in errors if not error.is_tested] == []


def test_every_operation_has_errors() -> None:
    assert [name for name, errors in all_errors(COMMON_SPEC).items() if not errors] == []
