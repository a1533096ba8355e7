"""Cases: insert, merge, update and delete."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest
from lance_namespace import ErrorCode

from ..build import malformed_streams
from ..case_namespace import CaseNamespace
from ..cases import Refusals, needs
from .case_table import CaseTable, DataOperationCases, SharedTable, bad
from .items import IDS, SCHEMA, items, text_of

NO_COLUMN = ErrorCode.TABLE_COLUMN_NOT_FOUND
BAD_SCHEMA = ErrorCode.TABLE_SCHEMA_VALIDATION_ERROR

_NEW = items(range(50, 52))
_OTHER_TYPE = _NEW.set_column(1, "word", pa.array([1, 2], pa.int64()))
_EXTRA_COLUMN = _NEW.append_column("extra", pa.array([1, 2]))
_SHORT_VECTORS = _NEW.set_column(6, "vector", pa.array([[1.0], [2.0]], pa.list_(pa.float32(), 1)))
_MALFORMED = {
    "empty bytes": b"",
    "not Arrow": b"\xff\xff\xff\xff\x08\x00\x00\x00not rows",
    "cut in the rows": malformed_streams()["cut in the rows"],
}
"""Streams without readable rows that no reader mistakes for very long streams."""
_UPSERT = {"on": ["id"], "when_matched_update_all": True, "when_not_matched_insert_all": True}
_BY_SOURCE = "when_not_matched_by_source_delete"


def _bad_merge(*codes: ErrorCode, naming: str = "", **fields: Any) -> Any:
    data = fields.pop("data", items([1]))
    given = {**_UPSERT, **fields}
    return bad("merge_insert_into_table", *codes, naming=naming, data=data, **given)


BAD_INSERTS = {
    "a column of another type": bad("insert_into_table", BAD_SCHEMA, data=_OTHER_TYPE),
    "no required column": bad("insert_into_table", BAD_SCHEMA, data=_NEW.drop_columns(["id"])),
    "a column that the table lacks": bad("insert_into_table", BAD_SCHEMA, data=_EXTRA_COLUMN),
    "vectors of another length": bad("insert_into_table", BAD_SCHEMA, data=_SHORT_VECTORS),
    "overwrite with another type": bad(
        "insert_into_table", BAD_SCHEMA, data=_OTHER_TYPE, mode="Overwrite"
    ),
    "unknown mode": bad("insert_into_table", naming="Upsert", data=items([40]), mode="Upsert"),
    **{fault: bad("insert_into_table", data=stream) for fault, stream in _MALFORMED.items()},
}
BAD_MERGES = {
    "by an unknown column": _bad_merge(NO_COLUMN, on=["nocolumn"]),
    "by no column": _bad_merge(on=None),
    "condition that cannot be parsed": _bad_merge(when_matched_update_all_filt="target.id >>> "),
    "condition that is no truth": _bad_merge(when_matched_update_all_filt="target.id + 1"),
    "condition of a delete": _bad_merge(
        when_not_matched_by_source_delete=True, when_not_matched_by_source_delete_filt="(("
    ),
    "timeout": _bad_merge(timeout="soon"),
    "a column that the table lacks": _bad_merge(BAD_SCHEMA, NO_COLUMN, data=_EXTRA_COLUMN),
    **{fault: _bad_merge(data=stream) for fault, stream in _MALFORMED.items()},
}
BAD_UPDATES = {
    "unknown column": bad("update_table", NO_COLUMN, updates=[["nocolumn", "1"]]),
    "unknown column in a value": bad("update_table", NO_COLUMN, updates=[["n", "nocolumn + 1"]]),
    "unknown column in the predicate": bad(
        "update_table", NO_COLUMN, updates=[["n", "1"]], predicate="nocolumn = 1"
    ),
    "nothing": bad("update_table", updates=[]),
    "value that cannot be parsed": bad("update_table", updates=[["n", "n +"]]),
    "value of another type": bad("update_table", updates=[["n", "'seven'"]]),
    "null in a required column": bad("update_table", updates=[["id", "NULL"]]),
    "a column twice": bad("update_table", updates=[["n", "1"], ["n", "2"]]),
    **{
        f"predicate {predicate}": bad("update_table", updates=[["n", "1"]], predicate=predicate)
        for predicate in ("id >>>", "id + 1", "id = 1; drop table t")
    },
}
BAD_DELETES = {
    "unknown column": bad("delete_from_table", NO_COLUMN, predicate="nocolumn = 1"),
    **{
        f"predicate {predicate}": bad("delete_from_table", predicate=predicate)
        for predicate in ("", "id >>>", "id + 1", "id = 'x", "true; true")
    },
}


class InsertCases(DataOperationCases):
    """InsertIntoTable."""

    def test_insert_appends_the_rows(self, table: CaseTable) -> None:
        answer = table.call("insert_into_table", items(range(40, 45)))
        assert answer.num_inserted_rows in (5, None)
        assert answer.version in (2, None)
        assert table.dataset().version == 2
        assert table.rows() == items(range(45)).to_pylist()

    def test_insert_appends_or_overwrites_as_its_mode_says(self, table: CaseTable) -> None:
        for number, mode in enumerate(("Append", "append", "APPEND")):
            table.call("insert_into_table", items([40 + number]), mode=mode)
            assert table.ids() == list(range(41 + number)), mode
        for mode in ("Overwrite", "overwrite", "OVERWRITE"):
            table.append([40])
            table.call("insert_into_table", items(range(7, 9)), mode=mode)
            assert table.ids() == [7, 8], mode
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

    def test_bad_inserts_are_refused(self, shared_table: SharedTable, refusals: Refusals) -> None:
        self.refuse(refusals, shared_table, BAD_INSERTS)


class MergeCases(DataOperationCases):
    """MergeInsertIntoTable."""

    def _merge(self, table: CaseTable, ids: range, **fields: Any) -> tuple[int, int, int]:
        """Merge items whose ``word`` is ``new``; return how many were updated, added, deleted."""
        new = pa.array(["new"] * len(ids), pa.string())
        rows = items(ids).set_column(1, SCHEMA.field("word"), new)
        answer = table.call("merge_insert_into_table", rows, **{"on": ["id"], **fields})
        deleted = answer.num_deleted_rows or 0
        return answer.num_updated_rows or 0, answer.num_inserted_rows or 0, deleted

    def _changed(self, table: CaseTable) -> list[int]:
        return [row["id"] for row in table.rows() if row["word"] == "new"]

    def test_merge_updates_matched_rows_and_inserts_the_others(self, table: CaseTable) -> None:
        assert self._merge(table, range(38, 43), **_UPSERT) == (2, 3, 0)
        assert table.ids() == list(range(43))
        assert self._changed(table) == list(range(38, 43))

    def test_merge_updates_only_where_the_condition_holds(self, table: CaseTable) -> None:
        condition = {"when_matched_update_all_filt": "target.n >= 2"}
        counts = self._merge(table, range(4), when_matched_update_all=True, **condition)
        assert counts == (2, 0, 0)
        assert self._changed(table) == [2, 3]

    def test_merge_can_insert_only(self, table: CaseTable) -> None:
        counts = self._merge(table, range(38, 43), when_not_matched_insert_all=True)
        assert counts == (0, 3, 0)
        assert self._changed(table) == [40, 41, 42]

    def test_merge_deletes_rows_that_the_source_lacks(self, table: CaseTable) -> None:
        delete = {_BY_SOURCE: True}
        counts = self._merge(table, range(38, 43), when_matched_update_all=True, **delete)
        assert counts == (2, 0, 38)
        assert table.ids() == [38, 39]

    def test_merge_deletes_only_where_the_condition_holds(self, table: CaseTable) -> None:
        delete = {_BY_SOURCE: True, f"{_BY_SOURCE}_filt": "id < 5"}
        counts = self._merge(table, range(38, 43), when_not_matched_insert_all=True, **delete)
        assert counts == (0, 3, 5)
        assert table.ids() == list(range(5, 43))

    def test_merge_matches_by_several_columns(self, table: CaseTable) -> None:
        fields = {**_UPSERT, "on": ["word", "id"], "use_index": False, "timeout": "30s"}
        answer = table.call("merge_insert_into_table", items(range(2)), **fields)
        assert (answer.num_updated_rows, answer.num_inserted_rows or 0) == (2, 0)
        assert table.rows() == items(IDS).to_pylist()

    def test_bad_merges_are_refused(self, shared_table: SharedTable, refusals: Refusals) -> None:
        self.refuse(refusals, shared_table, BAD_MERGES)


class ChangeCases(DataOperationCases):
    """UpdateTable and DeleteFromTable."""

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

    def test_changes_that_match_nothing_change_nothing(self, table: CaseTable) -> None:
        answer = table.call("update_table", updates=[["word", "'new'"]], predicate="id < 0")
        assert answer.updated_rows == 0
        table.call("delete_from_table", predicate="id < 0")
        assert table.rows() == items(IDS).to_pylist()

    def test_delete_removes_the_rows_that_match(self, table: CaseTable) -> None:
        answer = table.call("delete_from_table", predicate="n < 10 OR inner.x = 40")
        assert answer.version in (table.dataset().version, None)
        assert table.ids() == [9, *range(10, 20), *range(21, 40)]

    def test_bad_updates_are_refused(self, shared_table: SharedTable, refusals: Refusals) -> None:
        self.refuse(refusals, shared_table, BAD_UPDATES)

    def test_bad_deletes_are_refused(self, shared_table: SharedTable, refusals: Refusals) -> None:
        self.refuse(refusals, shared_table, BAD_DELETES)


class RowCases(InsertCases, MergeCases, ChangeCases):
    """Operations that write rows."""

    @needs("create_empty_table")
    @pytest.mark.filterwarnings("ignore:create_empty_table:DeprecationWarning")
    def test_an_empty_table_is_a_declared_one(self, shared_namespace: CaseNamespace) -> None:
        table_id = shared_namespace.missing_table()
        answer = shared_namespace.call("create_empty_table", table_id)
        assert answer.location == shared_namespace.location(table_id)
        described = shared_namespace.describe_table(table_id, check_declared=True)
        assert described.is_only_declared
