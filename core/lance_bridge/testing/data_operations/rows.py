"""Cases: insert, merge, update and delete."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest
from lance_namespace import ErrorCode

from ..build import malformed_streams
from ..cases import needs
from ..expect import code_of
from .case_table import CaseTable, DataOperationCases, thin
from .items import IDS, SCHEMA, items, text_of

INVALID = ErrorCode.INVALID_INPUT
NO_COLUMN = ErrorCode.TABLE_COLUMN_NOT_FOUND
BAD_SCHEMA = ErrorCode.TABLE_SCHEMA_VALIDATION_ERROR

MISFITS = {
    "a column of another type": items(range(50, 52)).set_column(
        1, "word", pa.array([1, 2], pa.int64())
    ),
    "without a required column": items(range(50, 52)).drop_columns(["id"]),
    "a column that the table lacks": items(range(50, 52)).append_column("extra", pa.array([1, 2])),
    "vectors of another length": items(range(50, 52)).set_column(
        6, "vector", pa.array([[1.0], [2.0]], pa.list_(pa.float32(), 1))
    ),
}
"""Rows that do not fit the table."""

MALFORMED = {
    "empty bytes": b"",
    "not Arrow": b"\xff\xff\xff\xff\x08\x00\x00\x00not rows",
    "cut in the rows": malformed_streams()["cut in the rows"],
}
"""Streams that no rows can be read from, and that no reader takes for very long ones."""


class InsertCases(DataOperationCases):
    """InsertIntoTable."""

    @thin
    def test_insert_appends_the_rows(self, table: CaseTable) -> None:
        answer = table.call("insert_into_table", items(range(40, 45)))
        assert answer.num_inserted_rows in (5, None)
        assert answer.version in (2, None)
        assert table.dataset().version == 2
        assert table.rows() == items(range(45)).to_pylist()

    @pytest.mark.parametrize("mode", ["Append", "append", "APPEND"])
    def test_insert_with_mode_append_appends(self, table: CaseTable, mode: str) -> None:
        table.call("insert_into_table", items([40]), mode=mode)
        assert table.ids() == list(range(41))

    @pytest.mark.parametrize("mode", ["Overwrite", "overwrite", "OVERWRITE"])
    def test_insert_with_mode_overwrite_replaces_the_rows(
        self, table: CaseTable, mode: str
    ) -> None:
        table.call("insert_into_table", items(range(7, 9)), mode=mode)
        assert table.ids() == [7, 8]
        assert table.dataset(version=1).count_rows() == len(IDS)

    def test_insert_takes_columns_in_any_order_and_fills_the_others_with_null(
        self, table: CaseTable
    ) -> None:
        table.call("insert_into_table", items([40]).select(["text", "id"]))
        row = table.rows()[40]
        assert (row["id"], row["text"]) == (40, text_of(40))
        assert {row[name] for name in ("word", "n")} == {None}

    def test_insert_of_no_rows_keeps_the_rows(self, table: CaseTable) -> None:
        table.call("insert_into_table", items([]))
        assert table.ids() == list(IDS)

    @pytest.mark.parametrize("misfit", MISFITS)
    def test_insert_of_rows_that_do_not_fit_is_a_schema_error(
        self, shared_table: CaseTable, misfit: str
    ) -> None:
        with shared_table.refuses(BAD_SCHEMA):
            shared_table.call("insert_into_table", MISFITS[misfit])

    def test_overwrite_with_rows_that_do_not_fit_is_a_schema_error(
        self, shared_table: CaseTable
    ) -> None:
        with shared_table.refuses(BAD_SCHEMA):
            misfit = MISFITS["a column of another type"]
            shared_table.call("insert_into_table", misfit, mode="Overwrite")

    def test_insert_with_an_unknown_mode_is_invalid_input(self, shared_table: CaseTable) -> None:
        with shared_table.refuses(INVALID, naming="Upsert"):
            shared_table.call("insert_into_table", items([40]), mode="Upsert")

    @pytest.mark.parametrize("operation", ["insert_into_table", "merge_insert_into_table"])
    def test_rows_from_a_malformed_stream_are_invalid_input(
        self, shared_table: CaseTable, operation: str
    ) -> None:
        before = shared_table.state()
        more = {"on": ["id"], "when_not_matched_insert_all": True} if "merge" in operation else {}
        codes = {
            fault: code_of(lambda stream=stream: shared_table.call(operation, stream, **more))
            for fault, stream in MALFORMED.items()
        }
        assert codes == dict.fromkeys(MALFORMED, INVALID)
        assert shared_table.state() == before


def counts(answer: Any) -> tuple[int, int, int]:
    """Return how many rows a merge updated, inserted and deleted; absent is none."""
    return (
        answer.num_updated_rows or 0,
        answer.num_inserted_rows or 0,
        answer.num_deleted_rows or 0,
    )


def renamed(ids: range) -> pa.Table:
    """Return items whose ``word`` is ``new``."""
    new = pa.array(["new"] * len(ids), pa.string())
    return items(ids).set_column(1, SCHEMA.field("word"), new)


class MergeCases(DataOperationCases):
    """MergeInsertIntoTable."""

    @thin
    def test_merge_updates_matched_rows_and_inserts_the_others(self, table: CaseTable) -> None:
        answer = table.call(
            "merge_insert_into_table",
            renamed(range(38, 43)),
            on=["id"],
            when_matched_update_all=True,
            when_not_matched_insert_all=True,
        )
        assert counts(answer) == (2, 3, 0)
        assert table.ids() == list(range(43))
        assert [row["id"] for row in table.rows() if row["word"] == "new"] == list(range(38, 43))

    def test_merge_updates_only_where_the_condition_holds(self, table: CaseTable) -> None:
        answer = table.call(
            "merge_insert_into_table",
            renamed(range(4)),
            on=["id"],
            when_matched_update_all=True,
            when_matched_update_all_filt="target.n >= 2",
        )
        assert counts(answer) == (2, 0, 0)
        assert [row["id"] for row in table.rows() if row["word"] == "new"] == [2, 3]

    def test_merge_can_insert_only(self, table: CaseTable) -> None:
        answer = table.call(
            "merge_insert_into_table",
            renamed(range(38, 43)),
            on=["id"],
            when_not_matched_insert_all=True,
        )
        assert counts(answer) == (0, 3, 0)
        assert [row["id"] for row in table.rows() if row["word"] == "new"] == [40, 41, 42]

    def test_merge_deletes_rows_that_the_source_lacks(self, table: CaseTable) -> None:
        answer = table.call(
            "merge_insert_into_table",
            renamed(range(38, 43)),
            on=["id"],
            when_matched_update_all=True,
            when_not_matched_by_source_delete=True,
        )
        assert counts(answer) == (2, 0, 38)
        assert table.ids() == [38, 39]

    def test_merge_deletes_only_where_the_condition_holds(self, table: CaseTable) -> None:
        answer = table.call(
            "merge_insert_into_table",
            renamed(range(38, 43)),
            on=["id"],
            when_not_matched_insert_all=True,
            when_not_matched_by_source_delete=True,
            when_not_matched_by_source_delete_filt="id < 5",
        )
        assert counts(answer) == (0, 3, 5)
        assert table.ids() == list(range(5, 43))

    def test_merge_matches_by_several_columns(self, table: CaseTable) -> None:
        answer = table.call(
            "merge_insert_into_table",
            items(range(2)),
            on=["word", "id"],
            when_matched_update_all=True,
            when_not_matched_insert_all=True,
            use_index=False,
            timeout="30s",
        )
        assert counts(answer) == (2, 0, 0)
        assert table.rows() == items(IDS).to_pylist()

    def test_merge_by_an_unknown_column_names_it(self, shared_table: CaseTable) -> None:
        with shared_table.refuses(NO_COLUMN, naming="nocolumn"):
            _merge(shared_table, on=["nocolumn"])

    @pytest.mark.parametrize(
        "fields",
        [
            {"on": None},
            {"when_matched_update_all_filt": "target.id >>> "},
            {"when_matched_update_all_filt": "target.id + 1"},
            {
                "when_not_matched_by_source_delete": True,
                "when_not_matched_by_source_delete_filt": "((",
            },
            {"timeout": "soon"},
        ],
        ids=str,
    )
    def test_a_merge_that_makes_no_sense_is_invalid_input(
        self, shared_table: CaseTable, fields: dict[str, Any]
    ) -> None:
        with shared_table.refuses(INVALID):
            _merge(shared_table, **fields)

    def test_merge_of_rows_that_do_not_fit_is_a_schema_error(self, shared_table: CaseTable) -> None:
        with shared_table.refuses(BAD_SCHEMA, NO_COLUMN):
            misfit = MISFITS["a column that the table lacks"]
            _merge(shared_table, misfit)


def _merge(table: CaseTable, rows: pa.Table | None = None, **fields: Any) -> Any:
    given = {
        "on": ["id"],
        "when_matched_update_all": True,
        "when_not_matched_insert_all": True,
        **fields,
    }
    return table.call("merge_insert_into_table", items([1]) if rows is None else rows, **given)


class ChangeCases(DataOperationCases):
    """UpdateTable and DeleteFromTable."""

    @thin
    def test_update_sets_columns_of_the_rows_that_match(self, table: CaseTable) -> None:
        answer = table.call(
            "update_table", updates=[["word", "'new'"], ["n", "n + 100"]], predicate="id < 3"
        )
        assert answer.updated_rows == 3
        assert answer.version == table.dataset().version
        assert table.values("word")[:4] == ["new", "new", "new", "fig"]
        assert table.values("n")[:4] == [100, 101, 102, 3]
        assert table.ids() == list(IDS)

    def test_update_without_a_predicate_changes_all_rows(self, table: CaseTable) -> None:
        answer = table.call("update_table", updates=[["word", "upper(word)"]])
        assert answer.updated_rows == len(IDS)
        assert set(table.values("word")) == {"APPLE", "PEAR", "PLUM", "FIG"}

    def test_update_that_matches_nothing_changes_nothing(self, table: CaseTable) -> None:
        answer = table.call("update_table", updates=[["word", "'new'"]], predicate="id < 0")
        assert answer.updated_rows == 0
        assert table.rows() == items(IDS).to_pylist()

    @pytest.mark.parametrize(
        ("updates", "predicate"),
        [
            ([["nocolumn", "1"]], None),
            ([["n", "nocolumn + 1"]], None),
            ([["n", "1"]], "nocolumn = 1"),
        ],
        ids=str,
    )
    def test_update_with_an_unknown_column_names_it(
        self, shared_table: CaseTable, updates: list[list[str]], predicate: str | None
    ) -> None:
        with shared_table.refuses(NO_COLUMN, naming="nocolumn"):
            shared_table.call("update_table", updates=updates, predicate=predicate)

    @pytest.mark.parametrize(
        ("updates", "predicate"),
        [
            ([], None),
            ([["n", "n +"]], None),
            ([["n", "'seven'"]], None),
            ([["id", "NULL"]], None),
            ([["n", "1"], ["n", "2"]], None),
            ([["n", "1"]], "id >>>"),
            ([["n", "1"]], "id + 1"),
            ([["n", "1"]], "id = 1; drop table t"),
        ],
        ids=str,
    )
    def test_an_update_that_makes_no_sense_is_invalid_input(
        self, shared_table: CaseTable, updates: list[list[str]], predicate: str | None
    ) -> None:
        with shared_table.refuses(INVALID):
            shared_table.call("update_table", updates=updates, predicate=predicate)

    @thin
    def test_delete_removes_the_rows_that_match(self, table: CaseTable) -> None:
        answer = table.call("delete_from_table", predicate="n < 10 OR inner.x = 40")
        assert answer.version in (table.dataset().version, None)
        assert table.ids() == [9, *range(10, 20), *range(21, 40)]

    def test_delete_that_matches_nothing_keeps_the_rows(self, table: CaseTable) -> None:
        table.call("delete_from_table", predicate="id < 0")
        assert table.ids() == list(IDS)

    def test_delete_by_an_unknown_column_names_it(self, shared_table: CaseTable) -> None:
        with shared_table.refuses(NO_COLUMN, naming="nocolumn"):
            shared_table.call("delete_from_table", predicate="nocolumn = 1")

    @pytest.mark.parametrize("predicate", ["", "id >>>", "id + 1", "id = 'x", "true; true"])
    def test_delete_with_a_bad_predicate_is_invalid_input(
        self, shared_table: CaseTable, predicate: str
    ) -> None:
        with shared_table.refuses(INVALID):
            shared_table.call("delete_from_table", predicate=predicate)


class RowCases(InsertCases, MergeCases, ChangeCases):
    """Operations that write rows."""

    @needs("create_empty_table")
    @pytest.mark.filterwarnings("ignore:create_empty_table:DeprecationWarning")
    def test_an_empty_table_is_a_declared_one(self, table: CaseTable) -> None:
        ns = table.ns
        table_id = [*table.id[:-1], f"{table.id[-1]}_empty"]
        answer = ns.call("create_empty_table", table_id)
        assert answer.location == ns.location(table_id)
        assert ns.describe_table(table_id, check_declared=True).is_only_declared
