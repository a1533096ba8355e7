"""The order of a query's rows, which is beyond the specification."""

from __future__ import annotations

from typing import Any

import lance_namespace as api
import pyarrow as pa
import pytest
from lance_namespace import errors

from lance_bridge.extended_requests import ColumnOrder, OrderedQuery, OrderedQueryPlan

from .building import TABLE
from .evolving import build_index
from .memory_catalog import MemoryNamespace
from .querying import put, request, vectors

pytestmark = [
    pytest.mark.quick,
    pytest.mark.spec("operations.md#querytable", "server.md#sorting-and-replacing-indices"),
]

ROWS = pa.table(
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
def filled(namespace: MemoryNamespace) -> MemoryNamespace:
    put(namespace, ROWS)
    return namespace


def ordered(*order: ColumnOrder, **options: Any) -> OrderedQuery:
    return OrderedQuery.model_validate({**request(**options).model_dump(), "order_by": order})


def ids(ns: MemoryNamespace, *order: ColumnOrder, **options: Any) -> list[int]:
    rows: list[int] = ns.query_table_reader(ordered(*order, **options)).read_all()["id"].to_pylist()
    return rows


RANK = ColumnOrder(column_name="rank")
DESCENDING = ColumnOrder(column_name="rank", ascending=False, nulls_first=True)


def test_rows_are_sorted_before_they_are_counted(filled: MemoryNamespace) -> None:
    assert ids(filled, RANK, k=0) == [3, 0, 2, 1]
    assert ids(filled, DESCENDING, k=2, offset=1) == [2, 0]
    assert ids(filled, ColumnOrder(column_name="word"), DESCENDING, filter="id > 0") == [2, 1, 3]
    assert ids(filled, ColumnOrder(column_name="inner.`a.b`")) == [1, 0, 3, 2]


@pytest.mark.parametrize("columns", [["id"], {"id": "id"}, ["id", "_rowid"]])
def test_rows_are_sorted_by_a_column_that_is_not_returned(
    filled: MemoryNamespace, columns: Any
) -> None:
    rows = filled.query_table_reader(ordered(RANK, columns=columns)).read_all()
    assert rows["id"].to_pylist() == [3, 0, 2, 1]
    assert rows.column_names == list(columns)


def test_an_order_adds_no_column(filled: MemoryNamespace) -> None:
    reader = filled.query_table_reader(ordered(RANK))
    assert reader.schema.names == ROWS.column_names
    with_id = filled.query_table_reader(ordered(RANK, with_row_id=True)).read_all()
    assert with_id["_rowid"].to_pylist() == [3, 0, 2, 1]


def test_the_rows_of_a_search_are_sorted_after_they_were_found(filled: MemoryNamespace) -> None:
    by_vector = {"vector": [0.0, 0.0], "vector_column": "v"}
    assert ids(filled, RANK, k=3, **by_vector) == [0, 2, 1]
    build_index(filled, "text", "FTS")
    assert ids(filled, RANK, text="red", columns=["id"]) == [3, 0, 2]


def test_a_plan_has_the_order(filled: MemoryNamespace) -> None:
    plan = OrderedQueryPlan(id=TABLE, query=ordered(RANK))
    assert "SortExec" in filled.explain_table_query_plan(plan)


def test_an_order_by_a_missing_column_is_column_not_found(filled: MemoryNamespace) -> None:
    with pytest.raises(errors.TableColumnNotFoundError, match="nope"):
        filled.query_table_reader(ordered(ColumnOrder(column_name="nope")))


@pytest.mark.spec("server.md#what-is-refused")
@pytest.mark.parametrize(
    "search", [{"vectors": [[0.0, 0.0], [1.0, 0.0]]}, {"vector": [0.0, 0.0], "text": "red"}]
)
def test_an_order_of_several_searches_is_unsupported(
    filled: MemoryNamespace, search: dict[str, Any]
) -> None:
    build_index(filled, "text", "FTS")
    with pytest.raises(errors.UnsupportedOperationError, match="order_by"):
        filled.query_table_reader(ordered(RANK, vector_column="v", **search))


def test_the_request_of_the_specification_has_no_order(filled: MemoryNamespace) -> None:
    plain = api.QueryTableRequest.model_validate(ordered(RANK).model_dump())
    assert filled.query_table_reader(plain).read_all()["id"].to_pylist() == [0, 1, 2, 3]
