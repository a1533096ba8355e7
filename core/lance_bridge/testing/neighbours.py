"""Cases: tables beside what other tools keep in the catalog, and beside what it cannot return."""

from __future__ import annotations

from contextlib import closing

from lance_namespace import ErrorCode

from .build import rows
from .case_namespace import CaseNamespace
from .cases import Cases, needs
from .expect import refused
from .target import Target


class NeighbourCases(Cases):
    """What other tools keep in the catalog loses no file, and stops no operation."""

    @needs("inhabit")
    def test_entries_of_other_tools_are_not_listed_and_keep_their_names(
        self, inhabited: CaseNamespace
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
        self, ns: CaseNamespace, inhabited: CaseNamespace
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
            with target.unreadable(name) as found, closing(CaseNamespace(target)) as ns:
                table_id = ns.with_rows()
                if not target.lacks("list_all"):
                    listed = ns.list_all_tables().tables
                    assert ns.features.delimiter.join(table_id) in listed, name
                # Its files may be those of what cannot be read.
                with refused(*unsafe, naming=found[-1]):
                    ns.drop_table(table_id)
                assert ns.ids(table_id) == [0, 1, 2], name
                ns.deregister_table(table_id)
