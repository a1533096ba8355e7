"""Cases: operations on a branch change that branch, and leave main as it is."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from ..case_namespace import CaseNamespace
from .case_table import CaseTable, DataOperationCases, make_table, thin
from .items import items
from .operations import BRANCHED, INSIDE

READERS = frozenset(
    {
        "analyze_table_query_plan",
        "count_table_rows",
        "describe_table_index_stats",
        "describe_table_version",
        "explain_table_query_plan",
        "get_table_stats",
        "list_table_indices",
        "list_table_versions",
        "query_table",
    }
)
"""Operations with a branch that change nothing; their own cases look at the branch."""
_APART = frozenset(
    {
        # Their own cases look at the branch.
        "create_table_tag",
        "update_table_tag",
        # They need what is prepared below.
        "batch_delete_table_versions",
        "create_table_version",
    }
)
WRITERS = sorted(set(BRANCHED) - READERS - _APART)


def _computed(table: CaseTable) -> None:
    fields = {"new_columns": [{"name": "word2", "computed": "word"}], "branch": "dev"}
    table.call("alter_table_add_columns", **fields)


def _indexed(table: CaseTable) -> None:
    table.dataset("dev").create_scalar_index("id", "BTREE", name="id_idx")


_PREPARED: dict[str, tuple[Callable[[CaseTable], None], dict[str, Any]]] = {
    "alter_table_backfill_columns": (_computed, {"column": "word2"}),
    "drop_table_index": (_indexed, {}),
}
"""Operation to what must be on the branch first, and to fields of its request."""


class BranchedCases(DataOperationCases):
    """The branch of a request is where it takes effect."""

    @pytest.mark.parametrize("operation", WRITERS)
    def test_an_operation_on_a_branch_leaves_main_alone(
        self, shared_namespace: CaseNamespace, operation: str
    ) -> None:
        reason = shared_namespace.target.lacks(operation)
        if reason:
            pytest.skip(reason)
        table = make_table(shared_namespace)
        table.dataset().create_branch("dev", 1)
        prepare, fields = _PREPARED.get(operation, (None, {}))
        if prepare is not None:
            prepare(table)
        main, before = table.state(), table.dataset("dev").version
        INSIDE[operation](shared_namespace, table.id, {"branch": "dev", **fields})
        assert table.state() == main
        assert table.dataset("dev").version > before

    @thin
    def test_rows_are_inserted_into_a_branch(self, shared_namespace: CaseNamespace) -> None:
        table = make_table(shared_namespace)
        table.dataset().create_branch("dev", 1)
        table.call("insert_into_table", items([40]), branch="dev")
        assert table.ids("dev") == list(range(41))
        assert table.ids() == list(range(40))

    def test_versions_of_a_branch_are_deleted_by_themselves(
        self, shared_namespace: CaseNamespace
    ) -> None:
        table = make_table(shared_namespace)
        table.dataset().create_branch("dev", 1).delete("id < 3")
        ranges = [{"start_version": 1, "end_version": 2}]
        answer = table.call("batch_delete_table_versions", ranges=ranges, branch="dev")
        assert answer.deleted_count == 1
        listed = table.call("list_table_versions", branch="dev").versions
        assert [each.version for each in listed] == [2]
        assert table.dataset().version == 1
