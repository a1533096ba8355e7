"""Cases: tags and branches, and operations on a branch, which leave main as it is."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from lance_namespace import ErrorCode

from ..case_namespace import CaseNamespace
from ..cases import Refusals, why_absent
from ..requests import BRANCH_OPERATIONS, send
from .case_table import CaseTable, DataOperationCases, SharedTable, bad
from .items import IDS, items
from .versions import with_versions

INVALID = ErrorCode.INVALID_INPUT
NO_VERSION = ErrorCode.TABLE_VERSION_NOT_FOUND
NO_BRANCH = ErrorCode.TABLE_BRANCH_NOT_FOUND
NO_TAG = ErrorCode.TABLE_TAG_NOT_FOUND

_BAD_NAMES = ("", "a b", "../a", "a//b", "/a")
_TAG_OPERATIONS: dict[str, dict[str, Any]] = {
    "get_table_tag_version": {},
    "update_table_tag": {"version": 1},
    "delete_table_tag": {},
    "describe_table": {},
}
BAD_TAGS = {
    "create one that exists": bad(
        "create_table_tag",
        ErrorCode.TABLE_TAG_ALREADY_EXISTS,
        naming="first",
        tag="first",
        version=2,
    ),
    **{
        f"{name} of an unknown tag": bad(name, NO_TAG, tag="notag", **more)
        for name, more in _TAG_OPERATIONS.items()
    },
    "create on a missing version": bad("create_table_tag", NO_VERSION, tag="mark", version=99),
    "update to a missing version": bad("update_table_tag", NO_VERSION, tag="first", version=99),
    **{f"name {name!r}": bad("create_table_tag", tag=name, version=1) for name in _BAD_NAMES},
}
BAD_BRANCHES = {
    "create one that exists": bad(
        "create_table_branch", ErrorCode.TABLE_BRANCH_ALREADY_EXISTS, naming="dev", name="dev"
    ),
    "delete an unknown one": bad("delete_table_branch", NO_BRANCH, name="nobranch"),
    "create from an unknown one": bad(
        "create_table_branch", NO_BRANCH, name="twig", from_branch="nobranch"
    ),
    "create from a missing version": bad(
        "create_table_branch", NO_VERSION, name="twig", from_version=99
    ),
    "describe an unknown one": bad(
        "describe_table", NO_BRANCH, branch="nobranch", load_detailed_metadata=True
    ),
    **{f"name {name!r}": bad("create_table_branch", name=name) for name in (*_BAD_NAMES, "main")},
}

_READERS = {
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
"""Operations with a branch that change nothing; their own cases read a branch."""
_ELSEWHERE = {
    "create_table_tag",
    "update_table_tag",
    "batch_delete_table_versions",
    "create_table_version",
}
"""Operations whose own cases test a branch, or that need more preparation than below."""


def _add_computed_column(table: CaseTable) -> None:
    columns = [{"name": "word2", "computed": "word"}]
    table.call("alter_table_add_columns", new_columns=columns, branch="dev")


def _build_index(table: CaseTable) -> None:
    table.dataset("dev").create_scalar_index("id", "BTREE", name="id_idx")


_PREPARED: dict[str, tuple[Callable[[CaseTable], None], dict[str, Any]]] = {
    "alter_table_backfill_columns": (_add_computed_column, {"column": "word2"}),
    "drop_table_index": (_build_index, {}),
}
"""Operation to the preparation of the branch, and to fields of its request."""


class TagCases(DataOperationCases):
    """The five operations on tags."""

    def test_a_tag_is_created_listed_moved_and_deleted(self, table: CaseTable) -> None:
        with_versions(table, 2)
        table.call("create_table_tag", tag="v1.0", version=1)
        assert table.call("get_table_tag_version", tag="v1.0").version == 1
        assert table.dataset(version=None).tags.list()["v1.0"]["version"] == 1
        table.call("update_table_tag", tag="v1.0", version=2)
        (name, found) = next(iter(table.call("list_table_tags").tags.items()))
        assert (name, found.version) == ("v1.0", 2)
        table.call("delete_table_tag", tag="v1.0")
        assert not table.call("list_table_tags").tags
        assert table.dataset().version == 2

    def test_a_tag_of_a_branch_keeps_the_branch(self, table: CaseTable) -> None:
        table.dataset().create_branch("dev", 1).delete("id < 10")
        table.call("create_table_tag", tag="mark", version=2, branch="dev")
        answer = table.call("get_table_tag_version", tag="mark")
        assert (answer.version, answer.branch) == (2, "dev")
        assert table.call("list_table_tags").tags["mark"].branch == "dev"

    def test_a_table_is_described_by_its_tag(self, shared_table: CaseTable) -> None:
        answer = shared_table.call("describe_table", tag="first", load_detailed_metadata=True)
        assert answer.version == 1

    def test_tags_are_listed_page_by_page(self, table: CaseTable) -> None:
        names = ["a", "b", "c"]
        for name in names:
            table.dataset().tags.create(name, 1)
        first = table.call("list_table_tags", limit=2)
        second = table.call("list_table_tags", limit=2, page_token=first.page_token)
        assert sorted([*first.tags, *second.tags]) == names
        assert len(first.tags) == 2
        assert not second.page_token

    def test_bad_requests_on_tags_are_refused(
        self, shared_table: SharedTable, refusals: Refusals
    ) -> None:
        self.refuse(refusals, shared_table, BAD_TAGS)


class BranchCases(DataOperationCases):
    """The three operations on branches."""

    def test_a_branch_is_created_listed_and_deleted(self, table: CaseTable) -> None:
        with_versions(table, 2)
        table.call("create_table_branch", name="dev", from_version=1)
        assert table.ids("dev") == list(IDS)
        (name, found) = next(iter(table.call("list_table_branches").branches.items()))
        assert (name, found.parent_version) == ("dev", 1)
        table.call("delete_table_branch", name="dev")
        assert not table.call("list_table_branches").branches
        assert table.dataset().version == 2

    def test_a_branch_is_of_the_latest_version_unless_another_is_named(
        self, table: CaseTable
    ) -> None:
        with_versions(table, 2)
        table.call("create_table_branch", name="dev")
        assert table.ids("dev") == [*IDS, 100]

    def test_a_branch_is_made_of_another(self, table: CaseTable) -> None:
        table.dataset().create_branch("dev", 1).delete("id < 10")
        table.call("create_table_branch", name="twig", from_branch="dev")
        assert table.ids("twig") == list(range(10, 40))
        assert table.call("list_table_branches").branches["twig"].parent_branch == "dev"

    def test_a_table_is_described_by_its_branch(self, shared_table: CaseTable) -> None:
        answer = shared_table.call("describe_table", branch="dev", load_detailed_metadata=True)
        assert answer.version == 2

    def test_branches_are_listed_page_by_page(self, table: CaseTable) -> None:
        names = ["a", "b", "c"]
        for name in names:
            table.dataset().create_branch(name, 1)
        first = table.call("list_table_branches", limit=2)
        second = table.call("list_table_branches", limit=2, page_token=first.page_token)
        assert sorted([*first.branches, *second.branches]) == names
        assert len(first.branches) == 2
        assert not second.page_token

    def test_a_branch_that_a_tag_needs_is_not_deleted(self, table: CaseTable) -> None:
        branch = table.dataset().create_branch("dev", 1)
        branch.delete("id < 10")
        table.dataset().tags.create("mark", ("dev", 2))
        with table.refuses(INVALID, naming="mark"):
            table.call("delete_table_branch", name="dev")

    def test_bad_requests_on_branches_are_refused(
        self, shared_table: SharedTable, refusals: Refusals
    ) -> None:
        self.refuse(refusals, shared_table, BAD_BRANCHES)

    def test_operations_on_a_branch_leave_main_alone(
        self, shared_namespace: CaseNamespace, refusals: Refusals
    ) -> None:
        writers = sorted({*BRANCH_OPERATIONS} - _READERS - _ELSEWHERE)
        target = shared_namespace.target
        refusals.compare(
            {
                name: self._complaint_on_a_branch(CaseTable(shared_namespace), name)
                for name in writers
                if not why_absent(target, name)
            }
        )

    def _complaint_on_a_branch(self, table: CaseTable, operation: str) -> str:
        """Send an operation to a branch; return what is wrong with its effect, or empty."""
        table.dataset().create_branch("dev", 1)
        prepare, fields = _PREPARED.get(operation, (None, {}))
        try:
            if prepare is not None:
                prepare(table)
            main, before = table.state(), table.dataset("dev").version
            send(table.ns, operation, table.id, branch="dev", **fields)
        except Exception as error:  # noqa: BLE001 - an error of any kind is what is wrong
            return f"{type(error).__name__}: {error}"
        if table.state() != main:
            return "main has changed"
        return "" if table.dataset("dev").version > before else "the branch has no new version"

    def test_rows_are_inserted_into_a_branch(self, table: CaseTable) -> None:
        table.dataset().create_branch("dev", 1)
        table.call("insert_into_table", items([40]), branch="dev")
        assert table.ids("dev") == list(range(41))
        assert table.ids() == list(range(40))

    def test_versions_of_a_branch_are_deleted_by_themselves(self, table: CaseTable) -> None:
        table.dataset().create_branch("dev", 1).delete("id < 3")
        ranges = [{"start_version": 1, "end_version": 2}]
        answer = table.call("batch_delete_table_versions", ranges=ranges, branch="dev")
        assert answer.deleted_count == 1
        listed = table.call("list_table_versions", branch="dev").versions
        assert [each.version for each in listed] == [2]
        assert table.dataset().version == 1
