"""A spec says what the code does: its properties, operations, error codes and cases are checked.

Each file of ``specs/`` is the spec of the catalog that is registered under its name.
"""

from __future__ import annotations

import importlib
import re

import pytest

import lance_bridge
from lance_bridge import LanceBridgeNamespace
from lance_bridge.operations.compute import UNSUPPORTED

from .spec_facts import (
    OPERATIONS_SPEC,
    SPECS,
    documented_codes,
    is_implemented,
    misnamed_codes,
    operations,
    operations_inside,
)
from .spec_reader import ErrorParagraph, Spec, StatedProperty, error_paragraphs, paragraphs

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


def operation_names(spec: Spec) -> list[str]:
    return spec.below("Basic Operations") + spec.below("Further Operations")


def errors_of(spec: Spec, section: str) -> list[ErrorParagraph]:
    if section == COMMON_ERRORS:
        return error_paragraphs(spec.body(section))
    return spec.operation(section).errors


def all_errors(spec: Spec) -> dict[str, list[ErrorParagraph]]:
    """Every section that describes errors: the operations, and what they have in common."""
    return {name: errors_of(spec, name) for name in (*operation_names(spec), COMMON_ERRORS)}


def namespace_class(spec: Spec) -> type[LanceBridgeNamespace]:
    """The class that is registered under the spec's name."""
    module, _, name = lance_bridge.catalogs()[spec.name].rpartition(".")
    found: type[LanceBridgeNamespace] = getattr(importlib.import_module(module), name)
    return found


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
def test_every_operation_is_specified_exactly_once(spec: Spec) -> None:
    """Here, or with those that are the same on every catalog, or with the reason why it is not."""
    unsupported = {n for n, m in operations().items() if m in UNSUPPORTED}
    places = [operation_names(spec), operations_inside(), sorted(unsupported)]

    assert sorted(name for place in places for name in place) == sorted(operations())


@every_spec
def test_what_is_specified_is_implemented(spec: Spec) -> None:
    kind = namespace_class(spec)
    methods = operations()
    named = [*operation_names(spec), *operations_inside()]

    assert [name for name in named if not is_implemented(kind, methods[name])] == []


@every_spec
def test_a_spec_says_where_each_operation_inside_a_table_is_specified(spec: Spec) -> None:
    section = spec.body(INSIDE)
    links = re.findall(r"\[(\w+)\]\(operations\.md#(\w+)\)", section)

    assert sorted(name for name, _ in links) == sorted(operations_inside())
    assert [name for name, anchor in links if anchor != name.lower()] == []


@every_spec
def test_a_link_to_the_operations_leads_to_one_of_its_headings(spec: Spec) -> None:
    text = spec.path.read_text(encoding="utf-8")
    linked = set(re.findall(r"\]\(operations\.md#([^)]+)\)", text))

    assert linked <= OPERATIONS_SPEC.anchors


@every_spec
def test_the_operations_called_unsupported_are_those_that_no_catalog_can_do(spec: Spec) -> None:
    section = spec.body("Unsupported Operations")
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
    kind, missing = namespace_class(spec), {}
    for name in operation_names(spec):
        missing[name] = documented_codes(kind, operations()[name]) - spec.operation(name).codes

    assert {name: codes for name, codes in missing.items() if codes} == {}


# -- errors --------------------------------------------------------------------------------------


@every_spec
def test_a_section_describes_errors_one_paragraph_per_condition(spec: Spec) -> None:
    found = all_errors(spec)

    assert [name for name, errors in found.items() if not errors] == []
    assert [e.text for errors in found.values() for e in errors if not e.is_well_formed] == []


@every_spec
def test_an_error_code_has_the_name_that_belongs_to_it(spec: Spec) -> None:
    assert [each for errors in all_errors(spec).values() for each in misnamed_codes(errors)] == []


@every_spec
def test_every_error_names_its_tests(spec: Spec) -> None:
    found = all_errors(spec).values()

    assert [error.text for errors in found for error in errors if not error.is_tested] == []
