"""Cases: every operation on data answers alike for a table, a branch or data that is missing."""

from __future__ import annotations

import pytest
from lance_namespace import ErrorCode

from ..build import unique_name
from ..case_namespace import CaseNamespace
from ..cases import Refusals, needs
from ..expect import answer_of
from ..requests import (
    BRANCH_OPERATIONS,
    DATA_OPERATIONS,
    LENIENT_ON_DECLARED,
    NOT_FOUND_ON_DECLARED,
    calls_of,
)
from .case_table import CaseTable, DataOperationCases

BAD_STATE = ErrorCode.INVALID_TABLE_STATE


class EveryOperationCases(DataOperationCases):
    """The `DATA_OPERATIONS` on a table, a branch or data that does not exist."""

    def test_data_of_a_missing_table_is_table_not_found(
        self, shared_namespace: CaseNamespace, refusals: Refusals
    ) -> None:
        missing, code = shared_namespace.missing_table(), ErrorCode.TABLE_NOT_FOUND
        calls = calls_of(shared_namespace, DATA_OPERATIONS)
        refusals.refuse(calls, [missing], code, naming=missing[-1])

    def test_data_in_a_missing_namespace_is_namespace_not_found(
        self, shared_namespace: CaseNamespace, refusals: Refusals
    ) -> None:
        missing, code = shared_namespace.missing_namespace(), ErrorCode.NAMESPACE_NOT_FOUND
        calls = calls_of(shared_namespace, DATA_OPERATIONS)
        refusals.refuse(calls, [[*missing, "t"]], code, naming=missing[-1])

    @needs("make_foreign_table")
    def test_data_of_a_foreign_table_is_invalid_input(
        self, shared_namespace: CaseNamespace, refusals: Refusals
    ) -> None:
        foreign = shared_namespace.foreign(unique_name())
        calls = calls_of(shared_namespace, DATA_OPERATIONS)
        refusals.refuse(calls, [foreign], ErrorCode.INVALID_INPUT, naming=foreign[-1])

    @pytest.fixture(scope="class")
    @classmethod
    def declared(cls, shared_namespace: CaseNamespace) -> list[str]:
        """The identifier of a table that has no data."""
        table_id = shared_namespace.missing_table()
        shared_namespace.declare_table(table_id)
        return table_id

    def test_data_of_a_declared_table_is_invalid_table_state(
        self, shared_namespace: CaseNamespace, refusals: Refusals, declared: list[str]
    ) -> None:
        strict = {*DATA_OPERATIONS} - LENIENT_ON_DECLARED - {*NOT_FOUND_ON_DECLARED}
        calls = calls_of(shared_namespace, sorted(strict))
        refusals.refuse(calls, [declared], BAD_STATE, naming=declared[-1])

    def test_a_declared_table_has_no_version_and_no_tag(
        self, shared_namespace: CaseNamespace, refusals: Refusals, declared: list[str]
    ) -> None:
        calls = calls_of(shared_namespace, NOT_FOUND_ON_DECLARED)
        refusals.compare(
            {
                name: answer_of(call, declared, (BAD_STATE, NOT_FOUND_ON_DECLARED[name]))
                for name, call in calls.items()
            }
        )
        assert not shared_namespace.call("list_table_versions", declared).versions
        assert not shared_namespace.call("list_table_tags", declared).tags
        assert not shared_namespace.call("list_table_branches", declared).branches

    def test_data_of_a_missing_branch_is_branch_not_found(
        self, shared_namespace: CaseNamespace, refusals: Refusals, table: CaseTable
    ) -> None:
        calls = calls_of(shared_namespace, BRANCH_OPERATIONS, branch="nobranch")
        table.call("create_table_tag", tag="first", version=1)
        with table.unchanged():
            code = ErrorCode.TABLE_BRANCH_NOT_FOUND
            refusals.refuse(calls, [table.id], code, naming="nobranch")
