"""Cases: operations inside a table that is not there, is not Lance's, or has no data or branch."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import pytest
from lance_namespace import ErrorCode

from ..build import unique_name
from ..calls import Id
from ..case_namespace import CaseNamespace
from ..cases import Operations, needs
from ..expect import refused
from .case_table import CaseTable, DataOperationCases, thin
from .operations import BRANCHED, INSIDE, LENIENT_ON_DECLARED, NOT_FOUND_ON_DECLARED

INVALID = ErrorCode.INVALID_INPUT
ALL = sorted(INSIDE)
NOT_STRICT_ON_DECLARED = LENIENT_ON_DECLARED | set(NOT_FOUND_ON_DECLARED)
STRICT_ON_DECLARED = [name for name in ALL if name not in NOT_STRICT_ON_DECLARED]


def calls_of(
    ns: CaseNamespace, operations: Iterable[str], **fields: Any
) -> dict[str, Callable[[Id], object]]:
    """Return each operation as a call with an identifier, with these fields in its request."""

    def bound(name: str) -> Callable[[Id], object]:
        return lambda id: INSIDE[name](ns, id, fields)

    return {name: bound(name) for name in operations}


class MissingCases(DataOperationCases):
    """The same of every operation: what it says of a table that it cannot work on."""

    @thin
    def test_inside_a_missing_table_is_table_not_found(
        self, shared_namespace: CaseNamespace, operations: Operations
    ) -> None:
        missing, code = shared_namespace.missing_table(), ErrorCode.TABLE_NOT_FOUND
        operations.refuse(calls_of(shared_namespace, ALL), [missing], code, naming=missing[-1])

    @thin
    def test_inside_a_table_of_a_missing_namespace_is_namespace_not_found(
        self, shared_namespace: CaseNamespace, operations: Operations
    ) -> None:
        missing, code = shared_namespace.missing_namespace(), ErrorCode.NAMESPACE_NOT_FOUND
        operations.refuse(
            calls_of(shared_namespace, ALL), [[*missing, "t"]], code, naming=missing[-1]
        )

    @needs("make_foreign_table")
    def test_inside_a_table_that_is_not_lances_is_invalid_input(
        self, shared_namespace: CaseNamespace, operations: Operations
    ) -> None:
        foreign = shared_namespace.foreign(unique_name())
        operations.refuse(calls_of(shared_namespace, ALL), [foreign], INVALID, naming=foreign[-1])

    def test_inside_a_declared_table_is_invalid_table_state(
        self, shared_namespace: CaseNamespace, operations: Operations, declared: list[str]
    ) -> None:
        code = ErrorCode.INVALID_TABLE_STATE
        calls = calls_of(shared_namespace, STRICT_ON_DECLARED)
        operations.refuse(calls, [declared], code, naming=declared[-1])

    @pytest.mark.parametrize("operation", NOT_FOUND_ON_DECLARED)
    def test_a_declared_table_has_no_version_and_no_tag(
        self, shared_namespace: CaseNamespace, declared: list[str], operation: str
    ) -> None:
        with refused(ErrorCode.INVALID_TABLE_STATE, NOT_FOUND_ON_DECLARED[operation]):
            INSIDE[operation](shared_namespace, declared, {})

    def test_a_declared_table_lists_no_versions_tags_and_branches(
        self, shared_namespace: CaseNamespace, declared: list[str]
    ) -> None:
        assert not shared_namespace.call("list_table_versions", declared).versions
        assert not shared_namespace.call("list_table_tags", declared).tags
        assert not shared_namespace.call("list_table_branches", declared).branches

    @pytest.fixture(scope="class")
    @classmethod
    def declared(cls, shared_namespace: CaseNamespace) -> list[str]:
        """The identifier of a table that has no data."""
        table_id = shared_namespace.table(unique_name())
        shared_namespace.declare_table(table_id)
        return table_id

    def test_on_a_missing_branch_is_branch_not_found(
        self, shared_namespace: CaseNamespace, operations: Operations, shared_table: CaseTable
    ) -> None:
        calls = calls_of(shared_namespace, BRANCHED, branch="nobranch")
        with shared_table.unchanged():
            code = ErrorCode.TABLE_BRANCH_NOT_FOUND
            operations.refuse(calls, [shared_table.id], code, naming="nobranch")

    # -- identifiers -----------------------------------------------------------------------------

    @thin
    def test_inside_a_table_with_a_hostile_name_is_invalid_input(
        self, shared_namespace: CaseNamespace, operations: Operations
    ) -> None:
        names = ("", *shared_namespace.features.hostile_names)
        operations.refuse(
            calls_of(shared_namespace, ALL),
            [shared_namespace.table(name) for name in names],
            INVALID,
        )

    def test_inside_a_table_of_a_hostile_namespace_is_invalid_input(
        self, shared_namespace: CaseNamespace, operations: Operations
    ) -> None:
        names, parent = (
            ("", *shared_namespace.features.hostile_names),
            shared_namespace.target.parent,
        )
        identifiers = [[*parent, name, "t"] for name in names]
        operations.refuse(calls_of(shared_namespace, ALL), identifiers, INVALID)

    def test_inside_a_table_without_an_identifier_is_invalid_input(
        self, shared_namespace: CaseNamespace, operations: Operations
    ) -> None:
        operations.refuse(calls_of(shared_namespace, ALL), [None, []], INVALID)

    @needs("fixed_depth")
    def test_inside_a_table_identified_by_too_many_names_is_invalid_input(
        self, shared_namespace: CaseNamespace, operations: Operations
    ) -> None:
        identifiers = [[*shared_namespace.id, "t", "t"], [*shared_namespace.id, "t", "t", "t"]]
        operations.refuse(calls_of(shared_namespace, ALL), identifiers, INVALID)
