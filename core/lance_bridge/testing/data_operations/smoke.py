"""Cases: each operation on data works once."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
from lance_namespace import ErrorCode

from ..case_namespace import CaseNamespace
from ..cases import needs, why_absent
from ..expect import refused
from ..items import IDS, items, vector_of
from .case_table import CaseTable, DataOperationCases

INVALID = ErrorCode.INVALID_INPUT
_UPSERT = {"on": ["id"], "when_matched_update_all": True, "when_not_matched_insert_all": True}


class SmokeCases(DataOperationCases):
    """A few tables go through every operation; see `EntrySuite`."""

    def test_rows_are_inserted_merged_updated_and_deleted(self, table: CaseTable) -> None:
        table.call("insert_into_table", items(range(40, 43)))
        table.call("merge_insert_into_table", items(range(42, 45)), **_UPSERT)
        table.call("update_table", updates=[["word", "'new'"]], predicate="id = 0")
        table.call("delete_from_table", predicate="id = 1")
        assert table.ids() == [0, *range(2, 45)]
        assert table.values("word")[:2] == ["new", "plum"]
        assert _found(table, filter="word = 'new' OR inner.x = 10") == [0, 5]
        table.call("insert_into_table", items([7]), mode="Overwrite")
        assert table.ids() == [7]

    def test_columns_are_added_altered_and_dropped(self, table: CaseTable) -> None:
        added = [{"name": "twice", "expression": "id * 2"}]
        table.call("alter_table_add_columns", new_columns=added)
        table.call("alter_table_alter_columns", alterations=[{"path": "word", "rename": "noun"}])
        table.call("alter_table_drop_columns", columns=["inner"])
        names = ["id", "noun", "text", "n", "vector", "twice"]
        assert table.dataset().schema.names == names
        assert table.values("twice") == [number * 2 for number in IDS]
        table.call("update_table_schema_metadata", metadata={"author": "Ines"})
        assert table.dataset().schema.metadata == {b"author": b"Ines"}

    @needs("alter_table_backfill_columns")
    def test_a_computed_column_is_filled(self, table: CaseTable) -> None:
        computed = [{"name": "twice", "computed": "id * 2"}]
        table.call("alter_table_add_columns", new_columns=computed)
        assert set(table.values("twice")) == {None}
        assert table.call("alter_table_backfill_columns", column="twice").job_id
        assert table.values("twice") == [number * 2 for number in IDS]

    @needs("update_field_metadata")
    def test_a_field_has_metadata(self, table: CaseTable) -> None:
        entry = {"path": "word", "metadata": {"unit": "m"}}
        table.call("update_field_metadata", updates=[entry])
        assert table.dataset().schema.field("word").metadata == {b"unit": b"m"}

    def test_indices_are_built_and_searched(self, table: CaseTable) -> None:
        table.call("create_table_scalar_index", column="id", index_type="BTREE")
        table.call("create_table_index", column="text", index_type="FTS")
        listed = table.call("list_table_indices").indexes
        assert sorted(each.index_name for each in listed) == ["id_idx", "text_idx"]
        stats = table.call("describe_table_index_stats", index_name="id_idx")
        assert stats.num_indexed_rows == 40
        assert table.call("get_table_stats").num_indices == 2
        plan = _query_fields(filter="id = 31")
        assert "31" in table.call("explain_table_query_plan", query=plan)
        assert "31" in table.call("analyze_table_query_plan", **plan)
        assert 10 in _found(table, text="apple")
        table.call("drop_table_index", index_name="id_idx")
        assert [each.name for each in table.dataset().describe_indices()] == ["text_idx"]
        with table.unchanged(), refused(INVALID):
            table.call("create_table_index", column="id", index_type="HASH")

    def test_vectors_are_searched_by_the_distance_of_the_request(self, table: CaseTable) -> None:
        near = {"vector": vector_of(7), "bypass_vector_index": True}
        assert _found(table, 1, **near) == [7]
        assert _found(table, 1, distance_type="cosine", **near) == [7]
        assert _found(table, 1, distance_type="dot", **near) == [39]

    def test_tags_and_branches_are_made_listed_and_deleted(self, table: CaseTable) -> None:
        table.call("insert_into_table", items([40]))
        table.call("create_table_tag", tag="last", version=2)
        assert table.call("get_table_tag_version", tag="last").version == 2
        table.call("update_table_tag", tag="last", version=1)
        assert table.call("list_table_tags").tags["last"].version == 1
        table.call("create_table_branch", name="dev")
        assert list(table.call("list_table_branches").branches) == ["dev"]
        assert table.ids("dev") == list(range(41))
        table.call("delete_table_branch", name="dev")
        table.call("delete_table_tag", tag="last")
        assert not table.dataset().branches.list()
        assert not table.dataset().tags.list()

    def test_versions_are_created_described_restored_and_deleted(self, table: CaseTable) -> None:
        table.call("create_table_version", **table.stage())
        assert table.ids() == [*IDS, 100]
        assert table.call("describe_table_version", version=2).version.version == 2
        table.call("create_table_branch", name="dev", from_version=1)
        table.call("insert_into_table", items([40]), branch="dev")
        table.call("restore_table", version=1)
        assert (table.ids(), table.ids("dev")) == (list(IDS), list(range(41)))
        listed = table.call("list_table_versions").versions
        assert {each.version for each in listed} == {1, 2, 3}
        transaction = table.ns.call("describe_transaction", [*table.id, "3"])
        assert transaction.properties["operation"] == "Restore"
        first, second = ([{"start_version": n, "end_version": n + 1}] for n in (1, 2))
        assert table.call("batch_delete_table_versions", ranges=second).deleted_count == 1
        with table.unchanged(), refused(INVALID, naming="dev"):
            table.call("batch_delete_table_versions", ranges=first)

    @needs("alter_transaction")
    def test_a_transaction_stays_as_it_ended(self, table: CaseTable) -> None:
        def alter(status: str) -> Any:
            actions = [{"setStatusAction": {"status": status}}]
            return table.ns.call("alter_transaction", [*table.id, "1"], actions=actions)

        assert alter("Succeeded").status.upper() == "SUCCEEDED"
        with refused(ErrorCode.UNSUPPORTED, INVALID):
            alter("Canceled")

    @needs("managed_tables")
    def test_several_tables_are_committed_together(self, shared_namespace: CaseNamespace) -> None:
        properties = {"managed_by": "impl"}
        tables = [CaseTable(shared_namespace, properties=properties) for _ in range(2)]
        for operation, field in {
            "batch_create_table_versions": "entries",
            "batch_commit_tables": "operations",
        }.items():
            if not why_absent(shared_namespace.target, operation):
                entries = [{"id": each.id, **each.stage()} for each in tables]
                if field == "operations":
                    entries = [{"create_table_version": each} for each in entries]
                shared_namespace.call(operation, None, **{field: entries})
        assert tables[0].ids() == tables[1].ids()


def _query_fields(k: int = 100, **options: Any) -> dict[str, Any]:
    """Return the fields of a query: ``vector`` is one, ``text`` a string in the column ``text``."""
    if (text := options.pop("text", None)) is not None:
        options["full_text_query"] = {"string_query": {"query": text, "columns": ["text"]}}
    return {"k": k, "vector": {"single_vector": options.pop("vector", None)}, **options}


def _found(table: CaseTable, k: int = 100, **options: Any) -> list[int]:
    """Run a query; return the ids of its rows."""
    answer = table.call("query_table", **_query_fields(k, **options))
    return sorted(pa.ipc.open_file(answer.data).read_all()["id"].to_pylist())
