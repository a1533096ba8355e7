"""SQL in requests, wherever it may stand: what passes, and one code for each fault."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import lance
import lance_namespace as api
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from lance_namespace import errors

from lance_bridge.dataset import expressions
from lance_bridge.errors import LANCE_ERRORS

from .memory_catalog import MemoryNamespace
from .memory_tables import TABLE
from .table_data import add, ask, backfill, dataset, make, unchanged
from .test_insert_update_delete import delete, update
from .test_merge import merge

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

Ask = Callable[[MemoryNamespace, str], Any]


def count(ns: MemoryNamespace, sql: str) -> Any:
    return ns.count_table_rows(api.CountTableRowsRequest(id=TABLE, predicate=sql)).count


def merge_update(ns: MemoryNamespace, sql: str) -> Any:
    sided = sql.replace("word", "source.word").replace("inner", "target.inner")
    return merge(ns, ROWS.slice(0, 2), on=["a"], when_matched_update_all_filt=sided)


def merge_delete(ns: MemoryNamespace, sql: str) -> Any:
    return merge(ns, ROWS.slice(0, 1), on=["a"], when_not_matched_by_source_delete_filt=sql)


PREDICATES: dict[str, Ask] = {
    "count": count,
    "filter": lambda ns, sql: ask(ns, filter=sql),
    "filter of a plan": lambda ns, sql: ns.explain_table_query_plan(
        api.ExplainTableQueryPlanRequest.model_validate(
            {"id": TABLE, "query": {"id": TABLE, "k": 1, "vector": {}, "filter": sql}}
        )
    ),
    "delete": delete,
    "update where": lambda ns, sql: update(ns, ("word", "'w'"), predicate=sql),
    "merge and update": merge_update,
    "merge and delete": merge_delete,
    "backfill where": lambda ns, sql: backfill(ns, "made", where=sql),
}
VALUES: dict[str, Ask] = {
    "query": lambda ns, sql: ask(ns, columns={"v": sql}),
    "update": lambda ns, sql: update(ns, ("word", sql)),
    "update of two": lambda ns, sql: update(ns, ("inner", "inner"), ("word", sql)),
    "add": lambda ns, sql: add(ns, {"name": "new", "expression": sql}),
    "add computed": lambda ns, sql: add(ns, {"name": "new", "computed": sql}),
}
EVERYWHERE = {**PREDICATES, **VALUES}

NOT_ONE_EXPRESSION = [
    "",
    " ",
    "word =",
    "word = 'x",
    "word = 'x' and",
    "word = 'x', word",
    "word = 'x'; drop table t",
    "word = 'x' -- comment\n; drop table t",
    "word = 'x' = = 2",
    "((",
    "word = 'x') or (word = 'y'",
    "word = 'x' limit 1",
    "word = 'x' group by word",
    "word = 'x' order by word",
    "word = 'x' from t",
    "word = 'x' as y",
    "select 1",
    "*",
    "(select 1) = 1",
    "word in (select word from t)",
    "exists(select 1)",
    "count(*) = 1",
    "row_number() over () = 1",
    "nothing_like_that(word) = 1",
    "cast(word as nothing) = 1",
    "word = ?",
    "word = $1",
    "word = :x",
    "word = @x",
    "word = N'x'",
    "word = B'0'",
    "word = r'x'",
    'word = b"x"',
    "word = e'x'",
    "word = u&'x'",
    "word = \0",
    "word = \udc80",
    "(" * 3000 + "word = 'x'" + ")" * 3000,
    "word = 'x'" + " = true" * expressions.MOST_STEPS,
    "1" + "::int" * 5000 + " = 1",
    " + ".join(["nullif(a, 1)"] * 800) + " = 1",
    "coalesce(0, " * 300 + "a" + ")" * 300 + " = 1",
    "word = ''" + " || 'x'" * 5000,
    " or ".join(["word = 'x'"] * (expressions.MOST_CONDITIONS + 1)),
]
NO_COLUMN = [
    "nope = 'x'",
    "word = 'x' and nope = 2",
    "lower(nope) = 'x'",
    "`nope` = 1",
    "nope.b = 1",
]
NO_PREDICATE = [
    "word",
    "inner",
    "lower(word)",
    "length(word) + 1",
    "null",
    "a + 1",
    "a not in ()",
    "a[0] = 1",
    "a = 'x'",
    "word = 1",
    "inner = 1",
    "a = 99999999999999999999999",
    "case when a = 1 then true else false end",  # which Lance does not know
]
ON_A_ROW = ["1 / (a - 2) = 1", "cast(word as int) = 1", "regexp_match(word, '[')"]


@pytest.fixture
def filled(namespace: MemoryNamespace) -> MemoryNamespace:
    make(namespace, ROWS)
    add(namespace, {"name": "made", "computed": "a + 1"})
    return namespace


@pytest.mark.spec("operations.md#analyzetablequeryplan", "operations.md#explaintablequeryplan")
@pytest.mark.parametrize("sql", NOT_ONE_EXPRESSION, ids=lambda text: ascii(text[:30]))
def test_what_is_no_one_expression_is_invalid_input_wherever_it_stands(
    filled: MemoryNamespace, sql: str
) -> None:
    for where, ask_with in EVERYWHERE.items():
        if where == "query" and sql in ("", "word = \udc80"):
            continue  # the request's own model refuses it
        with unchanged(filled, errors.InvalidInputError, r"does not fit table 'eu\.shop"):
            pytest.fail(f"{where}: {ask_with(filled, sql)}")


def test_an_aggregate_of_a_column_is_invalid_input(filled: MemoryNamespace) -> None:
    for where, ask_with in EVERYWHERE.items():
        if where == "merge and update":
            continue  # Lance takes no function of a side's column
        with unchanged(filled, errors.InvalidInputError, r"does not fit table 'eu\.shop"):
            pytest.fail(f"{where}: {ask_with(filled, 'max(length(word)) = 1')}")


@pytest.mark.spec("operations.md#altertableaddcolumns")
@pytest.mark.parametrize("sql", NO_COLUMN)
def test_a_missing_column_is_named_wherever_it_stands(filled: MemoryNamespace, sql: str) -> None:
    for where, ask_with in EVERYWHERE.items():
        match = r"does not fit table 'eu\.shop.*: there is no column (nope|nope\.b)(; its .+)?$"
        with unchanged(filled, errors.TableColumnNotFoundError, match):
            pytest.fail(f"{where}: {ask_with(filled, sql)}")


@pytest.mark.parametrize("sql", NO_PREDICATE)
def test_what_is_neither_true_nor_false_is_no_predicate(filled: MemoryNamespace, sql: str) -> None:
    for where, ask_with in PREDICATES.items():
        if where == "merge and update" and (sql == "null" or "(" in sql):
            continue  # Lance takes null there, for never, and no function of a side's column
        with unchanged(filled, errors.InvalidInputError, r"does not fit table 'eu\.shop"):
            pytest.fail(f"{where}: {ask_with(filled, sql)}")


@pytest.mark.spec("operations.md#deletefromtable")
@pytest.mark.parametrize("predicate", ON_A_ROW)
def test_a_predicate_that_fails_on_a_row_is_invalid_input(
    filled: MemoryNamespace, predicate: str
) -> None:
    with pytest.raises(errors.InvalidInputError, match=TABLE[-1]):
        count(filled, predicate)
    with pytest.raises(errors.InvalidInputError, match=TABLE[-1]):
        ask(filled, filter=predicate)


@pytest.mark.spec("cli.md#table")
def test_a_missing_column_is_answered_with_the_columns_of_the_table(
    filled: MemoryNamespace,
) -> None:
    listed = "; its columns are a, word, inner, `A b`, made"
    # Of the last two, Lance only says which column it guesses, and nothing.
    for predicate in ("nope = 1", "lower(nope) = 'x'", "wor = 'x'", "inner.c = 1"):
        missing = r"there is no column (nope|wor|c|inner\.c)" + listed + "$"
        with pytest.raises(errors.TableColumnNotFoundError, match=missing):
            ask(filled, filter=predicate)
        with pytest.raises(errors.TableColumnNotFoundError, match=missing):
            count(filled, predicate)


@pytest.mark.spec("cli.md#table")
def test_of_many_columns_the_first_are_listed(namespace: MemoryNamespace) -> None:
    make(namespace, pa.table({f"c{number}": [1] for number in range(50)}))
    with pytest.raises(errors.TableColumnNotFoundError, match=r"are c0, c1, .*, c19 and 30 more$"):
        ask(namespace, filter="nope = 1")


# -- what passes ----------------------------------------------------------------------------------


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
        ("a in (1, 2, 5)", 2),
    ],
)
def test_a_whole_predicate_is_honoured(
    filled: MemoryNamespace, predicate: str, expected: int
) -> None:
    assert count(filled, predicate) == expected
    assert ask(filled, filter=predicate).num_rows == expected


LONG = (
    "word in (" + ", ".join(f"'w{i}'" for i in range(20_000)) + ", 'x')",
    " or ".join(["word = 'x'"] * expressions.MOST_CONDITIONS),
)


@pytest.mark.parametrize("sql", LONG, ids=["a list", "conditions"])
def test_a_long_expression_is_taken(filled: MemoryNamespace, sql: str) -> None:
    """In a read and in a change; in all places by ``make test-slow``."""
    assert count(filled, sql) == 1
    assert PREDICATES["update where"](filled, sql) is not None


@pytest.mark.parametrize(
    "sql",
    [
        "word = 'x' -- a comment",
        "/* ) */ word = ')'",
        "word = 'it''s (' or (word = \"x\")",
        "(length(word) + 1) * 2 = 4 and word <> ';'",
        *(pytest.param(each, marks=pytest.mark.slow) for each in LONG),
        "length(word)" + " + 1" * ((expressions.MOST_STEPS - 8) // 2) + " > 0",
        "word is not null",
        "inner.b = 1",
    ],
    ids=lambda text: text[:30],
)
def test_one_expression_is_taken_wherever_it_stands(filled: MemoryNamespace, sql: str) -> None:
    assert ask(filled, columns={"v": sql}).schema.field("v").type == pa.bool_()
    assert add(filled, {"name": "new", "expression": sql}).version == 3
    for where, ask_with in PREDICATES.items():
        if where == "merge and update" and "length" in sql:
            with pytest.raises(errors.UnsupportedOperationError, match=r"function of source\.word"):
                ask_with(filled, sql)
        else:
            assert ask_with(filled, sql) is not None


@pytest.mark.spec("operations.md#errors-of-every-operation")
@pytest.mark.spec("operations.md#errors-of-every-operation")
def test_rows_that_cannot_be_read_are_no_fault_of_the_request(filled: MemoryNamespace) -> None:
    lose_data(filled)
    for predicate in ("a > 1", "word = 'x'"):
        with pytest.raises(errors.InvalidTableStateError, match=r"queried.* is missing.*doctor"):
            ask(filled, filter=predicate)
        with pytest.raises(errors.InvalidTableStateError, match="counted"):
            count(filled, predicate)


def lose_data(ns: MemoryNamespace) -> None:
    """Remove a table's data files, and keep what says that they are there."""
    location = ns.describe_table(api.DescribeTableRequest(id=TABLE)).location
    files = list(Path(str(location)).glob("data/*.lance"))
    assert files
    for each in files:
        each.unlink()
    assert lance.dataset(location).count_rows() == ROWS.num_rows


# -- what the rules rely on -----------------------------------------------------------------------

PIECES = [
    "a", "word", "'x'", "'", '"', "`", "=", "and", "or", "not", "(", ")", "1", "true", ",", ";",
    "--", "\n", "/*", "*/", "\\", "is null", "limit", "in", "e'\\''",
]  # fmt: skip
PLAN = lance.write_dataset(ROWS, "memory://")


@given(st.lists(st.sampled_from(PIECES), min_size=1, max_size=9).map(" ".join))
def test_nothing_is_taken_of_which_lance_reads_a_part(sql: str) -> None:
    """Lance plans one that goes on with a missing column only if it reads no further."""
    try:
        expressions.check_predicate(PLAN, "t", sql)
    except errors.LanceNamespaceError:
        return
    PLAN.scanner(filter=sql).explain_plan()
    with pytest.raises(ValueError, match="No field named missing"):
        PLAN.scanner(filter=f"{sql}\nand missing").explain_plan()


@pytest.mark.parametrize(
    "sql", ["word = '\\'", 'word = "\\"', "word = 'a''b'", "word = 'x' -- '", "word = 'x' /* ' */"]
)
def test_pylance_reads_quotes_and_comments_as_the_rules_do(sql: str) -> None:
    assert PLAN.scanner(filter=sql).to_table().num_rows < 2


@pytest.mark.parametrize("sql", ["a = ?", "a = $1", "word = N'x'", "word = R'x'"])
def test_pylance_still_panics_on_what_the_rules_refuse(sql: str) -> None:
    """Where it does no more, the rule can go."""
    with pytest.raises(BaseException, match="not yet implemented") as panic:
        PLAN.scanner(columns={"v": sql, "row": "_rowid"}).explain_plan()
    assert type(panic.value).__name__ == "PanicException"


def test_pylance_says_what_is_read_from_its_texts(filled: MemoryNamespace) -> None:
    """The texts that decide between codes: with other ones, those codes would be wrong."""
    opened = dataset(filled)
    for predicate in (*NO_COLUMN, "inner.nope = 1", "`a b` = 1"):
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
