"""Identifiers are checked before anything is sent."""

from __future__ import annotations

import re
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from lance_namespace.errors import InvalidInputError

from lance_bridge.catalog import Capabilities, NameRule
from lance_bridge.requests import parse_namespace, parse_table, parse_table_namespace


def rule(noun: str, longest: int) -> NameRule:
    return NameRule(noun, re.compile(r"[A-Za-z0-9_]+"), "letters, digits and '_'", longest)


EXACT = Capabilities(
    namespace_levels=(rule("catalog", 8), rule("schema", 10)), table_rule=rule("table", 12)
)
FOLDING = replace(EXACT, folds_case=True)


def test_the_root_is_a_namespace_however_it_is_given() -> None:
    assert parse_namespace(None, EXACT) == ()
    assert parse_namespace([], EXACT) == ()


def test_a_namespace_has_at_most_the_levels_of_the_catalog() -> None:
    assert parse_namespace(["a"], EXACT) == ("a",)
    assert parse_namespace(["a", "b"], EXACT) == ("a", "b")
    with pytest.raises(
        InvalidInputError, match=r"3 names; this catalog has 2: \[catalog, schema\]"
    ):
        parse_namespace(["a", "b", "c"], EXACT)


@pytest.mark.parametrize("names", [None, [], ["a"], ["a", "b", "c"]])
def test_only_the_innermost_namespaces_hold_tables(names: list[str] | None) -> None:
    assert parse_table_namespace(["a", "b"], EXACT) == ("a", "b")
    with pytest.raises(InvalidInputError, match=r"tables are in 2: \[catalog, schema\]"):
        parse_table_namespace(names, EXACT)


@pytest.mark.parametrize("names", [[], ["a"], ["a", "b"], ["a", "b", "c", "d"]])
def test_a_table_has_a_name_on_every_level(names: list[str]) -> None:
    assert parse_table(["a", "b", "c"], EXACT) == ("a", "b", "c")
    with pytest.raises(
        InvalidInputError, match=rf"{len(names)} names?; .*\[catalog, schema, table\]"
    ):
        parse_table(names, EXACT)


def test_a_missing_table_identifier_says_which_field_is_missing() -> None:
    with pytest.raises(InvalidInputError, match="`id`"):
        parse_table(None, EXACT)


def test_names_are_folded_only_where_the_catalog_folds() -> None:
    assert parse_table(["A", "bC", "De"], EXACT) == ("A", "bC", "De")
    assert parse_table(["A", "bC", "De"], FOLDING) == ("a", "bc", "de")
    assert parse_namespace(["A"], FOLDING) == ("a",)


@pytest.mark.parametrize("name", [None, 1, b"a", ["a"]])
def test_a_name_that_is_no_string_is_refused(name: object) -> None:
    with pytest.raises(InvalidInputError, match="must be a string"):
        parse_table(["a", "b", name], EXACT)  # type: ignore[list-item]  # as a careless caller does


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
