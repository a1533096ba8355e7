"""Cases: register and deregister of tables."""

from __future__ import annotations

from lance_namespace import ErrorCode

from .build import rows
from .case_namespace import CaseNamespace
from .cases import Cases, needs
from .expect import refused
from .storage import same_location

ALREADY_EXISTS = ErrorCode.TABLE_ALREADY_EXISTS
NOT_FOUND = ErrorCode.TABLE_NOT_FOUND
INVALID = ErrorCode.INVALID_INPUT


class RegistrationCases(Cases):
    """Entries that are added and removed while their data stays."""

    # -- register --------------------------------------------------------------------------------

    @needs("register")
    def test_a_registered_table_keeps_its_location_and_its_data(self, ns: CaseNamespace) -> None:
        place = ns.dataset("here", range(4))
        table_id = ns.register("t", place)
        assert same_location(ns.location(table_id), place)
        assert ns.ids(table_id) == [0, 1, 2, 3]
        assert ns.names() == ["t"]

    @needs("register", "table_properties")
    def test_register_keeps_table_properties(self, ns: CaseNamespace) -> None:
        location = ns.target.register_location(ns.dataset("here"))
        ns.register_table(ns.table(), location, properties={"author": "Ines"})
        properties = ns.describe_table(ns.table()).properties or {}
        assert properties.get("author") == "Ines"

    @needs("register")
    def test_register_under_a_taken_name_is_table_already_exists(self, ns: CaseNamespace) -> None:
        table_id = ns.with_rows("taken")
        before = ns.location(table_id)
        location = ns.target.register_location(ns.dataset("other", range(9)))
        for mode in (None, "Create", "create", "CREATE"):
            with refused(ALREADY_EXISTS, naming="taken"):
                ns.register_table(table_id, location, mode=mode)
        assert ns.location(table_id) == before
        assert ns.ids(table_id) == [0, 1, 2]

    @needs("register")
    def test_register_under_the_name_of_a_declared_table_is_table_already_exists(
        self, ns: CaseNamespace
    ) -> None:
        before = ns.declare_table(ns.table("taken")).location
        location = ns.target.register_location(ns.dataset("other"))
        with refused(ALREADY_EXISTS, naming="taken"):
            ns.register_table(ns.table("taken"), location)
        assert ns.location(ns.table("taken")) == before

    @needs("register", "alter")
    def test_register_overwrite_replaces_the_entry_and_keeps_both_data(
        self, ns: CaseNamespace
    ) -> None:
        table_id = ns.with_rows(ids=range(9))
        for mode in ("Overwrite", "overwrite", "OVERWRITE"):
            before = ns.location(table_id)
            place = ns.dataset(f"other_{mode}", range(9))
            ns.register_table(table_id, ns.target.register_location(place), mode=mode)
            assert same_location(ns.location(table_id), place)
            assert ns.ids(table_id) == ns.storage.ids(before) == list(range(9))
        assert ns.names() == ["t"]

    @needs("register")
    def test_register_overwrite_of_a_missing_table_registers_it(self, ns: CaseNamespace) -> None:
        place = ns.dataset("here")
        location = ns.target.register_location(place)
        ns.register_table(ns.table(), location, mode="Overwrite")
        assert same_location(ns.location(ns.table()), place)

    @needs("register")
    def test_register_with_an_unknown_mode_is_invalid_input(self, ns: CaseNamespace) -> None:
        location = ns.target.register_location(ns.dataset("here"))
        with refused(INVALID, naming="ExistOk"):
            ns.register_table(ns.table(), location, mode="ExistOk")
        assert ns.names() == []

    @needs("register")
    def test_register_with_an_empty_location_is_invalid_input(self, ns: CaseNamespace) -> None:
        with refused(INVALID):
            ns.register_table(ns.table(), "")
        assert ns.names() == []

    # -- deregister ------------------------------------------------------------------------------

    def test_a_deregistered_table_is_gone_and_its_files_stay(self, ns: CaseNamespace) -> None:
        table_id = ns.with_rows()
        location = ns.location(table_id)
        files = ns.storage.files(location)
        answer = ns.deregister_table(table_id)
        assert same_location(answer.location or "", location)
        assert ns.names() == []
        with refused(NOT_FOUND, naming="t"):
            ns.table_exists(table_id)
        assert ns.storage.files(location) == files
        assert ns.storage.ids(location) == [0, 1, 2]

    def test_a_declared_table_can_be_deregistered(self, ns: CaseNamespace) -> None:
        ns.declare_table(ns.table())
        ns.deregister_table(ns.table())
        assert ns.names() == []

    def test_create_after_deregister_gets_another_location_and_keeps_both_data(
        self, ns: CaseNamespace
    ) -> None:
        table_id = ns.with_rows()
        before = ns.location(table_id)
        ns.deregister_table(table_id)
        ns.create_table(table_id, rows(range(7)))
        assert not same_location(ns.location(table_id), before)
        assert ns.ids(table_id) == list(range(7))
        assert ns.storage.ids(before) == [0, 1, 2]

    def test_declare_after_deregister_gets_another_location(self, ns: CaseNamespace) -> None:
        table_id = ns.with_rows()
        before = ns.location(table_id)
        ns.deregister_table(table_id)
        answer = ns.declare_table(table_id)
        assert not same_location(answer.location or "", before)
        assert ns.storage.ids(before) == [0, 1, 2]

    @needs("register")
    def test_a_deregistered_table_can_be_registered_again(self, ns: CaseNamespace) -> None:
        place = ns.dataset("here")
        table_id = ns.register("t", place)
        ns.deregister_table(table_id)
        ns.register("t", place)
        assert ns.ids(table_id) == [0, 1, 2]
