"""Cases: entries of other tools and implementations, broken ones, and tables beside them."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from contextlib import closing

from lance_namespace import ErrorCode

from .calls import answer_of, code_of, refused, rows
from .cases import Cases, Namespace, needs, same_location
from .requests import CREATE_TABLE, ENTRY_OPERATIONS, calls_of
from .target import Target

INVALID = ErrorCode.INVALID_INPUT

# -- entries of others -----------------------------------------------------------------------------


class ForeignCases(Cases):
    """Entries that share the catalog with Lance's own tables."""

    # -- entries that are not Lance's ------------------------------------------------------------

    @needs("make_foreign_table")
    def test_a_foreign_table_is_not_listed(self, ns: Namespace) -> None:
        ns.foreign()
        ns.with_rows("lance_table")
        assert ns.names() == ["lance_table"]
        assert ns.all_tables(ns.id, limit=1) == ["lance_table"]
        if ns.features.list_all:
            foreign = ns.features.delimiter.join(ns.table("foreign"))
            assert foreign not in ns.list_all_tables().tables

    @needs("make_foreign_table")
    def test_operations_on_a_foreign_table_are_invalid_input(self, ns: Namespace) -> None:
        foreign = ns.foreign()
        calls = calls_of(ns, [name for name in ENTRY_OPERATIONS if name not in CREATE_TABLE])
        ns.refuse(calls, [foreign], INVALID, naming="foreign")
        self._check_untouched(ns, foreign)

    @needs("make_foreign_table")
    def test_the_name_of_a_foreign_table_is_taken_in_every_mode(self, ns: Namespace) -> None:
        foreign, code = ns.foreign(), ErrorCode.TABLE_ALREADY_EXISTS
        ns.refuse(calls_of(ns, CREATE_TABLE), [foreign], code, naming="foreign")
        for mode in ("ExistOk", "Overwrite"):
            calls = calls_of(ns, ["create_table"], mode=mode)
            ns.refuse(calls, [foreign], code, naming="foreign")
        if ns.features.register:
            calls = calls_of(ns, ["register_table"], mode="Overwrite")
            ns.refuse(calls, [foreign], code, naming="foreign")
        self._check_untouched(ns, foreign)

    @needs("make_foreign_table", "rename")
    def test_rename_onto_a_foreign_table_is_table_already_exists(self, ns: Namespace) -> None:
        foreign = ns.foreign()
        table_id = ns.with_rows()
        with refused(ErrorCode.TABLE_ALREADY_EXISTS, naming="foreign"):
            ns.rename_table(table_id, "foreign")
        assert ns.ids(table_id) == [0, 1, 2]
        self._check_untouched(ns, foreign)

    @needs("make_foreign_table", "namespace_changes")
    def test_a_namespace_with_a_foreign_table_is_neither_dropped_nor_overwritten(
        self, ns: Namespace
    ) -> None:
        foreign = ns.foreign()
        calls: dict[str, Callable[[str], object]] = {
            "Restrict": lambda mode: ns.drop_namespace(ns.id, behavior=mode),
            "Overwrite": lambda mode: ns.create_namespace(ns.id, mode=mode),
        }
        if ns.features.cascade:
            calls["Cascade"] = calls["Restrict"]

        def complaints() -> dict[str, str]:
            codes = [ErrorCode.NAMESPACE_NOT_EMPTY]
            return {name: answer_of(calls[name], name, codes, ns.name) for name in calls}

        ns.compare(complaints())
        self._check_untouched(ns, foreign)
        table_id = ns.with_rows("zz_lance")
        ns.compare(complaints())
        assert ns.names() == ["zz_lance"]
        assert ns.ids(table_id) == [0, 1, 2]
        self._check_untouched(ns, foreign)

    @needs("make_foreign_table", "register", "shared_locations")
    def test_drop_of_a_table_at_the_location_of_a_foreign_one_is_invalid_table_state(
        self, ns: Namespace
    ) -> None:
        foreign = ns.foreign()
        place = ns.new_location("foreign")
        ns.storage.write(place, rows(range(3)))
        table_id = ns.register("shares", place)
        with refused(ErrorCode.INVALID_TABLE_STATE, naming="shares"):
            ns.drop_table(table_id)
        assert ns.storage.ids(place) == [0, 1, 2]
        self._check_untouched(ns, foreign)

    def _check_untouched(self, ns: Namespace, foreign: list[str]) -> None:
        """Require that the entry exists, is foreign, and has its file."""
        with refused(INVALID, naming="foreign"):
            ns.describe_table(foreign)
        assert "part-0.parquet" in ns.storage.files(ns.new_location("foreign"))

    # -- entries by other implementations --------------------------------------------------------

    @needs("other_entry_types", "make_entry")
    def test_entries_by_other_implementations_are_listed_described_and_read(
        self, ns: Namespace
    ) -> None:
        made = self._make_other_entries(ns)
        assert ns.names() == sorted(made)
        for name, place in made.items():
            ns.table_exists(ns.table(name))
            assert same_location(ns.location(ns.table(name)), place), name
            assert ns.ids(ns.table(name)) == [0, 1, 2], name
            assert ns.count(ns.table(name)) == 3, name

    @needs("other_entry_types", "make_entry")
    def test_deregister_of_entries_by_other_implementations_keeps_their_data(
        self, ns: Namespace
    ) -> None:
        made = self._make_other_entries(ns)
        for name, place in made.items():
            ns.deregister_table(ns.table(name))
            assert ns.storage.ids(place) == [0, 1, 2], name
        assert ns.names() == []

    @needs("other_entry_types", "make_entry")
    def test_drop_of_entries_by_other_implementations_deletes_only_their_data(
        self, ns: Namespace
    ) -> None:
        made = self._make_other_entries(ns)
        for name in list(made):
            ns.drop_table(ns.table(name))
            assert ns.storage.files(made.pop(name)) == frozenset(), name
            assert all(ns.storage.ids(place) == [0, 1, 2] for place in made.values())
        assert ns.names() == []

    @needs("other_entry_types", "make_entry", "rename")
    def test_rename_of_entries_by_other_implementations_keeps_their_data(
        self, ns: Namespace
    ) -> None:
        for name, place in self._make_other_entries(ns).items():
            ns.rename_table(ns.table(name), f"{name}_new")
            assert same_location(ns.location(ns.table(f"{name}_new")), place), name
            assert ns.storage.ids(place) == [0, 1, 2], name

    @needs("other_entry_types", "make_entry", "namespace_changes", "cascade")
    def test_drop_cascade_drops_entries_by_other_implementations(self, ns: Namespace) -> None:
        self._make_other_entries(ns)
        ns.drop_namespace(ns.id, behavior="Cascade")
        with refused(ErrorCode.NAMESPACE_NOT_FOUND):
            ns.namespace_exists(ns.id)

    def _make_other_entries(self, ns: Namespace) -> dict[str, str]:
        """Make one entry of each type; return their locations by name."""
        return _make_entries(ns, "odd", ns.target.other_entry_types)

    @needs("broken_entry_types", "make_entry")
    def test_a_broken_entry_stops_neither_a_listing_nor_a_drop(self, ns: Namespace) -> None:
        self._broken(ns)
        location = ns.location(ns.with_rows("whole"))
        assert "whole" in ns.names()
        assert "whole" in ns.all_tables(ns.id, limit=1)
        assert "whole" in ns.all_tables(ns.id, include_declared=False)
        ns.drop_table(ns.table("whole"))
        assert ns.storage.files(location) == frozenset()

    @needs("broken_entry_types", "make_entry")
    def test_describe_of_a_broken_entry_says_what_is_wrong(self, ns: Namespace) -> None:
        for table_id in self._broken(ns):
            with refused(ErrorCode.INVALID_TABLE_STATE, INVALID, naming=table_id[-1]):
                ns.describe_table(table_id)

    @needs("broken_entry_types", "make_entry")
    def test_a_broken_entry_can_be_deregistered(self, ns: Namespace) -> None:
        for table_id in self._broken(ns):
            ns.deregister_table(table_id)
            assert code_of(ns.table_exists, table_id) == ErrorCode.TABLE_NOT_FOUND

    def _broken(self, ns: Namespace) -> list[list[str]]:
        """Make one entry of each broken type; return their identifiers."""
        return [
            ns.table(name) for name in _make_entries(ns, "broken", ns.target.broken_entry_types)
        ]


def _make_entries(ns: Namespace, prefix: str, entry_types: Iterable[str]) -> dict[str, str]:
    made = {}
    for number, entry_type in enumerate(entry_types):
        name = f"{prefix}_{number}"
        made[name] = ns.dataset(name)
        ns.other_entry(name, made[name], entry_type)
    return made


# -- tables beside them ----------------------------------------------------------------------------


class NeighbourCases(Cases):
    """What other tools keep in the catalog loses no file, and stops no operation."""

    @needs("inhabit")
    def test_entries_of_other_tools_are_not_listed_and_keep_their_names(
        self, inhabited: Namespace
    ) -> None:
        lance_tables = sorted(each.name for each in inhabited.neighbours if each.is_lance)
        assert inhabited.names() == lance_tables
        taken = (ErrorCode.TABLE_ALREADY_EXISTS, ErrorCode.INVALID_INPUT)
        for name in (each.name for each in inhabited.neighbours if not each.is_lance):
            for call in (inhabited.describe_table, inhabited.drop_table):
                with refused(ErrorCode.INVALID_INPUT, naming=name):
                    call(inhabited.table(name))
            with refused(*taken, naming=name):
                inhabited.declare_table(inhabited.table(name))
        if inhabited.features.namespace_changes and inhabited.features.cascade:
            with refused(ErrorCode.NAMESPACE_NOT_EMPTY, naming=inhabited.name):
                inhabited.drop_namespace(inhabited.id, behavior="Cascade")
        assert inhabited.names() == lance_tables

    @needs("inhabit", "register")
    def test_files_are_kept_wherever_an_entry_of_another_tool_may_have_data(
        self, ns: Namespace, inhabited: Namespace
    ) -> None:
        places = dict.fromkeys(place for n in inhabited.neighbours for place in n.locations)
        for number, place in enumerate(places):
            ns.storage.write(place, rows(range(3)))
            ns.storage.put(place, "part-0.parquet", b"not Lance")
            table_id = ns.register(f"t{number}", place)
            with refused(ErrorCode.INVALID_TABLE_STATE, naming=table_id[-1]):
                ns.drop_table(table_id)
            assert ns.ids(table_id) == [0, 1, 2], place
            assert "part-0.parquet" in ns.storage.files(place)
            ns.deregister_table(table_id)
            ns.storage.remove(place)

    @needs("unreadable_types", "unreadable")
    def test_beside_what_cannot_be_read_only_drop_is_refused(self, target: Target) -> None:
        unsafe = (ErrorCode.INVALID_TABLE_STATE, ErrorCode.PERMISSION_DENIED)
        for name in target.unreadable_types:
            with target.unreadable(name) as found, closing(Namespace(target)) as ns:
                table_id = ns.with_rows()
                if not target.lacks("list_all"):
                    listed = ns.list_all_tables().tables
                    assert ns.features.delimiter.join(table_id) in listed, name
                # Its files may be those of what cannot be read.
                with refused(*unsafe, naming=found[-1]):
                    ns.drop_table(table_id)
                assert ns.ids(table_id) == [0, 1, 2], name
                ns.deregister_table(table_id)
