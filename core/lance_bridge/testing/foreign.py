"""Cases: entries that are not Lance's, entries by other implementations, and broken ones."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from lance_namespace import ErrorCode

from .build import rows
from .cases import Cases, needs
from .expect import code_of, refused
from .space import Space
from .storage import same_place

INVALID = ErrorCode.INVALID_INPUT
ALREADY_EXISTS = ErrorCode.TABLE_ALREADY_EXISTS
NOT_EMPTY = ErrorCode.NAMESPACE_NOT_EMPTY


class ForeignCases(Cases):
    """What shares the catalog with Lance's own tables."""

    # -- entries that are not Lance's ------------------------------------------------------------

    @needs("make_foreign_table")
    def test_a_foreign_table_is_not_listed(self, space: Space) -> None:
        space.foreign()
        space.with_rows("lance_table")
        assert space.names() == ["lance_table"]
        assert space.api.all_tables(space.id, limit=1) == ["lance_table"]

    @needs("make_foreign_table", "list_all")
    def test_a_foreign_table_is_not_among_all_tables(self, space: Space) -> None:
        foreign = space.features.delimiter.join(space.foreign())
        assert foreign not in space.api.list_all_tables().tables

    @needs("make_foreign_table")
    @pytest.mark.parametrize(
        "operation", ["describe_table", "table_exists", "count_table_rows", "rename_table"]
    )
    def test_reading_or_renaming_a_foreign_table_is_invalid_input(
        self, space: Space, operation: str
    ) -> None:
        foreign = space.foreign()
        calls: dict[str, Callable[[], object]] = {
            "describe_table": lambda: space.api.describe_table(foreign),
            "table_exists": lambda: space.api.table_exists(foreign),
            "count_table_rows": lambda: space.api.count(foreign),
            "rename_table": lambda: space.api.rename_table(foreign, "new"),
        }
        if operation == "rename_table" and space.target.lacks("rename"):
            pytest.skip(space.target.lacks("rename"))
        with refused(INVALID, naming="foreign"):
            calls[operation]()
        self._is_untouched(space, foreign)

    @needs("make_foreign_table")
    def test_deregister_of_a_foreign_table_is_invalid_input(self, space: Space) -> None:
        foreign = space.foreign()
        with refused(INVALID, naming="foreign"):
            space.api.deregister_table(foreign)
        self._is_untouched(space, foreign)

    @needs("make_foreign_table")
    def test_drop_of_a_foreign_table_is_invalid_input(self, space: Space) -> None:
        foreign = space.foreign()
        with refused(INVALID, naming="foreign"):
            space.api.drop_table(foreign)
        self._is_untouched(space, foreign)

    @needs("make_foreign_table")
    def test_declare_under_the_name_of_a_foreign_table_is_table_already_exists(
        self, space: Space
    ) -> None:
        foreign = space.foreign()
        with refused(ALREADY_EXISTS, naming="foreign"):
            space.api.declare_table(foreign)
        self._is_untouched(space, foreign)

    @needs("make_foreign_table")
    @pytest.mark.parametrize("mode", ["Create", "ExistOk", "Overwrite"])
    def test_create_under_the_name_of_a_foreign_table_is_table_already_exists(
        self, space: Space, mode: str
    ) -> None:
        foreign = space.foreign()
        with refused(ALREADY_EXISTS, naming="foreign"):
            space.api.create_table(foreign, rows(range(3)), mode=mode)
        self._is_untouched(space, foreign)

    @needs("make_foreign_table", "register")
    @pytest.mark.parametrize("mode", ["Create", "Overwrite"])
    def test_register_under_the_name_of_a_foreign_table_is_table_already_exists(
        self, space: Space, mode: str
    ) -> None:
        foreign = space.foreign()
        location = space.target.register_location(space.dataset("other"))
        with refused(ALREADY_EXISTS, naming="foreign"):
            space.api.register_table(foreign, location, mode=mode)
        self._is_untouched(space, foreign)

    @needs("make_foreign_table", "rename")
    def test_rename_onto_a_foreign_table_is_table_already_exists(self, space: Space) -> None:
        foreign = space.foreign()
        table_id = space.with_rows()
        with refused(ALREADY_EXISTS, naming="foreign"):
            space.api.rename_table(table_id, "foreign")
        assert space.ids(table_id) == [0, 1, 2]
        self._is_untouched(space, foreign)

    @needs("make_foreign_table", "namespace_changes")
    @pytest.mark.parametrize("behavior", ["Restrict", "Cascade"])
    def test_drop_of_a_namespace_with_a_foreign_table_is_namespace_not_empty(
        self, space: Space, behavior: str
    ) -> None:
        foreign = space.foreign()
        table_id = space.with_rows("zz_lance")
        if behavior == "Cascade" and space.target.lacks("cascade"):
            pytest.skip(space.target.lacks("cascade"))
        with refused(NOT_EMPTY, naming=space.name):
            space.api.drop_namespace(space.id, behavior=behavior)
        assert space.names() == ["zz_lance"]
        assert space.ids(table_id) == [0, 1, 2]
        self._is_untouched(space, foreign)

    @needs("make_foreign_table", "namespace_changes")
    def test_drop_of_a_namespace_with_only_a_foreign_table_is_namespace_not_empty(
        self, space: Space
    ) -> None:
        foreign = space.foreign()
        with refused(NOT_EMPTY, naming=space.name):
            space.api.drop_namespace(space.id)
        self._is_untouched(space, foreign)

    @needs("make_foreign_table", "namespace_changes")
    def test_create_overwrite_of_a_namespace_with_a_foreign_table_is_namespace_not_empty(
        self, space: Space
    ) -> None:
        foreign = space.foreign()
        with refused(NOT_EMPTY, naming=space.name):
            space.api.create_namespace(space.id, mode="Overwrite")
        self._is_untouched(space, foreign)

    @needs("make_foreign_table", "register")
    def test_drop_of_a_table_at_the_location_of_a_foreign_one_is_invalid_table_state(
        self, space: Space
    ) -> None:
        foreign = space.foreign()
        place = space.place("foreign")
        space.storage.write(place, rows(range(3)))
        table_id = space.register("shares", place)
        with refused(ErrorCode.INVALID_TABLE_STATE, naming="shares"):
            space.api.drop_table(table_id)
        assert space.storage.ids(place) == [0, 1, 2]
        self._is_untouched(space, foreign)

    def _is_untouched(self, space: Space, foreign: list[str]) -> None:
        """Require that the entry is still there, still foreign, with its file."""
        with refused(INVALID, naming="foreign"):
            space.api.describe_table(foreign)
        assert "part-0.parquet" in space.storage.files(space.place("foreign"))

    # -- entries by other implementations --------------------------------------------------------

    @needs("odd_marks", "make_marked_table")
    def test_entries_by_other_implementations_are_listed_described_and_read(
        self, space: Space
    ) -> None:
        made = self._odd(space)
        assert space.names() == sorted(made)
        for name, place in made.items():
            space.api.table_exists(space.table(name))
            assert same_place(space.location(space.table(name)), place), name
            assert space.ids(space.table(name)) == [0, 1, 2], name
            assert space.api.count(space.table(name)) == 3, name

    @needs("odd_marks", "make_marked_table")
    def test_deregister_of_entries_by_other_implementations_keeps_their_data(
        self, space: Space
    ) -> None:
        made = self._odd(space)
        for name, place in made.items():
            space.api.deregister_table(space.table(name))
            assert space.storage.ids(place) == [0, 1, 2], name
        assert space.names() == []

    @needs("odd_marks", "make_marked_table")
    def test_drop_of_entries_by_other_implementations_deletes_only_their_data(
        self, space: Space
    ) -> None:
        made = self._odd(space)
        for name in list(made):
            space.api.drop_table(space.table(name))
            assert space.storage.files(made.pop(name)) == frozenset(), name
            assert all(space.storage.ids(place) == [0, 1, 2] for place in made.values())
        assert space.names() == []

    @needs("odd_marks", "make_marked_table", "rename")
    def test_rename_of_entries_by_other_implementations_keeps_their_data(
        self, space: Space
    ) -> None:
        for name, place in self._odd(space).items():
            space.api.rename_table(space.table(name), f"{name}_new")
            assert same_place(space.location(space.table(f"{name}_new")), place), name
            assert space.storage.ids(place) == [0, 1, 2], name

    @needs("odd_marks", "make_marked_table", "namespace_changes", "cascade")
    def test_drop_cascade_drops_entries_by_other_implementations(self, space: Space) -> None:
        self._odd(space)
        space.api.drop_namespace(space.id, behavior="Cascade")
        with refused(ErrorCode.NAMESPACE_NOT_FOUND):
            space.api.namespace_exists(space.id)

    def _odd(self, space: Space) -> dict[str, str]:
        """Make one entry of each odd kind; return their places by name."""
        made = {}
        for number, mark in enumerate(space.target.odd_marks):
            name = f"odd_{number}"
            made[name] = space.dataset(name)
            space.marked(name, made[name], mark)
        return made

    # -- broken entries --------------------------------------------------------------------------

    @needs("broken_marks", "make_marked_table")
    def test_a_broken_entry_does_not_stop_a_listing(self, space: Space) -> None:
        self._broken(space)
        space.with_rows("whole")
        assert "whole" in space.names()
        assert "whole" in space.api.all_tables(space.id, limit=1)
        assert "whole" in space.api.all_tables(space.id, include_declared=False)

    @needs("broken_marks", "make_marked_table")
    def test_describe_of_a_broken_entry_says_what_is_wrong(self, space: Space) -> None:
        for table_id in self._broken(space):
            with refused(ErrorCode.INVALID_TABLE_STATE, INVALID, naming=table_id[-1]):
                space.api.describe_table(table_id)

    @needs("broken_marks", "make_marked_table")
    def test_a_broken_entry_can_be_deregistered(self, space: Space) -> None:
        for table_id in self._broken(space):
            space.api.deregister_table(table_id)
            assert code_of(space.api.table_exists, table_id) == ErrorCode.TABLE_NOT_FOUND

    @needs("broken_marks", "make_marked_table")
    def test_a_broken_entry_does_not_stop_the_drop_of_another_table(self, space: Space) -> None:
        self._broken(space)
        table_id = space.with_rows("whole")
        location = space.location(table_id)
        space.api.drop_table(table_id)
        assert space.storage.files(location) == frozenset()

    def _broken(self, space: Space) -> list[list[str]]:
        """Make one entry of each broken kind; return their identifiers."""
        made = []
        for number, mark in enumerate(space.target.broken_marks):
            name = f"broken_{number}"
            made.append(space.marked(name, space.dataset(name), mark))
        return made
