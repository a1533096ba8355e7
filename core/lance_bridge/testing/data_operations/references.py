"""Cases: tags and branches."""

from __future__ import annotations

import pytest
from lance_namespace import ErrorCode

from .case_table import CaseTable, DataOperationCases, thin
from .items import IDS
from .versions import with_versions

INVALID = ErrorCode.INVALID_INPUT
NO_VERSION = ErrorCode.TABLE_VERSION_NOT_FOUND
NO_BRANCH = ErrorCode.TABLE_BRANCH_NOT_FOUND
NO_TAG = ErrorCode.TABLE_TAG_NOT_FOUND

BAD_NAMES = ["", "a b", "../a", "a//b", "/a"]


class TagCases(DataOperationCases):
    """The five operations on tags."""

    @thin
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

    def test_a_table_is_described_by_its_tag(self, indexed_table: CaseTable) -> None:
        answer = indexed_table.call("describe_table", tag="first", load_detailed_metadata=True)
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

    def test_a_tag_that_is_there_is_tag_already_exists(self, indexed_table: CaseTable) -> None:
        with indexed_table.refuses(ErrorCode.TABLE_TAG_ALREADY_EXISTS, naming="first"):
            indexed_table.call("create_table_tag", tag="first", version=2)

    def test_an_unknown_tag_is_tag_not_found(self, indexed_table: CaseTable) -> None:
        with indexed_table.refuses(NO_TAG, naming="notag"):
            indexed_table.call("get_table_tag_version", tag="notag")
        with indexed_table.refuses(NO_TAG, naming="notag"):
            indexed_table.call("update_table_tag", tag="notag", version=1)
        with indexed_table.refuses(NO_TAG, naming="notag"):
            indexed_table.call("delete_table_tag", tag="notag")
        with indexed_table.refuses(NO_TAG, naming="notag"):
            indexed_table.call("describe_table", tag="notag")

    def test_a_tag_of_a_missing_version_is_version_not_found(
        self, indexed_table: CaseTable
    ) -> None:
        with indexed_table.refuses(NO_VERSION, naming="99"):
            indexed_table.call("create_table_tag", tag="mark", version=99)
        with indexed_table.refuses(NO_VERSION, naming="99"):
            indexed_table.call("update_table_tag", tag="first", version=99)

    @pytest.mark.parametrize("name", BAD_NAMES)
    def test_a_name_that_no_tag_can_have_is_invalid_input(
        self, indexed_table: CaseTable, name: str
    ) -> None:
        with indexed_table.refuses(INVALID):
            indexed_table.call("create_table_tag", tag=name, version=1)


class BranchCases(DataOperationCases):
    """The three operations on branches."""

    @thin
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

    def test_a_table_is_described_by_its_branch(self, indexed_table: CaseTable) -> None:
        answer = indexed_table.call("describe_table", branch="dev", load_detailed_metadata=True)
        assert answer.version == 2
        with indexed_table.refuses(NO_BRANCH, naming="nobranch"):
            indexed_table.call("describe_table", branch="nobranch", load_detailed_metadata=True)

    def test_branches_are_listed_page_by_page(self, table: CaseTable) -> None:
        names = ["a", "b", "c"]
        for name in names:
            table.dataset().create_branch(name, 1)
        first = table.call("list_table_branches", limit=2)
        second = table.call("list_table_branches", limit=2, page_token=first.page_token)
        assert sorted([*first.branches, *second.branches]) == names
        assert len(first.branches) == 2
        assert not second.page_token

    def test_a_branch_that_is_there_is_branch_already_exists(
        self, indexed_table: CaseTable
    ) -> None:
        with indexed_table.refuses(ErrorCode.TABLE_BRANCH_ALREADY_EXISTS, naming="dev"):
            indexed_table.call("create_table_branch", name="dev")

    def test_an_unknown_branch_is_branch_not_found(self, indexed_table: CaseTable) -> None:
        with indexed_table.refuses(NO_BRANCH, naming="nobranch"):
            indexed_table.call("delete_table_branch", name="nobranch")
        with indexed_table.refuses(NO_BRANCH, naming="nobranch"):
            indexed_table.call("create_table_branch", name="twig", from_branch="nobranch")

    def test_a_branch_of_a_missing_version_is_version_not_found(
        self, indexed_table: CaseTable
    ) -> None:
        with indexed_table.refuses(NO_VERSION, naming="99"):
            indexed_table.call("create_table_branch", name="twig", from_version=99)

    def test_a_branch_that_a_tag_needs_is_not_deleted(self, table: CaseTable) -> None:
        branch = table.dataset().create_branch("dev", 1)
        branch.delete("id < 10")
        table.dataset().tags.create("mark", ("dev", 2))
        with table.refuses(INVALID, naming="mark"):
            table.call("delete_table_branch", name="dev")

    @pytest.mark.parametrize("name", [*BAD_NAMES, "main"])
    def test_a_name_that_no_branch_can_have_is_invalid_input(
        self, indexed_table: CaseTable, name: str
    ) -> None:
        with indexed_table.refuses(INVALID):
            indexed_table.call("create_table_branch", name=name)
