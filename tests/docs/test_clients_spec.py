"""`specs/clients.md` names every method of LanceDB, and a test that calls it where it works."""

from __future__ import annotations

import ast
import inspect
import re
from dataclasses import dataclass
from functools import cache
from typing import Any

import pytest
from lancedb.namespace import AsyncLanceNamespaceDBConnection, LanceNamespaceDBConnection
from lancedb.table import AsyncBranches, AsyncTable, AsyncTags, Branches, LanceTable, Tags

from .spec_facts import REPOSITORY

SPEC = REPOSITORY / "specs" / "clients.md"
CASES = REPOSITORY / "tests" / "clients"
CLASSES: dict[str, tuple[type[Any], type[Any]]] = {
    "connection": (LanceNamespaceDBConnection, AsyncLanceNamespaceDBConnection),
    "table": (LanceTable, AsyncTable),
    "tags": (Tags, AsyncTags),
    "branches": (Branches, AsyncBranches),
}
"""By the head of the first column of a table in the spec: LanceDB's classes."""
WORKS, NO, ABSENT = "works", "no", "none"
_LINK = re.compile(r"\[`(\w+)`\]\(\.\./tests/clients/([\w/]+\.py)\)")

every_table = pytest.mark.parametrize("name", CLASSES)


@dataclass(frozen=True)
class Row:
    """One method: what is said of it in its synchronous and its asynchronous form."""

    method: str
    answers: tuple[str, str]
    reason: str
    cases: tuple[tuple[str, str], ...]
    """Names of tests, and their files."""


def rows_of(name: str) -> list[Row]:
    """Return the rows of the table whose first column is headed by `name`."""
    lines = SPEC.read_text(encoding="utf-8").splitlines()
    start = next(n for n, line in enumerate(lines) if line.startswith(f"| {name} |"))
    found = []
    for line in lines[start + 2 :]:
        if not line.startswith("|"):
            break
        method, sync, later, reason = (cell.strip() for cell in line.strip("|").split("|"))
        cases = tuple(_LINK.findall(reason))
        found.append(Row(method.strip("`"), (sync, later), _LINK.sub("", reason), cases))
    return found


def public(kind: type[Any]) -> set[str]:
    return {name for name, _ in inspect.getmembers(kind) if not name.startswith("_")}


@cache
def names_in_case(file: str, case: str) -> frozenset[str]:
    """Return the attributes and the strings that a test uses."""
    for function in ast.parse((CASES / file).read_text(encoding="utf-8")).body:
        if isinstance(function, ast.FunctionDef | ast.AsyncFunctionDef) and function.name == case:
            nodes = list(ast.walk(function))
            attributes = {each.attr for each in nodes if isinstance(each, ast.Attribute)}
            strings = {each.value for each in nodes if isinstance(each, ast.Constant)}
            return frozenset(attributes | {each for each in strings if isinstance(each, str)})
    pytest.fail(f"{file} has no test {case}")


@every_table
def test_every_public_method_of_lancedb_is_in_the_document(name: str) -> None:
    rows = rows_of(name)
    methods = [row.method for row in rows]
    assert methods == sorted(set(methods))
    for number, kind in enumerate(CLASSES[name]):
        assert {row.answers[number] for row in rows} <= {WORKS, NO, ABSENT}
        named = {row.method for row in rows if row.answers[number] != ABSENT}
        assert named == public(kind), f"{kind.__name__}: update {SPEC.name}"


@every_table
def test_what_works_is_called_by_the_test_that_is_named(name: str) -> None:
    for row in rows_of(name):
        is_async = {"async" in file for _, file in row.cases}
        for answer, wanted in zip(row.answers, (False, True), strict=True):
            assert answer != WORKS or wanted in is_async, f"{row.method}: no test is named"
        for case, file in row.cases:
            assert row.method in names_in_case(file, case), f"{case} does not use {row.method}"


@every_table
def test_what_does_not_work_has_its_reason(name: str) -> None:
    for row in rows_of(name):
        assert NO not in row.answers or len(row.reason.strip(" :,")) > 10, row.method
