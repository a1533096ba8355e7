"""Names: identifiers that are checked first, names that are paths, and names in messages."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import lance_namespace as api
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from lance_namespace.errors import InvalidInputError, LanceNamespaceError

from lance_bridge.catalog import Capabilities, NameRule
from lance_bridge.locations import is_path
from lance_bridge.names import first_names
from lance_bridge.requests import parse_namespace, parse_table, parse_table_namespace
from lance_bridge.testing.calls import Calls

from .building import TABLE
from .memory_catalog import MemoryNamespace

pytestmark = [pytest.mark.quick, pytest.mark.spec("common.md#names")]


def rule(noun: str, longest: int) -> NameRule:
    return NameRule(noun, re.compile(r"[A-Za-z0-9_]+"), "letters, digits and '_'", longest)


EXACT = Capabilities(
    namespace_levels=(rule("catalog", 8), rule("schema", 10)), table_rule=rule("table", 12)
)
FOLDING = replace(EXACT, folds_case=True)


def test_identifiers_with_a_name_on_each_level_are_paths() -> None:
    assert parse_namespace(["a"], EXACT) == ("a",)
    assert parse_namespace(["a", "b"], EXACT) == ("a", "b")
    assert parse_table_namespace(["a", "b"], EXACT) == ("a", "b")
    assert parse_table(["a", "b", "c"], EXACT) == ("a", "b", "c")


@pytest.mark.parametrize(
    ("parse", "identifiers", "problem"),
    [
        (parse_namespace, [["a", "b", "c"]], r"3 names; this catalog has 2: \[catalog, schema\]"),
        (
            parse_table_namespace,
            [None, [], ["a"], ["a", "b", "c"]],
            r"tables are in 2: \[catalog, schema\]",
        ),
        (
            parse_table,
            [[], ["a"], ["a", "b"], ["a", "b", "c", "d"]],
            r"^\D*[0124] names?; .*\[catalog, schema, table\]",
        ),
        (parse_table, [None], "`id`"),
        (parse_table, [["a", "b", each] for each in (None, 1, b"a", ["a"])], "must be a string"),
    ],
)
def test_an_identifier_that_cannot_be_is_invalid_and_says_why(
    parse: Callable[..., object], identifiers: list[object], problem: str
) -> None:
    for each in identifiers:
        with pytest.raises(InvalidInputError, match=problem):
            parse(each, EXACT)


@given(st.lists(st.text(max_size=14), max_size=5))
def test_what_gets_through_is_safe_and_anything_else_is_invalid(names: list[str]) -> None:
    safe = len(names) == 3 and all(re.fullmatch(r"[A-Za-z0-9_]+", name) for name in names)
    if safe and all(len(name) <= most for name, most in zip(names, (8, 10, 12), strict=True)):
        assert parse_table(names, FOLDING) == tuple(name.lower() for name in names)
    else:
        with pytest.raises(InvalidInputError):
            parse_table(names, FOLDING)


def test_a_huge_bad_name_does_not_make_a_huge_message() -> None:
    with pytest.raises(InvalidInputError) as caught:
        parse_table(["x" * 100_000] * 1000, EXACT)
    assert len(str(caught.value)) < 1000


# -- names in messages -----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("count", "text"), [(0, ""), (1, "a"), (2, "a, b"), (3, "a, b and 1 more")]
)
def test_a_message_has_the_first_names_and_the_number_of_others(count: int, text: str) -> None:
    assert first_names(["a", "b", "c"][:count], 2) == text


# -- names of columns and indices that are paths ---------------------------------------------------


PATHS = [
    "../../etc/passwd",
    "/etc/passwd",
    "a/../../b",
    "..",
    ".",
    "\\\\host\\share",
    "..\\x",
    "C:\\x",
    "c:/x",
    "file:///etc/passwd",
    "s3://bucket/x",
    "~/x",
]
NAMES = ["km/h", "a..b", "and/or", "été", "a:b", ".hidden", "x~y", "50%", "C:"]


@pytest.mark.parametrize("name", PATHS)
def test_a_path_is_no_name_of_an_index_or_a_column(with_table: MemoryNamespace, name: str) -> None:
    calls = Calls(with_table)
    changes: dict[str, dict[str, Any]] = {
        "create_table_index": {"column": "a", "index_type": "BTREE", "name": name},
        "alter_table_add_columns": {"new_columns": [{"name": name, "expression": "1"}]},
        "alter_table_alter_columns": {"alterations": [{"path": "a", "rename": name}]},
        "create_table_tag": {"tag": name, "version": 1},
    }
    for operation, fields in changes.items():
        with pytest.raises(InvalidInputError):
            calls.call(operation, TABLE, **fields)
    with pytest.raises(InvalidInputError):
        calls.create_table([*TABLE[:-1], "other"], pa.table({name: [1]}))
    assert is_path(name)
    assert calls.list_tables(TABLE[:-1]).tables == [TABLE[-1]]


@pytest.mark.parametrize("name", NAMES)
def test_other_names_may_have_slashes_dots_and_colons(name: str) -> None:
    assert not is_path(name)


LONG = "a" * 5000


def test_what_a_message_repeats_of_a_request_is_cut(with_table: MemoryNamespace) -> None:
    for predicate in (f"{LONG} = 1", f"`{LONG}` > 1", f"a = '{LONG}", f"a = {LONG}(1)"):
        with pytest.raises(LanceNamespaceError) as failed:
            with_table.count_table_rows(api.CountTableRowsRequest(id=TABLE, predicate=predicate))
        assert len(str(failed.value)) < 1000
        assert "aaa…" in str(failed.value)
        with pytest.raises(LanceNamespaceError) as failed:
            with_table.delete_from_table(api.DeleteFromTableRequest(id=TABLE, predicate=predicate))
        assert len(str(failed.value)) < 1000
    with pytest.raises(LanceNamespaceError) as failed:
        with_table.drop_table_index(api.DropTableIndexRequest(id=TABLE, index_name=LONG))
    assert len(str(failed.value)) < 500
