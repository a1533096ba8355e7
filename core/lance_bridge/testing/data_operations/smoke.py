"""Case: one table goes through what every other group inside a table is about."""

from __future__ import annotations

from typing import Any

import pyarrow as pa

from .case_table import CaseTable, DataOperationCases, thin
from .items import items

_UPSERT = {"on": ["id"], "when_matched_update_all": True, "when_not_matched_insert_all": True}
_FIRST: dict[str, Any] = {"k": 100, "vector": {}, "filter": "id < 2"}


class SmokeCases(DataOperationCases):
    """What a target runs in place of all cases inside a table; see `ServerSuite`."""

    @thin
    def test_one_table_is_written_queried_indexed_tagged_and_branched(
        self, table: CaseTable
    ) -> None:
        _change_rows(table)
        _change_columns(table)
        table.call("create_table_index", column="id", index_type="BTREE")
        assert len(table.dataset().describe_indices()) == 1
        table.call("create_table_tag", tag="first", version=1)
        assert table.call("get_table_tag_version", tag="first").version == 1
        table.call("create_table_branch", name="dev", from_version=1)
        table.call("restore_table", version=1)
        assert table.rows() == items(range(40)).to_pylist()
        assert table.ids("dev") == list(range(40))
        latest = table.dataset().version
        listed = table.call("list_table_versions").versions
        assert {each.version for each in listed} == set(range(1, latest + 1))


def _change_rows(table: CaseTable) -> None:
    table.call("insert_into_table", items(range(40, 43)))
    table.call("merge_insert_into_table", items(range(42, 45)), **_UPSERT)
    table.call("update_table", updates=[["word", "'new'"]], predicate="id = 0")
    table.call("delete_from_table", predicate="id = 1")
    assert table.ids() == [0, *range(2, 45)]
    answer = table.call("query_table", **_FIRST)
    assert pa.ipc.open_file(answer.data).read_all()["word"].to_pylist() == ["new"]


def _change_columns(table: CaseTable) -> None:
    table.call("alter_table_add_columns", new_columns=[{"name": "twice", "expression": "id * 2"}])
    table.call("alter_table_drop_columns", columns=["n"])
    assert table.values("twice") == [number * 2 for number in table.ids()]
    assert "n" not in table.dataset().schema.names
