"""Queries that read rows, and the SQL that requests may have: what passes, and the errors."""

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
from servers.processes import without_privileges

from lance_bridge.dataset import expressions
from lance_bridge.dataset.expressions import to_query_error
from lance_bridge.errors import LANCE_ERRORS
from lance_bridge.requests import ColumnOrder, OrderedQuery, OrderedQueryPlan
from lance_bridge.testing.calls import Calls

from .memory_catalog import TABLE, MemoryNamespace, create
from .table_data import (
    add,
    answer,
    ask,
    backfill,
    build_index,
    dataset,
    make,
    put,
    request,
    unchanged,
    vectors,
)
from .test_insert_update_delete import delete, update
from .test_merge import merge

pytestmark = [
    pytest.mark.quick,
    pytest.mark.spec(
        "operations.md#querytable", "operations.md#counttablerows", "operations.md#expressions"
    ),
]

ROWS = pa.table(
    {
        "id": list(range(20)),
        "word": [f"word {i % 3}" for i in range(20)],
        "inner": [{"x": i, "y": str(i)} for i in range(20)],
        "v": vectors([[i, 1.0] for i in range(20)]),
    }
)


@pytest.fixture
def filled(namespace: MemoryNamespace) -> MemoryNamespace:
    put(namespace, ROWS)
    return namespace


# -- rows ------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("options", "why"),
    [
        ({"k": -1}, "0 or more"),
        ({"offset": -1}, "0 or more"),
        ({"k": 2**70}, "does not fit"),
        ({"offset": 2**70, "k": 2**70}, "does not fit"),
    ],
)
def test_a_number_that_lance_cannot_take_is_invalid_input(
    filled: MemoryNamespace, options: dict[str, int], why: str
) -> None:
    # The model refuses negative ones; a caller may have made it without a check.
    bad = request().model_copy(update=options)
    with pytest.raises(errors.InvalidInputError, match=why):
        filled.query_table(bad)


# -- versions and branches, and plans --------------------------------------------------------------


@pytest.fixture
def branched(filled: MemoryNamespace) -> Calls:
    """The same with 15 rows in its second version, and 10 on the branch ``dev``."""
    dataset(filled).create_branch("dev", 1).delete("id < 10")
    dataset(filled).delete("id < 5")
    return Calls(filled)


@pytest.mark.parametrize(
    ("at", "rows"),
    [
        ({}, 15),
        ({"branch": "main"}, 15),
        ({"version": 1}, 20),
        ({"branch": "dev"}, 10),
        ({"branch": "dev", "version": 1}, 20),
    ],
    ids=str,
)
def test_a_query_and_a_count_see_the_version_and_the_branch(
    branched: Calls, at: dict[str, Any], rows: int
) -> None:
    assert branched.count(TABLE, **at) == rows
    for vector in (None, [0.0, 1.0]):
        assert ask(branched.client, k=100, vector=vector, **at).num_rows == rows


# -- columns ---------------------------------------------------------------------------------------


def test_an_alias_of_a_missing_column_is_column_not_found(filled: MemoryNamespace) -> None:
    with pytest.raises(errors.TableColumnNotFoundError, match="does not fit"):
        ask(filled, columns={"id": "id", "other": "_distance"})


@pytest.mark.parametrize(
    "source", ["distinct id", "top 5 id", "1", "distinct ?", "'?' || ? || 'it''s'"]
)
def test_an_alias_of_what_is_not_one_value_is_invalid_input(
    filled: MemoryNamespace, source: str
) -> None:
    with pytest.raises(errors.InvalidInputError, match=r"does not fit|one value"):
        ask(filled, columns={"other": source})


@pytest.mark.parametrize(
    ("source", "words"),
    [
        ("1 / (id - 3)", "Divide by zero"),
        ("date_trunc('x', cast(id as timestamp))", "date_trunc granularity"),
        ("make_array(id)[9223372036854775807]", "invalid index"),
        ("digest(word, 'none')", "no built-in digest"),
        ("cast(id as decimal(76, 70))", "precision out of range"),
        ("regexp_like(word, 'a{1000000}')", "did not compile"),
        ("st_area(word)", "WKT"),
        ("st_contains(make_array(id), make_array(id))", "GeoArrow"),
    ],
)
def test_an_alias_that_fails_on_a_row_is_invalid_input(
    filled: MemoryNamespace, source: str, words: str
) -> None:
    with pytest.raises(errors.InvalidInputError, match=words):
        ask(filled, columns={"other": source})
    with pytest.raises(errors.InvalidInputError, match=words):
        filled.query_table_reader(request(columns={"other": source})).read_all()


@pytest.mark.parametrize(
    "text",
    [
        "External error: Query Execution error: Execution error: LanceError(IO): timed out",
        "Invalid user input: file does not appear to be a Lance file (invalid magic: [1, 2])",
    ],
)
def test_an_error_of_the_storage_in_a_query_is_not_the_request_s(text: str) -> None:
    assert isinstance(to_query_error(ValueError(text), "x"), errors.ServiceUnavailableError)


@pytest.mark.parametrize("alias", ["\0", "a\0b", "\ud800"])
def test_an_alias_that_arrow_cannot_name_is_invalid_input(
    filled: MemoryNamespace, alias: str
) -> None:
    """Arrow ends the process at a NUL in a name."""
    with pytest.raises(errors.InvalidInputError, match="alias"):
        ask(filled, columns={alias: "id"})


def test_columns_that_contradict_each_other_are_invalid_input(filled: MemoryNamespace) -> None:
    with pytest.raises(errors.InvalidInputError, match="twice"):
        ask(filled, columns=["id", "word", "id"])
    both = {"column_names": ["id"], "column_aliases": {"n": "id"}}
    with pytest.raises(errors.InvalidInputError, match="together"):
        filled.query_table(api.QueryTableRequest.model_validate({**_plain(), "columns": both}))
    with pytest.raises(errors.InvalidInputError, match="'_rowid' is added by searches"):
        ask(filled, columns={"_rowid": "id"})


# -- the form of the answer ------------------------------------------------------------------------


def test_dictionaries_of_several_fragments_fit_in_one_file(namespace: MemoryNamespace) -> None:
    first = pa.table({"d": pa.array(["a", "b", None]).dictionary_encode()})
    put(namespace, first)
    second = pa.table({"d": pa.array(["c", "a"]).dictionary_encode()})
    lance.write_dataset(second, dataset(namespace).uri, mode="append")
    assert ask(namespace).column("d").to_pylist() == ["a", "b", None, "c", "a"]


def test_a_reader_gives_batches_as_they_are_read(namespace: MemoryNamespace) -> None:
    create(namespace, TABLE, rows=100_000)
    reader = namespace.query_table_reader(request(k=0, filter="a % 2 = 0"))
    sizes = [batch.num_rows for batch in reader]
    assert len(sizes) > 1
    assert sum(sizes) == 50_000


def test_a_reader_raises_what_is_wrong_before_the_first_batch(filled: MemoryNamespace) -> None:
    with pytest.raises(errors.TableColumnNotFoundError, match="nope"):
        filled.query_table_reader(request(filter="nope = 1"))


# -- plans -----------------------------------------------------------------------------------------


def explain(ns: MemoryNamespace, **options: Any) -> str:
    query = {**_plain(), **options.pop("query", {})}
    return ns.explain_table_query_plan(
        api.ExplainTableQueryPlanRequest.model_validate({"query": query, **options})
    )


@pytest.mark.spec("operations.md#explaintablequeryplan")
def test_a_plan_of_another_table_than_the_request_names_is_refused(
    filled: MemoryNamespace,
) -> None:
    with pytest.raises(errors.InvalidInputError, match="another `id`"):
        explain(filled, id=[*TABLE[:-1], "Other"])
    with pytest.raises(errors.InvalidInputError, match="another `branch`"):
        explain(filled, id=TABLE, branch="a", query={"branch": "b"})
    with pytest.raises(errors.TableBranchNotFoundError, match="'a'"):
        explain(filled, branch="a")


def _plain() -> dict[str, Any]:
    return {"id": TABLE, "vector": {}, "k": 10}


def test_answers_of_two_requests_are_alike_however_they_are_read(
    filled: MemoryNamespace,
) -> None:
    asked = request(k=5, filter="id > 3", with_row_id=True)
    assert filled.query_table_reader(asked).read_all() == answer(filled.query_table(asked))


# -- the order of rows, which is beyond the specification ------------------------------------------

UNORDERED = pa.table(
    {
        "id": range(4),
        "rank": [2, None, 3, 1],
        "word": ["a", "b", "a", "b"],
        "inner": [{"a.b": i} for i in (1, 0, 3, 2)],
        "text": ["red green", "green", "red", "red blue"],
        "v": vectors([[i, 0.0] for i in range(4)]),
        "w": vectors([[i, 0.0] for i in range(4)]),
    }
)


@pytest.fixture
def unordered(namespace: MemoryNamespace) -> MemoryNamespace:
    put(namespace, UNORDERED)
    return namespace


def ordered(*order: ColumnOrder, **options: Any) -> OrderedQuery:
    return OrderedQuery.model_validate({**request(**options).model_dump(), "order_by": order})


def ids(ns: MemoryNamespace, *order: ColumnOrder, **options: Any) -> list[int]:
    rows: list[int] = ns.query_table_reader(ordered(*order, **options)).read_all()["id"].to_pylist()
    return rows


RANK = ColumnOrder(column_name="rank")
DESCENDING = ColumnOrder(column_name="rank", ascending=False, nulls_first=True)


@pytest.mark.spec("server.md#sorting-and-replacing-indices")
def test_rows_are_sorted_before_they_are_counted(unordered: MemoryNamespace) -> None:
    assert ids(unordered, RANK, k=0) == [3, 0, 2, 1]
    assert ids(unordered, DESCENDING, k=2, offset=1) == [2, 0]
    assert ids(unordered, ColumnOrder(column_name="word"), DESCENDING, filter="id > 0") == [2, 1, 3]
    assert ids(unordered, ColumnOrder(column_name="inner.`a.b`")) == [1, 0, 3, 2]


@pytest.mark.parametrize("columns", [["id"], {"id": "id"}, ["id", "_rowid"]])
def test_rows_are_sorted_by_a_column_that_is_not_returned(
    unordered: MemoryNamespace, columns: Any
) -> None:
    rows = unordered.query_table_reader(ordered(RANK, columns=columns)).read_all()
    assert rows["id"].to_pylist() == [3, 0, 2, 1]
    assert rows.column_names == list(columns)


def test_an_order_adds_no_column(unordered: MemoryNamespace) -> None:
    reader = unordered.query_table_reader(ordered(RANK))
    assert reader.schema.names == UNORDERED.column_names
    with_id = unordered.query_table_reader(ordered(RANK, with_row_id=True)).read_all()
    assert with_id["_rowid"].to_pylist() == [3, 0, 2, 1]


def test_the_rows_of_a_search_are_sorted_after_they_were_found(unordered: MemoryNamespace) -> None:
    by_vector = {"vector": [0.0, 0.0], "vector_column": "v"}
    assert ids(unordered, RANK, k=3, **by_vector) == [0, 2, 1]
    build_index(unordered, "text", "FTS")
    assert ids(unordered, RANK, text="red", columns=["id"]) == [3, 0, 2]


@pytest.mark.spec("server.md#sorting-and-replacing-indices")
def test_a_plan_has_the_order(unordered: MemoryNamespace) -> None:
    plan = OrderedQueryPlan(id=TABLE, query=ordered(RANK))
    assert "SortExec" in unordered.explain_table_query_plan(plan)


def test_an_order_by_a_missing_column_is_column_not_found(unordered: MemoryNamespace) -> None:
    with pytest.raises(errors.TableColumnNotFoundError, match="nope"):
        unordered.query_table_reader(ordered(ColumnOrder(column_name="nope")))


@pytest.mark.spec("server.md#what-is-refused")
@pytest.mark.parametrize(
    "search", [{"vectors": [[0.0, 0.0], [1.0, 0.0]]}, {"vector": [0.0, 0.0], "text": "red"}]
)
def test_an_order_of_several_searches_is_unsupported(
    unordered: MemoryNamespace, search: dict[str, Any]
) -> None:
    build_index(unordered, "text", "FTS")
    with pytest.raises(errors.UnsupportedOperationError, match="order_by"):
        unordered.query_table_reader(ordered(RANK, vector_column="v", **search))


def test_the_request_of_the_specification_has_no_order(unordered: MemoryNamespace) -> None:
    plain = api.QueryTableRequest.model_validate(ordered(RANK).model_dump())
    assert unordered.query_table_reader(plain).read_all()["id"].to_pylist() == [0, 1, 2, 3]


TYPED_ROWS = pa.table(
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
    return merge(ns, TYPED_ROWS.slice(0, 2), on=["a"], when_matched_update_all_filt=sided)


def merge_delete(ns: MemoryNamespace, sql: str) -> Any:
    return merge(ns, TYPED_ROWS.slice(0, 1), on=["a"], when_not_matched_by_source_delete_filt=sql)


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
def with_texts(namespace: MemoryNamespace) -> MemoryNamespace:
    make(namespace, TYPED_ROWS)
    add(namespace, {"name": "made", "computed": "a + 1"})
    return namespace


@pytest.mark.spec("operations.md#analyzetablequeryplan", "operations.md#explaintablequeryplan")
@pytest.mark.parametrize("sql", NOT_ONE_EXPRESSION, ids=lambda text: ascii(text[:30]))
def test_what_is_no_one_expression_is_invalid_input_wherever_it_stands(
    with_texts: MemoryNamespace, sql: str
) -> None:
    for where, ask_with in EVERYWHERE.items():
        if where == "query" and sql in ("", "word = \udc80"):
            continue  # the request's own model refuses it
        with unchanged(with_texts, errors.InvalidInputError, r"does not fit table 'eu\.shop"):
            pytest.fail(f"{where}: {ask_with(with_texts, sql)}")


def test_an_aggregate_of_a_column_is_invalid_input(with_texts: MemoryNamespace) -> None:
    for where, ask_with in EVERYWHERE.items():
        if where == "merge and update":
            continue  # Lance takes no function of a side's column
        with unchanged(with_texts, errors.InvalidInputError, r"does not fit table 'eu\.shop"):
            pytest.fail(f"{where}: {ask_with(with_texts, 'max(length(word)) = 1')}")


@pytest.mark.spec("operations.md#altertableaddcolumns")
@pytest.mark.parametrize("sql", NO_COLUMN)
def test_a_missing_column_is_named_wherever_it_stands(
    with_texts: MemoryNamespace, sql: str
) -> None:
    for where, ask_with in EVERYWHERE.items():
        match = r"does not fit table 'eu\.shop.*: there is no column (nope|nope\.b)(; its .+)?$"
        with unchanged(with_texts, errors.TableColumnNotFoundError, match):
            pytest.fail(f"{where}: {ask_with(with_texts, sql)}")


@pytest.mark.parametrize("sql", NO_PREDICATE)
def test_what_is_neither_true_nor_false_is_no_predicate(
    with_texts: MemoryNamespace, sql: str
) -> None:
    for where, ask_with in PREDICATES.items():
        if where == "merge and update" and (sql == "null" or "(" in sql):
            continue  # Lance takes null there, for never, and no function of a side's column
        with unchanged(with_texts, errors.InvalidInputError, r"does not fit table 'eu\.shop"):
            pytest.fail(f"{where}: {ask_with(with_texts, sql)}")


@pytest.mark.spec("operations.md#deletefromtable")
@pytest.mark.parametrize("predicate", ON_A_ROW)
def test_a_predicate_that_fails_on_a_row_is_invalid_input(
    with_texts: MemoryNamespace, predicate: str
) -> None:
    with pytest.raises(errors.InvalidInputError, match=TABLE[-1]):
        count(with_texts, predicate)
    with pytest.raises(errors.InvalidInputError, match=TABLE[-1]):
        ask(with_texts, filter=predicate)


@pytest.mark.spec("cli.md#table")
def test_a_missing_column_is_answered_with_the_columns_of_the_table(
    with_texts: MemoryNamespace,
) -> None:
    listed = "; its columns are a, word, inner, `A b`, made"
    # Of the last two, Lance only says which column it guesses, and nothing.
    for predicate in ("nope = 1", "lower(nope) = 'x'", "wor = 'x'", "inner.c = 1"):
        missing = r"there is no column (nope|wor|c|inner\.c)" + listed + "$"
        with pytest.raises(errors.TableColumnNotFoundError, match=missing):
            ask(with_texts, filter=predicate)
        with pytest.raises(errors.TableColumnNotFoundError, match=missing):
            count(with_texts, predicate)


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
    with_texts: MemoryNamespace, predicate: str, expected: int
) -> None:
    assert count(with_texts, predicate) == expected
    assert ask(with_texts, filter=predicate).num_rows == expected


LONG = (
    "word in (" + ", ".join(f"'w{i}'" for i in range(20_000)) + ", 'x')",
    " or ".join(["word = 'x'"] * expressions.MOST_CONDITIONS),
)


@pytest.mark.parametrize("sql", LONG, ids=["a list", "conditions"])
def test_a_long_expression_is_taken(with_texts: MemoryNamespace, sql: str) -> None:
    """In a read and in a change; in all places by ``make test-slow``."""
    assert count(with_texts, sql) == 1
    assert PREDICATES["update where"](with_texts, sql) is not None


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
def test_one_expression_is_taken_wherever_it_stands(with_texts: MemoryNamespace, sql: str) -> None:
    assert ask(with_texts, columns={"v": sql}).schema.field("v").type == pa.bool_()
    assert add(with_texts, {"name": "new", "expression": sql}).version == 3
    for where, ask_with in PREDICATES.items():
        if where == "merge and update" and "length" in sql:
            with pytest.raises(errors.UnsupportedOperationError, match=r"function of source\.word"):
                ask_with(with_texts, sql)
        else:
            assert ask_with(with_texts, sql) is not None


@pytest.mark.spec("operations.md#errors-of-every-operation")
@pytest.mark.spec("operations.md#errors-of-every-operation")
def test_rows_that_cannot_be_read_are_no_fault_of_the_request(with_texts: MemoryNamespace) -> None:
    lose_data(with_texts)
    for predicate in ("a > 1", "word = 'x'"):
        with pytest.raises(errors.InvalidTableStateError, match=r"queried.* is missing.*doctor"):
            ask(with_texts, filter=predicate)
        with pytest.raises(errors.InvalidTableStateError, match="counted"):
            count(with_texts, predicate)


def lose_data(ns: MemoryNamespace) -> None:
    """Remove a table's data files, and keep what says that they are there."""
    location = ns.describe_table(api.DescribeTableRequest(id=TABLE)).location
    files = list(Path(str(location)).glob("data/*.lance"))
    assert files
    for each in files:
        each.unlink()
    assert lance.dataset(location).count_rows() == TYPED_ROWS.num_rows


# -- what the rules rely on -----------------------------------------------------------------------

PIECES = [
    "a", "word", "'x'", "'", '"', "`", "=", "and", "or", "not", "(", ")", "1", "true", ",", ";",
    "--", "\n", "/*", "*/", "\\", "is null", "limit", "in", "e'\\''",
]  # fmt: skip
PLAN = lance.write_dataset(TYPED_ROWS, "memory://")


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


def test_pylance_says_what_is_read_from_its_texts(with_texts: MemoryNamespace) -> None:
    """The texts that decide between codes: with other ones, those codes would be wrong."""
    opened = dataset(with_texts)
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


def test_rows_that_may_not_be_read_are_permission_denied(filled: MemoryNamespace) -> None:
    opened = dataset(filled)
    (Path(opened.uri) / "data").chmod(0)
    for predicate in ("true", "id > 3", "word LIKE 'word%'"):
        with without_privileges(), pytest.raises(LANCE_ERRORS) as failed:
            opened.scanner(filter=predicate).to_table()
        for found in (
            expressions.to_query_error(failed.value, "Table 't'"),
            expressions.to_plan_error(OSError(str(failed.value)), "Filter"),
        ):
            assert isinstance(found, errors.PermissionDeniedError)
            assert str(found).endswith("Permission denied")


def test_a_failure_of_storage_while_planning_is_no_fault_of_the_request() -> None:
    found = expressions.to_plan_error(OSError("No field named x: the disk is gone"), "Filter 'x'")
    assert isinstance(found, errors.ServiceUnavailableError)
