"""A spec says what the code does: its operations and error codes are compared.

`SPECS` are the specs of catalogs, by the names under which those are registered.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator

import pytest
from lance_namespace.errors import ConcurrentModificationError

import lance_bridge
from lance_bridge.operations.compute import UNSUPPORTED

from .spec_facts import (
    COMMON_SPEC,
    OPERATIONS_SPEC,
    SPECS,
    bad_errors,
    codes_of_server,
    common_operations,
    documented_codes,
    is_implemented,
    namespace_class,
    operations,
    operations_inside,
)
from .spec_reader import ErrorParagraph, Operation, Spec, anchor_of, error_paragraphs, paragraphs

pytestmark = pytest.mark.checks

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
OBJECT_MAPPING = {
    "Namespace": [
        "The **root namespace** is",
        "A **child namespace** is",
        "The **namespace identifier** is",
        "**Namespace properties** are",
    ],
    "Table": [
        "A **table** is",
        "The **table identifier** is",
        "The **table location** is",
        "**Table properties** are",
    ],
}
"""How the paragraphs of each section begin."""
COMMON_ERRORS = "Errors of Every Operation"
EVERY_CATALOG = error_paragraphs(COMMON_SPEC.body(COMMON_ERRORS))
READING = {"ListNamespaces", "DescribeNamespace", "ListTables", "DescribeTable"}
ONLY_OF_CHANGES = {int(ConcurrentModificationError.code)}
"""Codes that servers give to changes, and to no call that only reads."""
INSIDE = "Operations Inside a Table"
MANAGED = "Implementation-Managed Tables"

every_spec = pytest.mark.parametrize("spec", SPECS.values(), ids=SPECS)


def operation_names(spec: Spec) -> list[str]:
    return spec.below("Basic Operations") + spec.below("Further Operations")


def shared_operations(spec: Spec) -> list[str]:
    """The operations that are the same on every catalog, so that a spec only refers to them."""
    return [name for name in common_operations() if name not in operation_names(spec)]


def test_every_registered_catalog_has_a_spec_and_every_spec_a_catalog() -> None:
    assert set(SPECS) == set(lance_bridge.catalogs()), "is lance-bridge installed (make venv)?"


@every_spec
def test_a_spec_has_the_form_of_the_template(spec: Spec) -> None:
    [title, *rest] = spec.headings
    assert re.fullmatch(r"Lance .+ Namespace Implementation Spec", title[1])
    assert title[0] == 1
    assert rest[: len(TEMPLATE)] == TEMPLATE
    assert re.search(r"\]\(https://[^)\s]+\)", spec.body("Background"))
    for section, beginnings in OBJECT_MAPPING.items():
        found = paragraphs(spec.body(section))
        assert len(found) == len(beginnings), section
        assert all(map(str.startswith, found, beginnings)), section


@every_spec
def test_a_spec_has_a_row_for_each_property_that_its_catalog_declares(spec: Spec) -> None:
    rows = spec.rows("Namespace Implementation Configuration Properties", "property")
    declared = namespace_class(spec.name).config_type.declared()
    assert [(row[0].strip("`"), row[2] == "yes") for row in rows] == [
        (each.key, each.secret) for each in declared
    ]


@every_spec
def test_every_operation_is_specified_exactly_once(spec: Spec) -> None:
    """Here, or with those that are the same on every catalog, or with the reason why it is not."""
    kind, methods = namespace_class(spec.name), operations()
    unsupported = {name for name, method in methods.items() if method in UNSUPPORTED}
    shared = shared_operations(spec)
    specified = [*operation_names(spec), *shared, *operations_inside()]
    assert sorted((*specified, *unsupported)) == sorted(methods)
    assert [name for name in specified if not is_implemented(kind, methods[name])] == []
    referred = re.findall(r"\[(\w+)\]\(common\.md#\w+\)", spec.body("Further Operations"))
    assert sorted(referred) == sorted(shared)
    assert f"(common.md#{anchor_of(INSIDE)})" in spec.body(INSIDE)


@pytest.mark.spec("common.md#operations-inside-a-table")
def test_the_common_spec_lists_what_is_inside_a_table_and_what_is_unsupported() -> None:
    listed = COMMON_SPEC.body("Unsupported Operations")
    named = {method for name, method in operations().items() if re.search(rf"\b{name}\b", listed)}
    assert named == set(UNSUPPORTED)
    links = re.findall(r"\[(\w+)\]\(operations\.md#(\w+)\)", COMMON_SPEC.body(INSIDE))
    assert sorted(name for name, _ in links) == sorted(operations_inside())
    assert [name for name, anchor in links if anchor != name.lower()] == []


def faults(spec: Spec) -> Iterator[str]:
    """Yield what is wrong with the sections of operations."""
    kind, methods = namespace_class(spec.name), operations()
    for operation in map(spec.operation, operation_names(spec)):
        is_basic = operation.name in BASIC_OPERATIONS
        if not operation.description or not operation.has_numbered_steps:
            yield f"{operation.name} has no description, or no numbered steps"
        for code in documented_codes(kind, methods[operation.name]) - operation.codes:
            yield f"{operation.name} does not describe the error {code}"
        yield from missing_conditions(spec, operation) if is_basic else other_codes(operation)
        yield from bad_errors(operation.name, operation.errors)
    every = spec.operation(COMMON_ERRORS)
    conditions = error_paragraphs(every.text)
    for code in {*codes_of(EVERY_CATALOG), *codes_of_server(spec.name)} - {*codes_of(conditions)}:
        yield f"{COMMON_ERRORS} has no condition for the error {code}"
    if every.details != anchor_of(COMMON_ERRORS):
        yield f"{COMMON_ERRORS} does not link to those of every catalog"
    yield from bad_errors(COMMON_ERRORS, conditions)
    if not (spec.body(MANAGED).strip() and OPERATIONS_SPEC.body(MANAGED).strip()):
        yield "nothing is said of managed tables"


def missing_conditions(spec: Spec, operation: Operation) -> Iterator[str]:
    """Yield the errors for which a basic operation has no condition of its own."""
    common = {*codes_of(COMMON_SPEC.operation(operation.name).errors), *codes_of(EVERY_CATALOG)}
    server = codes_of_server(spec.name)
    if operation.name in READING:
        server -= ONLY_OF_CHANGES
    for code in sorted((common | server) - {*codes_of(operation.errors)}):
        yield f"{operation.name} has no condition for the error {code}"
    if operation.details != anchor_of(operation.name):
        yield f"{operation.name} does not link to its section on every catalog"


def other_codes(operation: Operation) -> Iterator[str]:
    """Yield if an operation refers to its section on every catalog with other codes."""
    common = codes_of(COMMON_SPEC.operation(operation.name).errors)
    if operation.common_errors != (anchor_of(operation.name), common):
        yield f"{operation.name} has other codes on every catalog: {common}"


def codes_of(errors: Iterable[ErrorParagraph]) -> dict[int, str]:
    return {code: name for error in errors for code, name in error.codes.items()}


@every_spec
def test_an_operation_has_steps_and_the_conditions_of_its_errors(spec: Spec) -> None:
    assert list(faults(spec)) == []


def test_errors_of_every_catalog_are_those_of_the_methods() -> None:
    found = {name: COMMON_SPEC.operation(name) for name in common_operations()}
    bad = [each for name, common in found.items() for each in bad_errors(name, common.errors)]
    assert bad == []
    assert [name for name, common in found.items() if not common.errors] == []
    assert list(bad_errors(COMMON_ERRORS, EVERY_CATALOG)) == []
    for spec in SPECS.values():
        for name in shared_operations(spec):
            documented = documented_codes(namespace_class(spec.name), operations()[name])
            assert found[name].has_numbered_steps, name
            assert documented <= found[name].codes, name
