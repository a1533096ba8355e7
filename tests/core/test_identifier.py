"""Names: identifiers that are checked first, names that are paths, and names in messages."""

from __future__ import annotations

import re
from dataclasses import replace

import lance_namespace as api
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from lance_namespace.errors import InvalidInputError, LanceNamespaceError
from lance_namespace_urllib3_client.models import AddColumnsEntry, AlterColumnsEntry

from lance_bridge.catalog import Capabilities, NameRule
from lance_bridge.locations import is_path
from lance_bridge.names import first_names
from lance_bridge.requests import parse_namespace, parse_table, parse_table_namespace
from lance_bridge.testing.build import ipc

from .building import TABLE
from .memory_catalog import MemoryNamespace

pytestmark = [pytest.mark.quick, pytest.mark.spec("common.md#names")]


def rule(noun: str, longest: int) -> NameRule:
    return NameRule(noun, re.compile(r"[A-Za-z0-9_]+"), "letters, digits and '_'", longest)


EXACT = Capabilities(
    namespace_levels=(rule("catalog", 8), rule("schema", 10)), table_rule=rule("table", 12)
)
FOLDING = replace(EXACT, folds_case=True)


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
    index = api.CreateTableIndexRequest(id=TABLE, column="a", index_type="BTREE", name=name)
    added = api.AlterTableAddColumnsRequest(
        id=TABLE, new_columns=[AddColumnsEntry(name=name, expression="1")]
    )
    renamed = api.AlterTableAlterColumnsRequest(
        id=TABLE, alterations=[AlterColumnsEntry(path="a", rename=name)]
    )
    other = api.CreateTableRequest(id=[*TABLE[:-1], "other"])
    for call in (
        lambda: with_table.create_table_index(index),
        lambda: with_table.alter_table_add_columns(added),
        lambda: with_table.alter_table_alter_columns(renamed),
        lambda: with_table.create_table(other, ipc(pa.table({name: [1]}))),
        lambda: with_table.create_table_tag(
            api.CreateTableTagRequest(id=TABLE, tag=name, version=1)
        ),
    ):
        with pytest.raises(InvalidInputError):
            call()
    assert is_path(name)
    tables = with_table.list_tables(api.ListTablesRequest(id=TABLE[:-1])).tables
    assert tables == [TABLE[-1]]


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
