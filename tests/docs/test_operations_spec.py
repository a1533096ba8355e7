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

from lance_bridge import engine
from lance_bridge.operations.compute import UNSUPPORTED
from lance_bridge_cli.managed import app as managed_app

from .operation_samples import FIELDS, call, fill, new_namespace, request_type, stage
from .spec_facts import (
    OPERATIONS_SPEC,
    bad_errors,
    documented_codes,
    is_implemented,
    methods_of_managed_tables,
    operations,
    operations_inside,
)
from .spec_reader import Operation, anchor_of

pytestmark = pytest.mark.checks

COMMON_FIELDS = "Fields of Every Request"
METHODS = operations()
OPERATIONS = operations_inside()
BEYOND = methods_of_managed_tables()
FINDING = "Errors of Finding the Table"
WITH_ERRORS = [*OPERATIONS, *BEYOND, FINDING, "Errors of Every Operation"]
WHOLE = ("identity", "virtual_column")
"""Fields without effect, or refused as a whole: what is in them need not be documented."""


def section(name: str) -> Operation:
    return OPERATIONS_SPEC.operation(name)


def stated_fields(name: str) -> dict[str, str]:
    """The fields that a section names, and those that it refers to."""
    found = section(name)
    referred = stated_fields(found.same_fields_as) if found.same_fields_as else {}
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
    assert "compute engine" in engine.HOW


def test_the_commands_are_documented_in_their_order() -> None:
    text = " ".join(OPERATIONS_SPEC.body("Implementation-Managed Tables").split())
    stated = re.search(r"in their order: (.*?); it comes with", text)
    commands = [each.callback for each in managed_app.registered_commands]

    assert stated
    assert re.findall(r"`(\w+)`", stated[1]) == [each.__name__ for each in commands if each]
    assert len(commands) == len(BEYOND)


# -- fields ----------------------------------------------------------------------------------------


def test_the_documented_fields_are_those_of_the_request() -> None:
    common = set(re.findall(r"^- \*\*(\w+)\*\*: ", OPERATIONS_SPEC.body(COMMON_FIELDS), re.M))
    fields = {name: set(request_type(METHODS[name]).model_fields) - common for name in OPERATIONS}

    assert common == {"id", "identity", "context"}
    assert {name: set(stated_fields(name)) for name in OPERATIONS} == fields


def test_every_nested_field_is_documented() -> None:
    missing = {}
    for name in OPERATIONS:
        inner = set(inner_fields(request_type(METHODS[name]), set()))
        stated = set(re.findall(r"\w+", " ".join(re.findall(r"`([^`]+)`", text_about(name)))))
        missing[name] = inner - stated

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


def test_a_section_has_an_answer_steps_and_the_errors_of_its_method() -> None:
    sections = [section(name) for name in (*OPERATIONS, *BEYOND)]
    methods = {**METHODS, **{name: name for name in BEYOND}}
    documented = {
        each.name: documented_codes(MemoryNamespace, methods[each.name]) for each in sections
    }
    assert {each.name: each.codes for each in sections} == documented
    assert [each.name for each in sections if not each.description] == []
    assert [each.name for each in sections if not each.has_numbered_steps] == []
    assert [name for name in OPERATIONS if not section(name).answer] == []
    assert [name for name in OPERATIONS if not is_implemented(MemoryNamespace, METHODS[name])] == []
    assert [bad for name in WITH_ERRORS for bad in bad_errors(name, section(name).errors)] == []


def test_a_section_refers_to_the_errors_of_finding_the_table() -> None:
    described = section(FINDING).codes
    for name in (*OPERATIONS, *BEYOND):
        fragment, named = section(name).common_errors
        assert fragment == anchor_of(FINDING), name
        assert {1, 4, 13, 19} <= set(named) <= described, name
