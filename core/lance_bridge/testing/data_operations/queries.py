"""Cases: queries by filter, of versions and branches, and their plans."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
from lance_namespace import ErrorCode

from ..cases import Refusals
from .case_table import CaseTable, DataOperationCases, SharedTable, bad
from .items import IDS, SCHEMA, items

NO_COLUMN = ErrorCode.TABLE_COLUMN_NOT_FOUND
NO_VERSION = ErrorCode.TABLE_VERSION_NOT_FOUND


def query_fields(k: int = 100, **options: Any) -> dict[str, Any]:
    """Return the fields of a query.

    Args:
        options: Options of the request, but ``vector`` is one vector, ``vectors`` are several,
            ``columns`` names or a mapping of aliases, ``text`` a string query or a structured one,
            and ``among`` the columns of a string query.
    """
    vector: dict[str, Any] = {"single_vector": options.pop("vector", None)}
    if (several := options.pop("vectors", None)) is not None:
        vector = {"multi_vector": several}
    if (columns := options.pop("columns", None)) is not None:
        form = "column_aliases" if isinstance(columns, dict) else "column_names"
        options["columns"] = {form: columns}
    among = options.pop("among", None)
    text = options.pop("text", None)
    if isinstance(text, dict):
        options["full_text_query"] = {"structured_query": {"query": text}}
    elif text is not None:
        options["full_text_query"] = {"string_query": {"query": text, "columns": among}}
    return {"k": k, "vector": vector, **options}


def query(table: CaseTable, k: int = 100, **options: Any) -> pa.Table:
    """Run a query; return the rows in the Arrow IPC file of the response."""
    answer = table.call("query_table", **query_fields(k, **options))
    return pa.ipc.open_file(answer.data).read_all()


def found(table: CaseTable, k: int = 100, **options: Any) -> list[int]:
    """Run a query; return the ids of its rows."""
    ids: list[int] = query(table, k, **options)["id"].to_pylist()
    return ids


COLUMNS: list[tuple[Any, dict[str, Any]]] = [
    (["word", "id"], {"word": "pear", "id": 5}),
    (["inner.x"], {"inner.x": 10}),
    ({"twice": "id * 2", "x": "inner.x"}, {"twice": 10, "x": 10}),
    (["id", "labels"], {"id": 5, "labels": ["blue", "apple"]}),
]
"""Columns of a query, and their values in the row with id 5."""
_UNKNOWN_COLUMNS: dict[str, dict[str, Any]] = {
    "filter by an unknown column": {"filter": "nocolumn = 1"},
    "unknown column": {"columns": ["nocolumn"]},
    "expression over an unknown column": {"columns": {"a": "nocolumn + 1"}},
}
_BAD_FILTERS = ("id >>> ", "((", "id = 'x", "select 1", "id + 1", "id = 1; drop table t")
BAD_QUERIES = {
    **{
        name: bad("query_table", NO_COLUMN, **query_fields(**options))
        for name, options in _UNKNOWN_COLUMNS.items()
    },
    **{f"filter {each}": bad("query_table", **query_fields(filter=each)) for each in _BAD_FILTERS},
    **{
        f"{operation} of a missing version of {branch}": bad(
            operation, NO_VERSION, **query_fields(version=99, branch=branch)
        )
        for operation in ("query_table", "analyze_table_query_plan")
        for branch in (None, "dev")
    },
    "analyze by an unknown column": bad(
        "analyze_table_query_plan", NO_COLUMN, **query_fields(filter="nocolumn = 1")
    ),
    "analyze a bad filter": bad("analyze_table_query_plan", **query_fields(filter="((")),
    "explain by an unknown column": bad(
        "explain_table_query_plan", NO_COLUMN, query=query_fields(filter="nocolumn = 1")
    ),
    "explain a bad filter": bad("explain_table_query_plan", query=query_fields(filter="((")),
}


class QueryCases(DataOperationCases):
    """QueryTable without a search, and the plans of queries."""

    def test_a_query_answers_with_the_rows_that_match(self, shared_table: CaseTable) -> None:
        rows = query(shared_table, filter="id >= 47 OR inner.x = 10")
        assert rows.schema.names == SCHEMA.names
        assert rows.to_pylist() == items([5, 47, 48, 49]).to_pylist()

    def test_a_query_that_matches_nothing_answers_with_the_columns(
        self, shared_table: CaseTable
    ) -> None:
        rows = query(shared_table, filter="id < 0")
        assert (rows.num_rows, rows.schema.names) == (0, SCHEMA.names)

    def test_a_query_answers_with_the_columns_asked_for(self, shared_table: CaseTable) -> None:
        for columns, row in COLUMNS:
            found = query(shared_table, filter="id = 5", columns=columns)
            assert found.to_pylist() == [row], columns

    def test_a_query_answers_with_at_most_k_rows_after_the_offset(
        self, shared_table: CaseTable
    ) -> None:
        assert found(shared_table, 3, filter="id >= 4") == [4, 5, 6]
        assert found(shared_table, 3, filter="id >= 4", offset=2) == [6, 7, 8]
        assert found(shared_table, 30, offset=45) == list(range(45, 50))

    def test_a_query_gives_row_ids_when_asked(self, shared_table: CaseTable) -> None:
        rows = query(shared_table, columns=["id"], with_row_id=True)
        assert rows.schema.names == ["id", "_rowid"]
        assert len(set(rows["_rowid"].to_pylist())) == 50

    def test_a_query_of_a_version_sees_the_rows_it_had(self, shared_table: CaseTable) -> None:
        assert sorted(found(shared_table, version=1)) == list(IDS)
        assert sorted(found(shared_table, version=2)) == list(range(50))

    def test_a_query_of_a_branch_sees_its_rows(self, shared_table: CaseTable) -> None:
        assert sorted(found(shared_table, branch="dev")) == list(range(10, 40))
        assert sorted(found(shared_table, branch="dev", version=1)) == list(IDS)
        assert sorted(found(shared_table, branch="main")) == list(range(50))

    def test_a_count_of_a_branch_counts_its_rows(self, shared_table: CaseTable) -> None:
        api, table_id = shared_table.ns, shared_table.id
        assert api.count(table_id) == 50
        assert api.count(table_id, branch="dev", predicate="id < 20") == 10
        assert api.count(table_id, branch="dev", version=1) == 40

    def test_bad_queries_are_refused(self, shared_table: SharedTable, refusals: Refusals) -> None:
        self.refuse(refusals, shared_table, BAD_QUERIES)

    # -- plans -----------------------------------------------------------------------------------

    def test_a_plan_says_how_a_query_would_be_run(self, shared_table: CaseTable) -> None:
        plan = shared_table.call("explain_table_query_plan", query=query_fields(filter="id = 31"))
        assert isinstance(plan, str)
        assert "31" in plan
        longer = shared_table.call(
            "explain_table_query_plan", query=query_fields(filter="id = 31"), verbose=True
        )
        assert "31" in longer

    def test_the_plan_of_a_search_names_the_index(self, shared_table: CaseTable) -> None:
        fields = query_fields(3, vector=[0.0] * 8)
        plan = shared_table.call("explain_table_query_plan", query=fields)
        assert "vector_idx" in plan
        plan = shared_table.call(
            "explain_table_query_plan", query={**fields, "bypass_vector_index": True}
        )
        assert "vector_idx" not in plan

    def test_an_analyzed_plan_says_what_was_done(self, shared_table: CaseTable) -> None:
        plan = shared_table.call("analyze_table_query_plan", **query_fields(filter="id = 31"))
        assert isinstance(plan, str)
        assert "output_rows=1" in plan
