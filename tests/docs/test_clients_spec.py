"""`specs/clients.md` names every method of LanceDB, and a test that calls it where it works."""

from __future__ import annotations

import ast
import inspect
from dataclasses import dataclass
from functools import cache
from itertools import takewhile
from typing import Any

import pytest
from lancedb.namespace import AsyncLanceNamespaceDBConnection, LanceNamespaceDBConnection
from lancedb.table import AsyncBranches, AsyncTable, AsyncTags, Branches, LanceTable, Tags

from .spec_facts import REPOSITORY
from .spec_reader import function_links, without_references

SPEC = REPOSITORY / "specs" / "clients.md"
CLASSES: dict[str, tuple[type[Any], type[Any]]] = {
    "connection": (LanceNamespaceDBConnection, AsyncLanceNamespaceDBConnection),
    "table": (LanceTable, AsyncTable),
    "tags": (Tags, AsyncTags),
    "branches": (Branches, AsyncBranches),
}
"""By the head of the first column of a table in the spec: LanceDB's classes."""
WORKS, NO, ABSENT = "works", "no", "none"

every_table = pytest.mark.parametrize("name", CLASSES)


@dataclass(frozen=True)
class Row:
    """One method: what is said of it in its synchronous and its asynchronous form."""

    method: str
    answers: tuple[str, str]
    reason: str
    tests: tuple[tuple[str, str], ...]
    """Names of functions, and files from the root of the repository."""


def rows_of(name: str) -> list[Row]:
    """Return the rows of the table whose first column is headed by `name`."""
    lines = SPEC.read_text(encoding="utf-8").splitlines()
    start = next(n for n, line in enumerate(lines) if line.startswith(f"| {name} |"))
    found = []
    for line in takewhile(lambda line: line.startswith("|"), lines[start + 2 :]):
        cells = without_references(line).strip("|").split("|")
        method, sync, later, reason = (cell.strip() for cell in cells)
        tests = tuple(function_links(line))
        found.append(Row(method.strip("`"), (sync, later), reason, tests))
    return found


def public(kind: type[Any]) -> set[str]:
    return {name for name, _ in inspect.getmembers(kind) if not name.startswith("_")}


@cache
def names_in_test(file: str, test: str) -> frozenset[str]:
    """Return the attributes and the strings that a test uses."""
    for function in ast.parse((REPOSITORY / file).read_text(encoding="utf-8")).body:
        if isinstance(function, ast.FunctionDef | ast.AsyncFunctionDef) and function.name == test:
            nodes = list(ast.walk(function))
            attributes = {each.attr for each in nodes if isinstance(each, ast.Attribute)}
            strings = {each.value for each in nodes if isinstance(each, ast.Constant)}
            return frozenset(attributes | {each for each in strings if isinstance(each, str)})
    pytest.fail(f"{file} has no test {test}")


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
        is_async = {"async" in file for _, file in row.tests}
        for answer, wanted in zip(row.answers, (False, True), strict=True):
            assert answer != WORKS or wanted in is_async, f"{row.method}: no test is named"
        for test, file in row.tests:
            assert row.method in names_in_test(file, test), f"{test} does not use {row.method}"


@every_table
def test_what_does_not_work_has_its_reason(name: str) -> None:
    for row in rows_of(name):
        assert NO not in row.answers or len(row.reason.strip(" :,")) > 10, row.method
