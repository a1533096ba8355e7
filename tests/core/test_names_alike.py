"""Names that differ in letter case only: each operation means exactly one, or refuses the name."""

from __future__ import annotations

from collections.abc import Callable
from itertools import count
from typing import Any

import lance
import lance_namespace as api
import pyarrow as pa
import pytest
from lance_namespace.errors import InvalidInputError, TableColumnNotFoundError
from lance_namespace_urllib3_client.models import AddColumnsEntry, AlterColumnsEntry

from lance_bridge.requests import OrderedQuery

from .memory_catalog import MemoryNamespace, MemoryServer
from .memory_tables import TABLE
from .table_data import dataset, make

pytestmark = [
    pytest.mark.quick,
    pytest.mark.spec("operations.md#expressions", "operations.md#field-paths"),
]

ROWS = pa.table(
    {
        "id": [1, 2],
        "Id": [10, 20],
        "n": [7, 8],
        "s": [{"a": 1, "A": 2, "b": 5}, {"a": 3, "A": 4, "b": 6}],
        "words": ["one", "two"],
        "Words": ["three", "four"],
        "v": pa.array([[0.0, 1.0], [1.0, 0.0]], pa.list_(pa.float32(), 2)),
        "V": pa.array([[9.0, 1.0], [1.0, 9.0]], pa.list_(pa.float32(), 2)),
    }
)
NUMBERS = count()
Call = Callable[[MemoryNamespace, str], Any]


def merge(namespace: MemoryNamespace, **more: Any) -> Any:
    request = api.MergeInsertIntoTableRequest(
        id=TABLE, **{"on": ["n"], "when_matched_update_all": True, **more}
    )
    return namespace.merge_insert_into_table(request, ROWS)


def query(namespace: MemoryNamespace, **more: Any) -> pa.Table:
    answer = namespace.query_table(OrderedQuery(id=TABLE, **{"k": 9, "vector": {}, **more}))
    return pa.ipc.open_file(answer.data).read_all()


def update(namespace: MemoryNamespace, column: str, value: str, where: str | None = None) -> Any:
    request = api.UpdateTableRequest(id=TABLE, updates=[[column, value]], predicate=where)
    return namespace.update_table(request)


def add(namespace: MemoryNamespace, expression: str) -> Any:
    columns = [AddColumnsEntry(name=f"new{next(NUMBERS)}", expression=expression)]
    return namespace.alter_table_add_columns(
        api.AlterTableAddColumnsRequest(id=TABLE, new_columns=columns)
    )


EXPRESSIONS: dict[str, Call] = {
    "filter": lambda ns, sql: query(ns, filter=f"{sql} > 1"),
    "count": lambda ns, sql: ns.count_table_rows(
        api.CountTableRowsRequest(id=TABLE, predicate=f"{sql} > 1")
    ),
    "alias": lambda ns, sql: query(ns, columns={"column_aliases": {"x": f"{sql} + 1"}}),
    "update to": lambda ns, sql: update(ns, "n", f"{sql} + 1"),
    "update where": lambda ns, sql: update(ns, "n", "0", f"{sql} > 1"),
    "delete": lambda ns, sql: ns.delete_from_table(
        api.DeleteFromTableRequest(id=TABLE, predicate=f"{sql} > 1")
    ),
    "add column": add,
    "merge if": lambda ns, sql: merge(ns, when_matched_update_all_filt=f"target.{sql} > 1"),
    "merge delete if": lambda ns, sql: merge(
        ns,
        when_not_matched_by_source_delete=True,
        when_not_matched_by_source_delete_filt=f"{sql} > 1",
    ),
}
"""Operations with SQL, in which a name may be in any letter case."""

PATHS: dict[str, Call] = {
    "column": lambda ns, name: query(ns, columns={"column_names": [name]}),
    "order": lambda ns, name: query(ns, order_by=[{"column_name": name}]),
    "index": lambda ns, name: ns.create_table_index(
        api.CreateTableIndexRequest(id=TABLE, column=name, index_type="BTREE")
    ),
    "update": lambda ns, name: update(ns, name, "0"),
    "merge on": lambda ns, name: merge(ns, on=[name]),
    "drop": lambda ns, name: ns.alter_table_drop_columns(
        api.AlterTableDropColumnsRequest(id=TABLE, columns=[name])
    ),
    "rename": lambda ns, name: ns.alter_table_alter_columns(
        api.AlterTableAlterColumnsRequest(
            id=TABLE, alterations=[AlterColumnsEntry(path=name, rename="new")]
        )
    ),
}
"""Operations with names of columns, which are those of the table."""


@pytest.fixture
def filled(namespace: MemoryNamespace) -> MemoryNamespace:
    make(namespace, ROWS)
    return namespace


@pytest.mark.parametrize("operation", EXPRESSIONS)
def test_an_expression_that_may_mean_two_columns_is_refused(
    filled: MemoryNamespace, server: MemoryServer, operation: str
) -> None:
    with pytest.raises(InvalidInputError, match="ID may mean 'id' and 'Id'"):
        EXPRESSIONS[operation](filled, "ID")
    found = dataset(server)
    assert (found.version, found.to_table()) == (1, ROWS)
    for name in ("id", "Id", "N", "`id`"):
        EXPRESSIONS[operation](filled, name)


@pytest.mark.parametrize("operation", [each for each in EXPRESSIONS if "merge" not in each])
def test_an_expression_with_a_field_of_a_struct_means_that_one(
    filled: MemoryNamespace, operation: str
) -> None:
    for name in ("s.a", "s.A", "S.A", "s.b"):
        EXPRESSIONS[operation](filled, name)
    with pytest.raises(TableColumnNotFoundError, match="there is no column"):
        EXPRESSIONS[operation](filled, "s.B")


@pytest.mark.parametrize("name", ["ID", "iD", "N"])
@pytest.mark.parametrize("operation", PATHS)
def test_a_path_in_another_letter_case_is_refused(
    filled: MemoryNamespace, server: MemoryServer, operation: str, name: str
) -> None:
    with pytest.raises(TableColumnNotFoundError, match=f"'?{name}"):
        PATHS[operation](filled, name)
    assert dataset(server).to_table() == ROWS


def others(found: lance.LanceDataset, *names: str) -> pa.Table:
    return found.to_table().drop_columns(list(names))


@pytest.mark.parametrize("name", ["id", "Id"])
@pytest.mark.parametrize("operation", PATHS)
def test_a_path_means_one_column(
    filled: MemoryNamespace, server: MemoryServer, operation: str, name: str
) -> None:
    PATHS[operation](filled, name)
    found = dataset(server)
    changed = {"drop": [], "rename": ["new"], "update": [name]}.get(operation, [])
    left = [] if operation not in ("drop", "rename", "update") else [name]
    expected = ROWS.drop_columns(left)
    assert others(found, *changed).sort_by("n") == expected
    if operation == "index":
        [index] = found.describe_indices()
        assert index.field_names == [name]


def test_an_update_of_one_column_keeps_the_one_of_the_other_letter_case(
    filled: MemoryNamespace, server: MemoryServer
) -> None:
    update(filled, "Id", "id * 100", "Id = 20")
    found = dataset(server).to_table().sort_by("n")
    assert found["id"].to_pylist() == [1, 2]
    assert found["Id"].to_pylist() == [10, 200]


def test_a_search_means_one_column(filled: MemoryNamespace) -> None:
    vector = {"single_vector": [1.0, 9.0]}
    for column, first in (("v", 1), ("V", 2)):
        rows = query(filled, k=1, vector=vector, vector_column=column)
        assert rows["id"].to_pylist() == [first]
    for column in ("words", "Words"):
        filled.create_table_index(
            api.CreateTableIndexRequest(id=TABLE, column=column, index_type="FTS")
        )
    for column, text, found in (("words", "two", 1), ("Words", "two", 0), ("Words", "four", 1)):
        wanted = {"string_query": {"query": text, "columns": [column]}}
        assert query(filled, full_text_query=wanted).num_rows == found
    wanted = {"string_query": {"query": "two", "columns": ["WORDS"]}}
    with pytest.raises(TableColumnNotFoundError, match="WORDS"):
        query(filled, full_text_query=wanted)


def test_rows_are_written_by_exact_names(filled: MemoryNamespace, server: MemoryServer) -> None:
    reversed_columns = ROWS.select(ROWS.schema.names[::-1])
    request = api.InsertIntoTableRequest(id=TABLE)
    filled.insert_into_table(request, reversed_columns)
    assert dataset(server).to_table() == pa.concat_tables([ROWS, ROWS])
