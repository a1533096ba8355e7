"""Cases: operations inside a table that is not there, is not Lance's, or has no data or branch."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import pytest
from lance_namespace import ErrorCode

from ..build import unique_name
from ..calls import Id
from ..cases import Operations, needs
from ..expect import refused
from ..space import Space
from .ground import InsideCases, InsideTable, nowhere, thin
from .operations import BRANCHED, INSIDE, LENIENT_ON_DECLARED, NOT_FOUND_ON_DECLARED

INVALID = ErrorCode.INVALID_INPUT
ALL = sorted(INSIDE)
NOT_STRICT_ON_DECLARED = LENIENT_ON_DECLARED | set(NOT_FOUND_ON_DECLARED)
STRICT_ON_DECLARED = [name for name in ALL if name not in NOT_STRICT_ON_DECLARED]


def calls_of(
    space: Space, operations: Iterable[str], **fields: Any
) -> dict[str, Callable[[Id], object]]:
    """Return each operation as a call with an identifier, with these fields in its request."""

    def bound(name: str) -> Callable[[Id], object]:
        return lambda id: INSIDE[name](space.api, id, fields)

    return {name: bound(name) for name in operations}


class MissingCases(InsideCases):
    """The same of every operation: what it says of a table that it cannot work on."""

    @thin
    def test_inside_a_missing_table_is_table_not_found(
        self, ground: Space, operations: Operations
    ) -> None:
        missing, code = nowhere(ground), ErrorCode.TABLE_NOT_FOUND
        operations.refuse(calls_of(ground, ALL), [missing], code, naming=missing[-1])

    @thin
    def test_inside_a_table_of_a_missing_namespace_is_namespace_not_found(
        self, ground: Space, operations: Operations
    ) -> None:
        missing, code = ground.missing_namespace(), ErrorCode.NAMESPACE_NOT_FOUND
        operations.refuse(calls_of(ground, ALL), [[*missing, "t"]], code, naming=missing[-1])

    @needs("make_foreign_table")
    def test_inside_a_table_that_is_not_lances_is_invalid_input(
        self, ground: Space, operations: Operations
    ) -> None:
        foreign = ground.foreign(unique_name())
        operations.refuse(calls_of(ground, ALL), [foreign], INVALID, naming=foreign[-1])

    def test_inside_a_declared_table_is_invalid_table_state(
        self, ground: Space, operations: Operations, declared: list[str]
    ) -> None:
        code = ErrorCode.INVALID_TABLE_STATE
        calls = calls_of(ground, STRICT_ON_DECLARED)
        operations.refuse(calls, [declared], code, naming=declared[-1])

    @pytest.mark.parametrize("operation", NOT_FOUND_ON_DECLARED)
    def test_a_declared_table_has_no_version_and_no_tag(
        self, ground: Space, declared: list[str], operation: str
    ) -> None:
        with refused(ErrorCode.INVALID_TABLE_STATE, NOT_FOUND_ON_DECLARED[operation]):
            INSIDE[operation](ground.api, declared, {})

    def test_a_declared_table_lists_no_versions_tags_and_branches(
        self, ground: Space, declared: list[str]
    ) -> None:
        assert not ground.api.call("list_table_versions", declared).versions
        assert not ground.api.call("list_table_tags", declared).tags
        assert not ground.api.call("list_table_branches", declared).branches

    @pytest.fixture(scope="class")
    @classmethod
    def declared(cls, ground: Space) -> list[str]:
        """The identifier of a table that has no data."""
        table_id = ground.table(unique_name())
        ground.api.declare_table(table_id)
        return table_id

    def test_on_a_missing_branch_is_branch_not_found(
        self, ground: Space, operations: Operations, scratch: InsideTable
    ) -> None:
        calls = calls_of(ground, BRANCHED, branch="nobranch")
        with scratch.unchanged():
            code = ErrorCode.TABLE_BRANCH_NOT_FOUND
            operations.refuse(calls, [scratch.id], code, naming="nobranch")

    # -- identifiers -----------------------------------------------------------------------------

    @thin
    def test_inside_a_table_with_a_hostile_name_is_invalid_input(
        self, ground: Space, operations: Operations
    ) -> None:
        names = ("", *ground.features.hostile_names)
        operations.refuse(calls_of(ground, ALL), [ground.table(name) for name in names], INVALID)

    def test_inside_a_table_of_a_hostile_namespace_is_invalid_input(
        self, ground: Space, operations: Operations
    ) -> None:
        names, parent = ("", *ground.features.hostile_names), ground.target.parent
        identifiers = [[*parent, name, "t"] for name in names]
        operations.refuse(calls_of(ground, ALL), identifiers, INVALID)

    def test_inside_a_table_without_an_identifier_is_invalid_input(
        self, ground: Space, operations: Operations
    ) -> None:
        operations.refuse(calls_of(ground, ALL), [None, []], INVALID)

    @needs("fixed_depth")
    def test_inside_a_table_identified_by_too_many_names_is_invalid_input(
        self, ground: Space, operations: Operations
    ) -> None:
        identifiers = [[*ground.id, "t", "t"], [*ground.id, "t", "t", "t"]]
        operations.refuse(calls_of(ground, ALL), identifiers, INVALID)
