"""A spec says what the code does: its properties, operations and error codes are compared.

`SPECS` are the specs of catalogs, by the names under which those are registered.
"""

from __future__ import annotations

import importlib
import re
from collections.abc import Iterator

import pytest

import lance_bridge
from lance_bridge import LanceBridgeNamespace
from lance_bridge.operations.compute import UNSUPPORTED

from .spec_facts import (
    OPERATIONS_SPEC,
    SPECS,
    bad_errors,
    documented_codes,
    is_implemented,
    operations,
    operations_inside,
)
from .spec_reader import Spec, StatedProperty, error_paragraphs, paragraphs

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
INSIDE = "Operations Inside a Table"
MANAGED = "Implementation-Managed Tables"

every_spec = pytest.mark.parametrize("spec", SPECS.values(), ids=SPECS)


def operation_names(spec: Spec) -> list[str]:
    return spec.below("Basic Operations") + spec.below("Further Operations")


def namespace_class(spec: Spec) -> type[LanceBridgeNamespace]:
    """The class that is registered under the spec's name."""
    module, _, name = lance_bridge.catalogs()[spec.name].rpartition(".")
    found: type[LanceBridgeNamespace] = getattr(importlib.import_module(module), name)
    return found


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
def test_the_properties_of_a_spec_are_those_that_the_catalog_declares(spec: Spec) -> None:
    assert spec.properties == {
        each.key: StatedProperty(each.required, each.default, each.secret)
        for each in namespace_class(spec).config_type.declared()
    }


@every_spec
def test_every_operation_is_specified_exactly_once(spec: Spec) -> None:
    """Here, or with those that are the same on every catalog, or with the reason why it is not."""
    kind, methods = namespace_class(spec), operations()
    unsupported = {name for name, method in methods.items() if method in UNSUPPORTED}
    specified = [*operation_names(spec), *operations_inside()]
    assert sorted((*specified, *unsupported)) == sorted(methods)
    assert [name for name in specified if not is_implemented(kind, methods[name])] == []
    listed = spec.body("Unsupported Operations")
    assert {name for name in methods if re.search(rf"\b{name}\b", listed)} == unsupported
    links = re.findall(r"\[(\w+)\]\(operations\.md#(\w+)\)", spec.body(INSIDE))
    assert sorted(name for name, _ in links) == sorted(operations_inside())
    assert [name for name, anchor in links if anchor != name.lower()] == []


def faults(spec: Spec) -> Iterator[str]:
    """Yield what is wrong with the sections of operations."""
    kind, methods = namespace_class(spec), operations()
    for operation in map(spec.operation, operation_names(spec)):
        if not operation.description or not operation.has_numbered_steps:
            yield f"{operation.name} has no description, or no numbered steps"
        for code in documented_codes(kind, methods[operation.name]) - operation.codes:
            yield f"{operation.name} does not describe the error {code}"
        yield from bad_errors(operation.name, operation.errors)
    yield from bad_errors(COMMON_ERRORS, error_paragraphs(spec.body(COMMON_ERRORS)))
    if not (spec.body(MANAGED).strip() and OPERATIONS_SPEC.body(MANAGED).strip()):
        yield "nothing is said of managed tables"


@every_spec
def test_an_operation_has_steps_and_errors_that_tests_show(spec: Spec) -> None:
    assert list(faults(spec)) == []
