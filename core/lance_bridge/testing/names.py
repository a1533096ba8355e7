"""Cases: odd, hostile and overlong names, and letter case."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from functools import partial
from typing import TypeVar

from lance_namespace import ErrorCode

from .build import rows, unique_name
from .calls import Id
from .cases import Cases, Operations, needs
from .expect import code_of, refused
from .space import Space

_T = TypeVar("_T")

INVALID = ErrorCode.INVALID_INPUT
ALREADY_EXISTS = ErrorCode.TABLE_ALREADY_EXISTS
NOT_FOUND = ErrorCode.TABLE_NOT_FOUND

TABLE_OPERATIONS: dict[str, Callable[[Space, Id], object]] = {
    "declare_table": lambda space, id: space.api.declare_table(id),
    "create_table": lambda space, id: space.api.create_table(id, rows(range(3))),
    "register_table": lambda space, id: space.api.register_table(
        id, space.target.register_location(space.place("anything"))
    ),
    "describe_table": lambda space, id: space.api.describe_table(id),
    "table_exists": lambda space, id: space.api.table_exists(id),
    "count_table_rows": lambda space, id: space.api.count(id),
    "rename_table": lambda space, id: space.api.rename_table(id, "new"),
    "deregister_table": lambda space, id: space.api.deregister_table(id),
    "drop_table": lambda space, id: space.api.drop_table(id),
}
"""Every operation on one table, called with any identifier."""

NAMESPACE_OPERATIONS: dict[str, Callable[[Space, Id], object]] = {
    "create_namespace": lambda space, id: space.api.create_namespace(id),
    "describe_namespace": lambda space, id: space.api.describe_namespace(id),
    "namespace_exists": lambda space, id: space.api.namespace_exists(id),
    "list_namespaces": lambda space, id: space.api.list_namespaces(id),
    "list_tables": lambda space, id: space.api.list_tables(id),
    "drop_namespace": lambda space, id: space.api.drop_namespace(id),
}
"""Every operation on one namespace, called with any identifier."""


def calls_of(
    space: Space, operations: Mapping[str, Callable[[Space, Id], object]]
) -> dict[str, Callable[[Id], object]]:
    """Return each operation as a call with an identifier."""
    return {name: partial(call, space) for name, call in operations.items()}


def check_refused(candidates: Iterable[_T], call: Callable[[_T], object]) -> None:
    """Require InvalidInput for every candidate; report all that went otherwise at once."""
    wrong = {}
    for candidate in candidates:
        code = code_of(call, candidate)
        if code != INVALID:
            wrong[repr(candidate)[:60]] = code.name if code is not None else "accepted"
    assert not wrong, f"not refused as INVALID_INPUT (13): {wrong}"


class NameCases(Cases):
    """Which names work, and what happens with the others."""

    # -- names that must work --------------------------------------------------------------------

    def test_odd_table_names_work(self, space: Space) -> None:
        names = list(space.features.good_names)
        for number, name in enumerate(names):
            space.api.create_table(space.table(name), rows(range(number + 1)))
        assert space.names() == sorted(names)
        for number, name in enumerate(names):
            assert space.ids(space.table(name)) == list(range(number + 1))
            space.api.drop_table(space.table(name))
        assert space.names() == []

    @needs("namespace_changes")
    def test_odd_namespace_names_work(self, space: Space) -> None:
        own = unique_name()
        for name in space.features.good_names:
            odd = space.adopt([*space.target.parent, f"{name}_{own}"])
            space.api.create_namespace(odd)
            space.api.namespace_exists(odd)
            space.api.create_table([*odd, "t"], rows(range(3)))
            assert space.ids([*odd, "t"]) == [0, 1, 2]
            assert odd[-1] in space.api.all_namespaces(space.target.parent)
            space.api.drop_table([*odd, "t"])
            space.api.drop_namespace(odd)

    @needs("max_table_name")
    def test_the_longest_table_name_works(self, space: Space) -> None:
        longest = "t" * (space.features.max_table_name or 0)
        table_id = space.with_rows(longest)
        assert space.names() == [longest]
        assert space.ids(table_id) == [0, 1, 2]

    @needs("max_namespace_name", "namespace_changes")
    def test_the_longest_namespace_name_works(self, space: Space) -> None:
        name = unique_name().ljust(space.features.max_namespace_name or 0, "n")
        longest = space.adopt([*space.target.parent, name])
        space.api.create_namespace(longest)
        space.api.create_table([*longest, "t"], rows(range(3)))
        assert space.ids([*longest, "t"]) == [0, 1, 2]

    # -- names that must be refused --------------------------------------------------------------

    def test_a_hostile_table_name_is_invalid_input(
        self, space: Space, operations: Operations
    ) -> None:
        hostile = [space.table(name) for name in space.features.hostile_names]
        operations.refuse(calls_of(space, TABLE_OPERATIONS), hostile, INVALID)
        assert space.names() == []

    def test_a_hostile_namespace_name_of_a_table_is_invalid_input(
        self, space: Space, operations: Operations
    ) -> None:
        parent, table = space.target.parent, unique_name()
        hostile = [[*parent, name, table] for name in space.features.hostile_names]
        operations.refuse(calls_of(space, TABLE_OPERATIONS), hostile, INVALID)

    def test_a_hostile_namespace_name_is_invalid_input(
        self, space: Space, operations: Operations
    ) -> None:
        parent = space.target.parent
        hostile = set(space.features.hostile_names)
        # A catalog that takes such a name may have one already, which is not ours to drop.
        hostile -= set(space.api.all_namespaces(parent))
        try:
            identifiers = [[*parent, name] for name in sorted(hostile)]
            operations.refuse(calls_of(space, NAMESPACE_OPERATIONS), identifiers, INVALID)
        finally:
            made = hostile & set(space.api.all_namespaces(parent))
            for name in made:
                space.adopt([*parent, name])
        assert not made

    @needs("rename")
    def test_rename_to_a_hostile_name_is_invalid_input(self, space: Space) -> None:
        table_id = space.with_rows()
        check_refused(
            ("", *space.features.hostile_names),
            lambda name: space.api.rename_table(table_id, name),
        )
        assert space.names() == ["t"]
        assert space.ids(table_id) == [0, 1, 2]

    def test_an_empty_name_in_a_table_identifier_is_invalid_input(
        self, space: Space, operations: Operations
    ) -> None:
        identifiers = [space.table(""), [*space.target.parent, "", unique_name()]]
        operations.refuse(calls_of(space, TABLE_OPERATIONS), identifiers, INVALID)
        assert space.names() == []

    def test_an_empty_name_in_a_namespace_identifier_is_invalid_input(
        self, space: Space, operations: Operations
    ) -> None:
        identifiers = [[*space.target.parent, ""]]
        operations.refuse(calls_of(space, NAMESPACE_OPERATIONS), identifiers, INVALID)

    @needs("max_table_name")
    def test_an_overlong_table_name_is_invalid_input(
        self, space: Space, operations: Operations
    ) -> None:
        longest = space.features.max_table_name or 0
        identifiers = [space.table("t" * length) for length in (longest + 1, 10_000)]
        operations.refuse(calls_of(space, TABLE_OPERATIONS), identifiers, INVALID)
        assert space.names() == []

    @needs("max_namespace_name")
    def test_an_overlong_namespace_name_is_invalid_input(
        self, space: Space, operations: Operations
    ) -> None:
        longest = space.features.max_namespace_name or 0
        identifiers = [[*space.target.parent, "n" * n] for n in (longest + 1, 10_000)]
        operations.refuse(calls_of(space, NAMESPACE_OPERATIONS), identifiers, INVALID)

    # -- letter case -----------------------------------------------------------------------------

    @needs("folds_case")
    def test_a_folding_catalog_finds_tables_in_any_case(self, space: Space) -> None:
        space.api.create_table(space.table("MixedCase"), rows(range(3)))
        assert space.names() == ["mixedcase"]
        shouted = [*space.target.parent, space.name.upper(), "MIXEDCASE"]
        for table_id in (space.table("mixedcase"), space.table("MixedCase"), shouted):
            space.api.table_exists(table_id)
            assert space.ids(table_id) == [0, 1, 2]
            assert space.api.count(table_id) == 3
        assert space.api.all_tables(shouted[:-1]) == ["mixedcase"]

    @needs("folds_case")
    def test_a_folding_catalog_answers_with_its_own_spelling(self, space: Space) -> None:
        space.api.create_table(space.table("MixedCase"), rows(range(3)))
        answer = space.api.describe_table(
            space.table("MIXEDCASE"), load_detailed_metadata=True, with_table_uri=True
        )
        assert answer.table == "mixedcase"
        assert answer.namespace == space.id

    @needs("folds_case")
    def test_names_that_differ_in_case_are_one_table_in_a_folding_catalog(
        self, space: Space
    ) -> None:
        space.api.create_table(space.table("mixedcase"), rows(range(3)))
        with refused(ALREADY_EXISTS, naming="mixedcase"):
            space.api.create_table(space.table("MixedCase"), rows(range(9)))
        space.api.drop_table(space.table("MIXEDCASE"))
        assert space.names() == []

    @needs("folds_case", "rename")
    def test_a_folding_catalog_renames_from_and_to_any_case(self, space: Space) -> None:
        space.with_rows("old")
        space.api.rename_table(space.table("OLD"), "NEW")
        assert space.names() == ["new"]
        assert space.ids(space.table("New")) == [0, 1, 2]

    @needs("folds_case", "namespace_changes")
    def test_a_folding_catalog_finds_namespaces_in_any_case(self, space: Space) -> None:
        shouted = [*space.target.parent, space.name.upper()]
        space.api.namespace_exists(shouted)
        space.api.describe_namespace(shouted)
        with refused(ErrorCode.NAMESPACE_ALREADY_EXISTS, naming=space.name):
            space.api.create_namespace(shouted)
        space.api.drop_namespace(shouted)
        assert space.name not in space.api.all_namespaces(space.target.parent)

    def test_names_that_differ_in_case_are_two_tables_elsewhere(self, space: Space) -> None:
        if space.features.folds_case:
            with refused(ALREADY_EXISTS):
                space.with_rows("t")
                space.with_rows("T")
            return
        space.with_rows("t", range(3))
        space.with_rows("T", range(5))
        assert space.names() == ["T", "t"]
        assert space.ids(space.table("t")) == [0, 1, 2]
        assert space.ids(space.table("T")) == [0, 1, 2, 3, 4]
