"""SQL in requests: what is refused before anything is read, with which code, and what passes."""

from __future__ import annotations

from pathlib import Path

import lance
import lance_namespace as api
import pyarrow as pa
import pytest
from lance_namespace import errors

from lance_bridge.dataset import expressions
from lance_bridge.errors import LANCE_ERRORS

from .building import TABLE
from .memory_catalog import MemoryNamespace
from .querying import ask, dataset, put

pytestmark = [
    pytest.mark.quick,
    pytest.mark.spec(
        "operations.md#counttablerows", "operations.md#expressions", "operations.md#querytable"
    ),
]

ROWS = pa.table(
    {
        "a": [1, 2, 3, None],
        "word": ["x", "y", None, "z"],
        "inner": [{"b": 1}, {"b": 2}, {"b": None}, None],
        "A b": [1, 2, 3, 4],
    }
)

BAD = [
    "((",
    "a = 1 = = 2",
    "a not in ()",
    "a[0] = 1",
    "a + 1",
    "a = 'x'",
    "word = 1",
    "inner = 1",
    "a = 99999999999999999999999",
    "a = 1, a = 2",
    "a = 1 -- comment\n; drop table t",
]
"""What `test_expressions_everywhere` does not try."""
NO_COLUMN = ["nope = 1", "a = 1 and nope = 2", "inner.nope = 1", "lower(nope) = 'x'", "`a b` = 1"]
ON_A_ROW = ["1 / (a - 2) = 1", "cast(word as int) = 1", "regexp_match(word, '[')"]


@pytest.fixture
def filled(namespace: MemoryNamespace) -> MemoryNamespace:
    put(namespace, ROWS)
    return namespace


def count(ns: MemoryNamespace, predicate: str) -> int | None:
    return ns.count_table_rows(api.CountTableRowsRequest(id=TABLE, predicate=predicate)).count


@pytest.mark.parametrize("predicate", BAD, ids=lambda text: ascii(text[:30]))
def test_a_bad_predicate_is_invalid_input_wherever_it_is(
    filled: MemoryNamespace, predicate: str
) -> None:
    with pytest.raises(errors.InvalidInputError, match="does not fit table"):
        count(filled, predicate)
    with pytest.raises(errors.InvalidInputError, match="does not fit table"):
        ask(filled, filter=predicate)
    with pytest.raises(errors.InvalidInputError, match="does not fit table"):
        ask(filled, filter=predicate, columns=["a"], prefilter=True)


@pytest.mark.spec("operations.md#deletefromtable")
@pytest.mark.parametrize("predicate", ON_A_ROW)
def test_a_predicate_that_fails_on_a_row_is_invalid_input(
    filled: MemoryNamespace, predicate: str
) -> None:
    with pytest.raises(errors.InvalidInputError, match=TABLE[-1]):
        count(filled, predicate)
    with pytest.raises(errors.InvalidInputError, match=TABLE[-1]):
        ask(filled, filter=predicate)


@pytest.mark.parametrize(
    ("predicate", "expected"),
    [
        ("a >= 2", 2),
        ("a >= 2 -- a comment", 2),
        ("a >= /* a comment */ 2", 2),
        ("word is null", 1),
        ("word = ';'", 0),
        ("inner.b = 2", 1),
        ("`A b` > 2", 2),
        ("true", 4),
        ("a = 1 or word = 'z'", 2),
        ("case when a = 1 then true else false end", None),
        ("a in (1, 2, 5)", 2),
    ],
)
def test_a_whole_predicate_is_honoured(
    filled: MemoryNamespace, predicate: str, expected: int | None
) -> None:
    if expected is None:
        # What Lance does not know is refused, not guessed.
        with pytest.raises(errors.InvalidInputError, match="does not fit"):
            count(filled, predicate)
        return
    assert count(filled, predicate) == expected
    assert ask(filled, filter=predicate).num_rows == expected


@pytest.mark.spec("operations.md#errors-of-every-operation")
def test_rows_that_cannot_be_read_are_no_fault_of_the_request(
    filled: MemoryNamespace,
) -> None:
    lose_data(filled)
    for predicate in ("a > 1", "word = 'x'"):
        with pytest.raises(errors.ServiceUnavailableError, match="queried"):
            ask(filled, filter=predicate)
        with pytest.raises(errors.ServiceUnavailableError, match="counted"):
            count(filled, predicate)


def test_pylance_says_what_is_read_from_its_texts(filled: MemoryNamespace) -> None:
    """The texts that decide between codes: with other ones, those codes would be wrong."""
    opened = dataset(filled)
    for predicate in NO_COLUMN:
        with pytest.raises(expressions.NOT_PLANNED) as missing:
            opened.scanner(filter=predicate).explain_plan()
        assert isinstance(
            expressions.to_plan_error(missing.value, ""), errors.TableColumnNotFoundError
        )
    for predicate in ON_A_ROW:
        with pytest.raises(LANCE_ERRORS) as failed:
            opened.scanner(filter=predicate).to_table()
        assert isinstance(expressions.to_query_error(failed.value, ""), errors.InvalidInputError)


def test_a_failure_of_storage_while_planning_is_no_fault_of_the_request() -> None:
    found = expressions.to_plan_error(OSError("No field named x: the disk is gone"), "Filter 'x'")
    assert isinstance(found, errors.ServiceUnavailableError)


def lose_data(ns: MemoryNamespace) -> None:
    """Remove a table's data files, and keep what says that they are there."""
    location = ns.describe_table(api.DescribeTableRequest(id=TABLE)).location
    files = list(Path(str(location)).glob("data/*.lance"))
    assert files
    for each in files:
        each.unlink()
    assert lance.dataset(location).count_rows() == ROWS.num_rows


@pytest.mark.spec("cli.md#table")
def test_a_missing_column_is_answered_with_the_columns_of_the_table(
    filled: MemoryNamespace,
) -> None:
    listed = "; its columns are a, word, inner, `A b`"
    # Of the last two, Lance only says which column it guesses, and nothing.
    for predicate in ("nope = 1", "lower(nope) = 'x'", "wor = 'x'", "inner.c = 1"):
        missing = r"there is no column (nope|wor|c|inner\.c)" + listed + "$"
        with pytest.raises(errors.TableColumnNotFoundError, match=missing):
            ask(filled, filter=predicate)
        with pytest.raises(errors.TableColumnNotFoundError, match=missing):
            filled.count_table_rows(api.CountTableRowsRequest(id=TABLE, predicate=predicate))


@pytest.mark.spec("cli.md#table")
def test_of_many_columns_the_first_are_listed(namespace: MemoryNamespace) -> None:
    put(namespace, pa.table({f"c{number}": [1] for number in range(50)}))
    with pytest.raises(errors.TableColumnNotFoundError, match=r"are c0, c1, .*, c19 and 30 more$"):
        ask(namespace, filter="nope = 1")
