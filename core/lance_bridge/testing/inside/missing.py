"""Cases: operations inside a table that is not there, is not Lance's, or has no data or branch."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from lance_namespace import ErrorCode

from ..build import unique_name
from ..calls import Calls, Id
from ..cases import needs
from ..expect import code_of, refused
from ..space import Space
from .ground import InsideCases, InsideTable, nowhere, thin
from .operations import BRANCHED, INSIDE, LENIENT_ON_DECLARED, NOT_FOUND_ON_DECLARED

INVALID = ErrorCode.INVALID_INPUT
ALL = sorted(INSIDE)
STRICT_ON_DECLARED = sorted(set(ALL) - LENIENT_ON_DECLARED - set(NOT_FOUND_ON_DECLARED))


def skip_if_absent(space: Space, operation: str) -> None:
    """Skip a case about an operation that the target declares absent."""
    reason = space.target.lacks(operation)
    if reason:
        pytest.skip(reason)


class MissingCases(InsideCases):
    """The same of every operation: what it says of a table that it cannot work on."""

    @thin
    @pytest.mark.parametrize("operation", ALL)
    def test_inside_a_missing_table_is_table_not_found(self, ground: Space, operation: str) -> None:
        skip_if_absent(ground, operation)
        missing = nowhere(ground)
        with refused(ErrorCode.TABLE_NOT_FOUND, naming=missing[-1]):
            INSIDE[operation](ground.api, missing, {})

    @thin
    @pytest.mark.parametrize("operation", ALL)
    def test_inside_a_table_of_a_missing_namespace_is_namespace_not_found(
        self, ground: Space, operation: str
    ) -> None:
        skip_if_absent(ground, operation)
        missing = ground.missing_namespace()
        with refused(ErrorCode.NAMESPACE_NOT_FOUND, naming=missing[-1]):
            INSIDE[operation](ground.api, [*missing, "t"], {})

    @pytest.mark.parametrize("operation", ALL)
    def test_inside_a_table_that_is_not_lances_is_invalid_input(
        self, ground: Space, foreign: list[str], operation: str
    ) -> None:
        skip_if_absent(ground, operation)
        with refused(INVALID, naming=foreign[-1]):
            INSIDE[operation](ground.api, foreign, {})

    @pytest.fixture(scope="class")
    @classmethod
    def foreign(cls, ground: Space) -> list[str]:
        """The identifier of an entry that is not Lance's."""
        reason = ground.target.lacks("make_foreign_table")
        if reason:
            pytest.skip(reason)
        return ground.foreign(unique_name())

    @pytest.mark.parametrize("operation", STRICT_ON_DECLARED)
    def test_inside_a_declared_table_is_invalid_table_state(
        self, ground: Space, declared: list[str], operation: str
    ) -> None:
        skip_if_absent(ground, operation)
        with refused(ErrorCode.INVALID_TABLE_STATE, naming=declared[-1]):
            INSIDE[operation](ground.api, declared, {})

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

    @pytest.mark.parametrize("operation", BRANCHED)
    def test_on_a_missing_branch_is_branch_not_found(
        self, ground: Space, scratch: InsideTable, operation: str
    ) -> None:
        skip_if_absent(ground, operation)
        with scratch.refuses(ErrorCode.TABLE_BRANCH_NOT_FOUND, naming="nobranch"):
            INSIDE[operation](ground.api, scratch.id, {"branch": "nobranch"})

    # -- identifiers -----------------------------------------------------------------------------

    @thin
    def test_inside_a_table_with_a_hostile_name_is_invalid_input(self, ground: Space) -> None:
        names = ground.features.hostile_names
        _check_refused(ground, [ground.table(name) for name in ("", *names)])

    def test_inside_a_table_of_a_hostile_namespace_is_invalid_input(self, ground: Space) -> None:
        names, parent = ground.features.hostile_names, ground.target.parent
        _check_refused(ground, [[*parent, name, "t"] for name in ("", *names)])

    def test_inside_a_table_without_an_identifier_is_invalid_input(self, ground: Space) -> None:
        _check_refused(ground, [None, []])

    @needs("fixed_depth")
    def test_inside_a_table_identified_by_too_many_names_is_invalid_input(
        self, ground: Space
    ) -> None:
        _check_refused(ground, [[*ground.id, "t", "t"], [*ground.id, "t", "t", "t"]])


def _check_refused(space: Space, identifiers: Sequence[Id]) -> None:
    """Require InvalidInput of every operation for every identifier; report all others at once."""
    wrong = {}
    for operation in ALL:
        if space.target.lacks(operation):
            continue
        for each in identifiers:
            code = code_of(_call, operation, space.api, each)
            if code != INVALID:
                wrong[f"{operation} {each!r}"[:80]] = code.name if code is not None else "accepted"
    assert not wrong, f"not refused as INVALID_INPUT (13): {wrong}"


def _call(operation: str, calls: Calls, id: Id) -> object:
    return INSIDE[operation](calls, id, {})
