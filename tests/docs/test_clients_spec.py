"""`specs/clients.md` names every method of LanceDB, and a test calls each that works."""

from __future__ import annotations

import inspect
from dataclasses import dataclass
from itertools import takewhile
from typing import Any

import pytest
from lancedb.namespace import AsyncLanceNamespaceDBConnection, LanceNamespaceDBConnection
from lancedb.table import AsyncBranches, AsyncTable, AsyncTags, Branches, LanceTable, Tags

from .spec_facts import REPOSITORY
from .spec_links import names_used_for

pytestmark = pytest.mark.checks

SPEC = REPOSITORY / "specs" / "clients.md"
CLASSES: dict[str, tuple[type[Any], type[Any]]] = {
    "connection": (LanceNamespaceDBConnection, AsyncLanceNamespaceDBConnection),
    "table": (LanceTable, AsyncTable),
    "tags": (Tags, AsyncTags),
    "branches": (Branches, AsyncBranches),
}
"""By the head of the first column of a table in the spec: LanceDB's classes."""
SECTIONS = {
    "connection": "clients.md#the-connection",
    "table": "clients.md#the-table",
    "tags": "clients.md#tags",
    "branches": "clients.md#branches",
}
"""Of these tables."""
WORKS, NO, ABSENT = "works", "no", "none"

every_table = pytest.mark.parametrize("name", CLASSES)


@dataclass(frozen=True)
class Row:
    """One method: what is said of it in its synchronous and its asynchronous form."""

    method: str
    answers: tuple[str, str]
    reason: str


def rows_of(name: str) -> list[Row]:
    """Return the rows of the table whose first column is headed by `name`."""
    lines = SPEC.read_text(encoding="utf-8").splitlines()
    start = next(n for n, line in enumerate(lines) if line.startswith(f"| {name} |"))
    found = []
    for line in takewhile(lambda line: line.startswith("|"), lines[start + 2 :]):
        method, sync, later, reason = (cell.strip() for cell in line.strip("|").split("|"))
        found.append(Row(method.strip("`"), (sync, later), reason))
    return found


def public(kind: type[Any]) -> set[str]:
    return {name for name, _ in inspect.getmembers(kind) if not name.startswith("_")}


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
def test_what_works_is_called_by_a_test_of_its_section_and_other_rows_have_a_reason(
    name: str,
) -> None:
    used: dict[bool, set[str]] = {False: set(), True: set()}
    for file, names in names_used_for(SECTIONS[name]).items():
        used["async" in file.name] |= names
    for row in rows_of(name):
        for answer, is_async in zip(row.answers, (False, True), strict=True):
            assert answer != WORKS or row.method in used[is_async], f"no test uses {row.method}"
        assert NO not in row.answers or len(row.reason.strip(" :,")) > 10, row.method
