"""``specs/operations.md`` says what operations inside a table do: its fields, codes and cases."""

from __future__ import annotations

import re
import typing
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from core.memory_catalog import MemoryNamespace
from lance_namespace import errors
from pydantic import BaseModel

from lance_bridge.operations.compute import UNSUPPORTED
from lance_bridge_cli.managed import app as managed_app

from .operation_samples import FIELDS, call, fill, new_namespace, request_type, stage
from .spec_facts import (
    OPERATIONS_SPEC,
    documented_codes,
    is_implemented,
    methods_of_managed_tables,
    misnamed_codes,
    operations,
    operations_inside,
)
from .spec_reader import Operation, anchor_of, named_tests

COMMON_FIELDS = "Fields of Every Request"
METHODS = operations()
OPERATIONS = operations_inside()
BEYOND = methods_of_managed_tables()
FINDING = "Errors of Finding the Table"
WITH_ERRORS = [*OPERATIONS, *BEYOND, FINDING, "Errors of Every Operation"]
WHOLE = ("identity", "virtual_column")
"""Fields without effect, or refused as a whole: what is in them need not be told."""


def section(name: str) -> Operation:
    return OPERATIONS_SPEC.operation(name)


def fields_told(name: str) -> dict[str, str]:
    """The fields that a section names, and those that it refers to."""
    found = section(name)
    referred = fields_told(found.same_fields_as) if found.same_fields_as else {}
    return {**referred, **found.fields}


def text_about(name: str) -> str:
    """What is said of a request, also by the section that is referred to."""
    other = section(name).same_fields_as
    return section(name).text + (text_about(other) if other else "")


def models_in(annotation: Any) -> Iterator[type[BaseModel]]:
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        yield annotation
    for argument in typing.get_args(annotation):
        yield from models_in(argument)


def inner_fields(model: type[BaseModel], seen: set[type[BaseModel]]) -> Iterator[str]:
    """Yield the fields inside a request's fields, but not those of other requests in it."""
    for name, field in model.model_fields.items():
        if name in WHOLE:
            continue
        for inner in models_in(field.annotation):
            if inner in seen or inner.__name__.endswith("Request"):
                continue
            seen.add(inner)
            yield from inner.model_fields
            yield from inner_fields(inner, seen)


# -- every operation -------------------------------------------------------------------------------


def test_every_operation_inside_a_table_has_a_section_and_a_sample() -> None:
    assert {METHODS[name] for name in OPERATIONS} == set(FIELDS)


def test_every_operation_that_no_catalog_can_do_is_listed_with_the_reason() -> None:
    listed = OPERATIONS_SPEC.body("Unsupported Operations")
    names = re.findall(r"\*\*(\w+)\*\*", listed)

    assert sorted(METHODS[name] for name in names) == sorted(UNSUPPORTED)
    assert "need a compute engine" in " ".join(listed.split())
    assert all("compute engine" in reason for reason in UNSUPPORTED.values())


def test_an_operation_has_a_description_and_numbered_steps() -> None:
    sections = [section(name) for name in (*OPERATIONS, *BEYOND)]

    assert [each.name for each in sections if not each.description] == []
    assert [each.name for each in sections if not each.has_numbered_steps] == []


def test_an_operation_says_what_it_answers() -> None:
    assert [name for name in OPERATIONS if not section(name).answer] == []


def test_the_command_is_told_as_it_is() -> None:
    text = " ".join(OPERATIONS_SPEC.body("Out-of-Band Versions").split())
    told = re.search(r"in their order: (.*?); it comes with", text)
    commands = [each.callback for each in managed_app.registered_commands]

    assert told
    assert re.findall(r"`(\w+)`", told[1]) == [each.__name__ for each in commands if each]
    assert len(commands) == len(BEYOND)


# -- fields ----------------------------------------------------------------------------------------


def test_every_field_of_a_request_is_told_and_no_other() -> None:
    common = set(re.findall(r"^- \*\*(\w+)\*\*: ", OPERATIONS_SPEC.body(COMMON_FIELDS), re.M))
    fields = {name: set(request_type(METHODS[name]).model_fields) - common for name in OPERATIONS}

    assert common == {"id", "identity", "context"}
    assert {name: set(fields_told(name)) for name in OPERATIONS} == fields


def test_every_field_inside_a_field_is_told() -> None:
    missing = {}
    for name in OPERATIONS:
        inner = set(inner_fields(request_type(METHODS[name]), set()))
        told = set(re.findall(r"\w+", " ".join(re.findall(r"`([^`]+)`", text_about(name)))))
        missing[name] = inner - told

    assert {name: fields for name, fields in missing.items() if fields} == {}


def refused_fields() -> list[tuple[str, str, int]]:
    return [
        (METHODS[name], field, code)
        for name in OPERATIONS
        for field, code in section(name).refused.items()
    ]


def value_of(model: type[BaseModel], field: str) -> Any:
    """Return a value that a field can have."""
    text = str(model.model_fields[field].annotation)
    if "Dict" in text:
        return {"a": "b"}
    return 1 if "int" in text or "float" in text else "x"


def test_fields_are_refused() -> None:
    assert len(refused_fields()) > 10


def test_a_field_that_is_refused_is_refused_by_name(tmp_path: Path) -> None:
    ns, _ = new_namespace(tmp_path / "lake")
    fill(ns)
    place = tmp_path / "lake" / "eu" / "shop" / "sales.db" / "orders.lance"
    for method, field, code in refused_fields():
        fields = stage(place) if method == "create_table_version" else {}
        value = value_of(request_type(method), field)
        with pytest.raises(errors.LanceNamespaceError, match=rf"\b{field}\b") as caught:
            call(ns, method, **fields, **{field: value})
        assert caught.value.code == code, f"{method}: {field}"


# -- errors ----------------------------------------------------------------------------------------


def codes_of(name: str) -> set[int]:
    """The codes of a section, with those that it refers to."""
    return section(name).codes | set(section(name).common_errors[1])


def test_the_codes_of_a_section_are_those_that_its_method_documents() -> None:
    documented = {name: documented_codes(MemoryNamespace, METHODS[name]) for name in OPERATIONS}

    assert {name: codes_of(name) for name in OPERATIONS} == documented


def test_the_codes_of_a_method_beyond_the_interface_are_those_it_documents() -> None:
    documented = {name: documented_codes(MemoryNamespace, name) for name in BEYOND}

    assert {name: codes_of(name) for name in BEYOND} == documented


def test_the_codes_of_finding_the_table_are_those_of_its_section() -> None:
    described = section(FINDING).codes

    for name in (*OPERATIONS, *BEYOND):
        fragment, named = section(name).common_errors
        assert fragment == anchor_of(FINDING)
        assert {1, 4, 13, 19} <= set(named) <= described


def test_an_error_is_one_paragraph_with_its_code_and_tests() -> None:
    errors_of = {name: section(name).errors for name in WITH_ERRORS}
    found = [each for errors_here in errors_of.values() for each in errors_here]

    silent = [name for name, errors_here in errors_of.items() if not errors_here]
    assert [name for name in silent if not section(name).common_errors] == []
    assert [each.text for each in found if not each.is_well_formed] == []
    assert misnamed_codes(found) == []
    assert [each.text for each in found if not each.is_tested] == []


def test_an_operation_that_is_not_there_has_no_section() -> None:
    absent = [name for name in OPERATIONS if not is_implemented(MemoryNamespace, METHODS[name])]

    assert absent == []


# -- differences -----------------------------------------------------------------------------------


def test_a_difference_from_the_directory_namespace_names_its_test() -> None:
    rows = OPERATIONS_SPEC.rows("Differences from the Directory Namespace", "Operation")

    assert len(rows) > 20
    assert [row for row in rows if not named_tests(row[-1])] == []
