"""Cases: each operation on data works once; for targets on which the full cases do not run."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
from lance_namespace import ErrorCode

from ..case_namespace import CaseNamespace
from ..cases import needs, why_absent
from .case_table import CaseTable, DataOperationCases
from .items import items
from .queries import query_fields
from .versions import stage

_UPSERT = {"on": ["id"], "when_matched_update_all": True, "when_not_matched_insert_all": True}


class SmokeCases(DataOperationCases):
    """A few tables go through every operation; see `EntrySuite`."""

    def test_rows_and_columns_are_changed_and_queried(self, table: CaseTable) -> None:
        table.call("insert_into_table", items(range(40, 43)))
        table.call("merge_insert_into_table", items(range(42, 45)), **_UPSERT)
        table.call("update_table", updates=[["word", "'new'"]], predicate="id = 0")
        table.call("delete_from_table", predicate="id = 1")
        assert table.ids() == [0, *range(2, 45)]
        assert _query(table, filter="id < 2")["word"].to_pylist() == ["new"]
        added = [{"name": "twice", "expression": "id * 2"}]
        table.call("alter_table_add_columns", new_columns=added)
        table.call("alter_table_alter_columns", alterations=[{"path": "word", "rename": "noun"}])
        table.call("alter_table_drop_columns", columns=["n"])
        assert table.values("twice") == [number * 2 for number in table.ids()]
        assert {"noun", "twice"} <= set(table.dataset().schema.names)
        assert "n" not in table.dataset().schema.names
        table.call("update_table_schema_metadata", metadata={"author": "Ines"})
        assert table.dataset().schema.metadata == {b"author": b"Ines"}

    def test_indices_are_built_and_searched(self, table: CaseTable) -> None:
        table.call("create_table_scalar_index", column="id", index_type="BTREE")
        table.call("create_table_index", column="text", index_type="FTS")
        stats = table.call("describe_table_index_stats", index_name="id_idx")
        assert stats.num_indexed_rows == 40
        assert table.call("get_table_stats").num_indices == 2
        assert "31" in table.call("explain_table_query_plan", query=query_fields(filter="id = 31"))
        assert _query(table, 1, vector=table.rows()[7]["vector"])["id"].to_pylist() == [7]
        assert 10 in _query(table, text="apple", among=["text"])["id"].to_pylist()
        table.call("drop_table_index", index_name="id_idx")
        assert [each.name for each in table.dataset().describe_indices()] == ["text_idx"]

    def test_versions_tags_and_branches_are_made_and_deleted(self, table: CaseTable) -> None:
        table.call("create_table_version", **stage(table))
        assert table.ids() == [*range(40), 100]
        table.call("create_table_tag", tag="first", version=1)
        assert table.call("get_table_tag_version", tag="first").version == 1
        table.call("create_table_branch", name="dev", from_version=1)
        table.call("insert_into_table", items([40]), branch="dev")
        table.call("restore_table", version=1)
        assert (table.ids(), table.ids("dev")) == (list(range(40)), list(range(41)))
        listed = table.call("list_table_versions").versions
        assert {each.version for each in listed} == {1, 2, 3}
        transaction = table.ns.call("describe_transaction", [*table.id, "3"])
        assert transaction.properties["operation"] == "Restore"
        ranges = [{"start_version": 2, "end_version": 3}]
        assert table.call("batch_delete_table_versions", ranges=ranges).deleted_count == 1
        with table.refuses(ErrorCode.INVALID_INPUT, naming="first"):
            table.call(
                "batch_delete_table_versions", ranges=[{"start_version": 1, "end_version": 2}]
            )

    @needs("managed_tables")
    def test_several_tables_are_committed_together(self, shared_namespace: CaseNamespace) -> None:
        properties = {"managed_by": "impl"}
        tables = [CaseTable(shared_namespace, properties=properties) for _ in range(2)]
        for operation, field in {
            "batch_create_table_versions": "entries",
            "batch_commit_tables": "operations",
        }.items():
            if not why_absent(shared_namespace.target, operation):
                entries = [{"id": each.id, **stage(each)} for each in tables]
                if field == "operations":
                    entries = [{"create_table_version": each} for each in entries]
                shared_namespace.call(operation, None, **{field: entries})
        assert tables[0].ids() == tables[1].ids()


def _query(table: CaseTable, k: int = 100, **options: Any) -> pa.Table:
    answer = table.call("query_table", **query_fields(k, **options))
    return pa.ipc.open_file(answer.data).read_all()
