"""Cases: rename of tables, within a namespace and across."""

from __future__ import annotations

from lance_namespace import ErrorCode

from .build import rows
from .calls import refused
from .cases import CaseNamespace, Cases, needs, same_location

ALREADY_EXISTS = ErrorCode.TABLE_ALREADY_EXISTS
NOT_FOUND = ErrorCode.TABLE_NOT_FOUND


class RenameCases(Cases):
    """Rename moves the entry and never the files."""

    @needs("rename")
    def test_a_renamed_table_keeps_its_location_and_its_data(self, ns: CaseNamespace) -> None:
        table_id = ns.with_rows("old")
        before = ns.location(table_id)
        ns.rename_table(table_id, "new")
        assert ns.names() == ["new"]
        assert same_location(ns.location(ns.table("new")), before)
        assert ns.ids(ns.table("new")) == [0, 1, 2]
        with refused(NOT_FOUND, naming="old"):
            ns.describe_table(table_id)

    @needs("rename", "table_properties")
    def test_a_renamed_table_keeps_its_properties(self, ns: CaseNamespace) -> None:
        ns.declare_table(ns.table("old"), properties={"author": "Ines"})
        ns.rename_table(ns.table("old"), "new")
        properties = ns.describe_table(ns.table("new")).properties or {}
        assert properties.get("author") == "Ines"

    @needs("rename")
    def test_rename_with_the_same_namespace_given_is_the_same(self, ns: CaseNamespace) -> None:
        table_id = ns.with_rows("old")
        ns.rename_table(table_id, "new", new_namespace_id=ns.id)
        assert ns.ids(ns.table("new")) == [0, 1, 2]

    @needs("rename", "rename_across")
    def test_rename_into_another_namespace_keeps_location_and_data(self, ns: CaseNamespace) -> None:
        other = ns.new_namespace()
        table_id = ns.with_rows("old")
        before = ns.location(table_id)
        ns.rename_table(table_id, "new", new_namespace_id=other)
        assert ns.names() == []
        assert ns.all_tables(other) == ["new"]
        assert same_location(ns.location([*other, "new"]), before)
        assert ns.ids([*other, "new"]) == [0, 1, 2]

    @needs("rename")
    def test_rename_onto_an_existing_table_is_table_already_exists(self, ns: CaseNamespace) -> None:
        source = ns.with_rows("source", range(3))
        taken = ns.with_rows("taken", range(5))
        with refused(ALREADY_EXISTS, naming="taken"):
            ns.rename_table(source, "taken")
        assert ns.ids(source) == [0, 1, 2]
        assert ns.ids(taken) == [0, 1, 2, 3, 4]

    @needs("rename", "rename_across")
    def test_rename_onto_an_existing_table_elsewhere_is_table_already_exists(
        self, ns: CaseNamespace
    ) -> None:
        other = ns.new_namespace()
        ns.create_table([*other, "taken"], rows(range(5)))
        source = ns.with_rows("source")
        with refused(ALREADY_EXISTS, naming="taken"):
            ns.rename_table(source, "taken", new_namespace_id=other)
        assert ns.ids(source) == [0, 1, 2]
        assert ns.ids([*other, "taken"]) == [0, 1, 2, 3, 4]

    @needs("rename")
    def test_a_new_table_under_the_old_name_does_not_touch_the_renamed_one(
        self, ns: CaseNamespace
    ) -> None:
        ns.rename_table(ns.with_rows("old"), "new")
        fresh = ns.with_rows("old", range(5))
        assert not same_location(ns.location(fresh), ns.location(ns.table("new")))
        assert ns.ids(fresh) == [0, 1, 2, 3, 4]
        assert ns.ids(ns.table("new")) == [0, 1, 2]

    @needs("rename")
    def test_a_new_table_under_the_name_of_a_renamed_declared_one_lies_elsewhere(
        self, ns: CaseNamespace
    ) -> None:
        ns.declare_table(ns.table("old"))
        ns.rename_table(ns.table("old"), "new")
        ns.declare_table(ns.table("old"))
        assert not same_location(ns.location(ns.table("old")), ns.location(ns.table("new")))

    @needs("rename")
    def test_drop_of_a_renamed_table_leaves_a_new_one_under_the_old_name(
        self, ns: CaseNamespace
    ) -> None:
        ns.rename_table(ns.with_rows("old"), "new")
        fresh = ns.with_rows("old", range(5))
        ns.drop_table(ns.table("new"))
        assert ns.names() == ["old"]
        assert ns.ids(fresh) == [0, 1, 2, 3, 4]
