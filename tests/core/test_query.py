"""Queries that read rows: which, of which state of a table, and in what form and order."""

from __future__ import annotations

from typing import Any

import lance
import lance_namespace as api
import pyarrow as pa
import pytest
from lance_namespace import errors

from lance_bridge.requests import ColumnOrder, OrderedQuery, OrderedQueryPlan
from lance_bridge.testing.calls import Calls

from .memory_catalog import MemoryNamespace
from .memory_tables import TABLE, create
from .table_data import answer, ask, build_index, dataset, put, request, vectors

pytestmark = [pytest.mark.quick, pytest.mark.spec("operations.md#querytable")]

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


def test_an_alias_that_fails_on_a_row_is_invalid_input(filled: MemoryNamespace) -> None:
    with pytest.raises(errors.InvalidInputError, match="Divide by zero"):
        ask(filled, columns={"other": "1 / (id - 3)"})
    reader = filled.query_table_reader(request(columns={"other": "1 / (id - 3)"}))
    with pytest.raises(errors.InvalidInputError, match="Divide by zero"):
        reader.read_all()


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
