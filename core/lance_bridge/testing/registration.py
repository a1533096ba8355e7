"""Cases: register and deregister of tables."""

from __future__ import annotations

import pytest
from lance_namespace import ErrorCode

from .build import rows
from .cases import Cases, needs
from .expect import refused
from .space import Space
from .storage import same_place

ALREADY_EXISTS = ErrorCode.TABLE_ALREADY_EXISTS
NAMESPACE_NOT_FOUND = ErrorCode.NAMESPACE_NOT_FOUND
NOT_FOUND = ErrorCode.TABLE_NOT_FOUND
INVALID = ErrorCode.INVALID_INPUT


class RegistrationCases(Cases):
    """Entries that come and go while their data stays."""

    # -- register --------------------------------------------------------------------------------

    @needs("register")
    def test_a_registered_table_keeps_its_location_and_its_data(self, space: Space) -> None:
        place = space.dataset("here", range(4))
        table_id = space.register("t", place)
        assert same_place(space.location(table_id), place)
        assert space.ids(table_id) == [0, 1, 2, 3]
        assert space.names() == ["t"]

    @needs("register", "table_properties")
    def test_register_keeps_table_properties(self, space: Space) -> None:
        location = space.target.register_location(space.dataset("here"))
        space.api.register_table(space.table(), location, properties={"author": "Ines"})
        properties = space.api.describe_table(space.table()).properties or {}
        assert properties.get("author") == "Ines"

    @needs("register")
    @pytest.mark.parametrize("mode", [None, "Create", "create", "CREATE"])
    def test_register_under_a_taken_name_is_table_already_exists(
        self, space: Space, mode: str | None
    ) -> None:
        table_id = space.with_rows("taken")
        before = space.location(table_id)
        location = space.target.register_location(space.dataset("other", range(9)))
        with refused(ALREADY_EXISTS, naming="taken"):
            space.api.register_table(table_id, location, mode=mode)
        assert space.location(table_id) == before
        assert space.ids(table_id) == [0, 1, 2]

    @needs("register")
    def test_register_under_the_name_of_a_declared_table_is_table_already_exists(
        self, space: Space
    ) -> None:
        before = space.api.declare_table(space.table("taken")).location
        location = space.target.register_location(space.dataset("other"))
        with refused(ALREADY_EXISTS, naming="taken"):
            space.api.register_table(space.table("taken"), location)
        assert space.location(space.table("taken")) == before

    @needs("register")
    @needs("alter")
    @pytest.mark.parametrize("mode", ["Overwrite", "overwrite", "OVERWRITE"])
    def test_register_overwrite_replaces_the_entry_and_keeps_both_data(
        self, space: Space, mode: str
    ) -> None:
        table_id = space.with_rows()
        before = space.location(table_id)
        place = space.dataset("other", range(9))
        space.api.register_table(table_id, space.target.register_location(place), mode=mode)
        assert same_place(space.location(table_id), place)
        assert space.ids(table_id) == list(range(9))
        assert space.storage.ids(before) == [0, 1, 2]
        assert space.names() == ["t"]

    @needs("register")
    def test_register_overwrite_of_a_missing_table_registers_it(self, space: Space) -> None:
        place = space.dataset("here")
        location = space.target.register_location(place)
        space.api.register_table(space.table(), location, mode="Overwrite")
        assert same_place(space.location(space.table()), place)

    @needs("register")
    def test_register_with_an_unknown_mode_is_invalid_input(self, space: Space) -> None:
        location = space.target.register_location(space.dataset("here"))
        with refused(INVALID, naming="ExistOk"):
            space.api.register_table(space.table(), location, mode="ExistOk")
        assert space.names() == []

    @needs("register")
    def test_register_with_an_empty_location_is_invalid_input(self, space: Space) -> None:
        with refused(INVALID):
            space.api.register_table(space.table(), "")
        assert space.names() == []

    @needs("register")
    def test_register_in_a_missing_namespace_is_namespace_not_found(self, space: Space) -> None:
        missing = space.missing_namespace()
        location = space.target.register_location(space.dataset("here"))
        with refused(NAMESPACE_NOT_FOUND, naming=missing[-1]):
            space.api.register_table([*missing, "t"], location)

    # -- deregister ------------------------------------------------------------------------------

    def test_a_deregistered_table_is_gone_and_its_files_stay(self, space: Space) -> None:
        table_id = space.with_rows()
        location = space.location(table_id)
        files = space.storage.files(location)
        answer = space.api.deregister_table(table_id)
        assert same_place(answer.location or "", location)
        assert space.names() == []
        with refused(NOT_FOUND, naming="t"):
            space.api.table_exists(table_id)
        assert space.storage.files(location) == files
        assert space.storage.ids(location) == [0, 1, 2]

    def test_a_declared_table_can_be_deregistered(self, space: Space) -> None:
        space.api.declare_table(space.table())
        space.api.deregister_table(space.table())
        assert space.names() == []

    def test_deregister_of_a_missing_table_is_table_not_found(self, space: Space) -> None:
        with refused(NOT_FOUND, naming="nowhere"):
            space.api.deregister_table(space.table("nowhere"))

    def test_deregister_in_a_missing_namespace_is_namespace_not_found(self, space: Space) -> None:
        missing = space.missing_namespace()
        with refused(NAMESPACE_NOT_FOUND, naming=missing[-1]):
            space.api.deregister_table([*missing, "t"])

    def test_create_after_deregister_gets_another_location_and_keeps_both_data(
        self, space: Space
    ) -> None:
        table_id = space.with_rows()
        before = space.location(table_id)
        space.api.deregister_table(table_id)
        space.api.create_table(table_id, rows(range(7)))
        assert not same_place(space.location(table_id), before)
        assert space.ids(table_id) == list(range(7))
        assert space.storage.ids(before) == [0, 1, 2]

    def test_declare_after_deregister_gets_another_location(self, space: Space) -> None:
        table_id = space.with_rows()
        before = space.location(table_id)
        space.api.deregister_table(table_id)
        answer = space.api.declare_table(table_id)
        assert not same_place(answer.location or "", before)
        assert space.storage.ids(before) == [0, 1, 2]

    @needs("register")
    def test_a_deregistered_table_can_be_registered_again(self, space: Space) -> None:
        place = space.dataset("here")
        table_id = space.register("t", place)
        space.api.deregister_table(table_id)
        space.register("t", place)
        assert space.ids(table_id) == [0, 1, 2]
