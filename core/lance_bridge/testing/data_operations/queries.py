"""Cases: queries by filter, of versions and branches, and their plans."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest
from lance_namespace import ErrorCode

from .case_table import CaseTable, DataOperationCases, thin
from .items import IDS, SCHEMA, items

INVALID = ErrorCode.INVALID_INPUT
NO_COLUMN = ErrorCode.TABLE_COLUMN_NOT_FOUND

BAD_FILTERS = ["id >>> ", "((", "id = 'x", "select 1", "id + 1", "id = 1; drop table t"]


def query_fields(k: int = 100, **options: Any) -> dict[str, Any]:
    """Return the fields of a query.

    Args:
        options: Those of the request, but ``vector`` is one vector, ``vectors`` are several,
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
    """Run a query; return the rows in the Arrow IPC file of the answer."""
    answer = table.call("query_table", **query_fields(k, **options))
    return pa.ipc.open_file(answer.data).read_all()


def found(table: CaseTable, k: int = 100, **options: Any) -> list[int]:
    """Run a query; return the ids of its rows."""
    ids: list[int] = query(table, k, **options)["id"].to_pylist()
    return ids


class QueryCases(DataOperationCases):
    """QueryTable without a search, and the plans of queries."""

    @thin
    def test_a_query_answers_with_the_rows_that_match(self, indexed_table: CaseTable) -> None:
        rows = query(indexed_table, filter="id >= 47 OR inner.x = 10")
        assert rows.schema.names == SCHEMA.names
        assert rows.to_pylist() == items([5, 47, 48, 49]).to_pylist()

    def test_a_query_that_matches_nothing_answers_with_the_columns(
        self, indexed_table: CaseTable
    ) -> None:
        rows = query(indexed_table, filter="id < 0")
        assert (rows.num_rows, rows.schema.names) == (0, SCHEMA.names)

    @pytest.mark.parametrize(
        ("columns", "row"),
        [
            (["word", "id"], {"word": "pear", "id": 5}),
            (["inner.x"], {"inner.x": 10}),
            ({"twice": "id * 2", "x": "inner.x"}, {"twice": 10, "x": 10}),
            (["id", "labels"], {"id": 5, "labels": ["blue", "apple"]}),
        ],
        ids=str,
    )
    def test_a_query_answers_with_the_columns_asked_for(
        self, indexed_table: CaseTable, columns: Any, row: dict[str, Any]
    ) -> None:
        assert query(indexed_table, filter="id = 5", columns=columns).to_pylist() == [row]

    def test_a_query_answers_with_at_most_k_rows_after_the_offset(
        self, indexed_table: CaseTable
    ) -> None:
        assert found(indexed_table, 3, filter="id >= 4") == [4, 5, 6]
        assert found(indexed_table, 3, filter="id >= 4", offset=2) == [6, 7, 8]
        assert found(indexed_table, 30, offset=45) == list(range(45, 50))

    def test_a_query_gives_row_ids_when_asked(self, indexed_table: CaseTable) -> None:
        rows = query(indexed_table, columns=["id"], with_row_id=True)
        assert rows.schema.names == ["id", "_rowid"]
        assert len(set(rows["_rowid"].to_pylist())) == 50

    def test_a_query_of_a_version_sees_the_rows_it_had(self, indexed_table: CaseTable) -> None:
        assert sorted(found(indexed_table, version=1)) == list(IDS)
        assert sorted(found(indexed_table, version=2)) == list(range(50))

    def test_a_query_of_a_branch_sees_its_rows(self, indexed_table: CaseTable) -> None:
        assert sorted(found(indexed_table, branch="dev")) == list(range(10, 40))
        assert sorted(found(indexed_table, branch="dev", version=1)) == list(IDS)
        assert sorted(found(indexed_table, branch="main")) == list(range(50))

    def test_a_count_of_a_branch_counts_its_rows(self, indexed_table: CaseTable) -> None:
        api, table_id = indexed_table.ns, indexed_table.id
        assert api.count(table_id) == 50
        assert api.count(table_id, branch="dev", predicate="id < 20") == 10
        assert api.count(table_id, branch="dev", version=1) == 40

    # -- what is refused -------------------------------------------------------------------------

    @pytest.mark.parametrize(
        "options",
        [
            {"filter": "nocolumn = 1"},
            {"columns": ["nocolumn"]},
            {"columns": {"a": "nocolumn + 1"}},
        ],
        ids=str,
    )
    def test_a_query_by_an_unknown_column_names_it(
        self, indexed_table: CaseTable, options: dict[str, Any]
    ) -> None:
        with indexed_table.refuses(NO_COLUMN, naming="nocolumn"):
            query(indexed_table, **options)

    @pytest.mark.parametrize("bad", BAD_FILTERS)
    def test_a_query_with_a_bad_filter_is_invalid_input(
        self, indexed_table: CaseTable, bad: str
    ) -> None:
        with indexed_table.refuses(INVALID):
            query(indexed_table, filter=bad)

    @pytest.mark.parametrize("operation", ["query_table", "analyze_table_query_plan"])
    def test_a_query_of_a_missing_version_is_version_not_found(
        self, indexed_table: CaseTable, operation: str
    ) -> None:
        with indexed_table.refuses(ErrorCode.TABLE_VERSION_NOT_FOUND, naming="99"):
            indexed_table.call(operation, **query_fields(version=99))
        with indexed_table.refuses(ErrorCode.TABLE_VERSION_NOT_FOUND, naming="99"):
            indexed_table.call(operation, **query_fields(version=99, branch="dev"))

    # -- plans -----------------------------------------------------------------------------------

    @thin
    def test_a_plan_says_how_a_query_would_be_run(self, indexed_table: CaseTable) -> None:
        plan = indexed_table.call("explain_table_query_plan", query=query_fields(filter="id = 31"))
        assert isinstance(plan, str)
        assert "31" in plan
        longer = indexed_table.call(
            "explain_table_query_plan", query=query_fields(filter="id = 31"), verbose=True
        )
        assert "31" in longer

    def test_the_plan_of_a_search_names_the_index(self, indexed_table: CaseTable) -> None:
        fields = query_fields(3, vector=[0.0] * 8)
        plan = indexed_table.call("explain_table_query_plan", query=fields)
        assert "vector_idx" in plan
        plan = indexed_table.call(
            "explain_table_query_plan", query={**fields, "bypass_vector_index": True}
        )
        assert "vector_idx" not in plan

    def test_an_analyzed_plan_says_what_was_done(self, indexed_table: CaseTable) -> None:
        plan = indexed_table.call("analyze_table_query_plan", **query_fields(filter="id = 31"))
        assert isinstance(plan, str)
        assert "output_rows=1" in plan

    @pytest.mark.parametrize("operation", ["explain_table_query_plan", "analyze_table_query_plan"])
    def test_the_plan_of_a_bad_query_is_refused_as_the_query_is(
        self, indexed_table: CaseTable, operation: str
    ) -> None:
        def plan(**options: Any) -> None:
            fields = query_fields(**options)
            indexed_table.call(
                operation, **({"query": fields} if "explain" in operation else fields)
            )

        with indexed_table.refuses(NO_COLUMN, naming="nocolumn"):
            plan(filter="nocolumn = 1")
        with indexed_table.refuses(INVALID):
            plan(filter="((")
