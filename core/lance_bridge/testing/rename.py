"""Cases: rename of tables, within a namespace and across."""

from __future__ import annotations

from lance_namespace import ErrorCode

from .build import rows
from .cases import Cases, needs
from .expect import refused
from .space import Space
from .storage import same_place

ALREADY_EXISTS = ErrorCode.TABLE_ALREADY_EXISTS
NAMESPACE_NOT_FOUND = ErrorCode.NAMESPACE_NOT_FOUND
NOT_FOUND = ErrorCode.TABLE_NOT_FOUND


class RenameCases(Cases):
    """Rename moves the entry and never the files."""

    @needs("rename")
    def test_a_renamed_table_keeps_its_location_and_its_data(self, space: Space) -> None:
        table_id = space.with_rows("old")
        before = space.location(table_id)
        space.api.rename_table(table_id, "new")
        assert space.names() == ["new"]
        assert same_place(space.location(space.table("new")), before)
        assert space.ids(space.table("new")) == [0, 1, 2]
        with refused(NOT_FOUND, naming="old"):
            space.api.describe_table(table_id)

    @needs("rename", "table_properties")
    def test_a_renamed_table_keeps_its_properties(self, space: Space) -> None:
        space.api.declare_table(space.table("old"), properties={"author": "Ines"})
        space.api.rename_table(space.table("old"), "new")
        properties = space.api.describe_table(space.table("new")).properties or {}
        assert properties.get("author") == "Ines"

    @needs("rename")
    def test_rename_with_the_same_namespace_given_is_the_same(self, space: Space) -> None:
        table_id = space.with_rows("old")
        space.api.rename_table(table_id, "new", new_namespace_id=space.id)
        assert space.ids(space.table("new")) == [0, 1, 2]

    @needs("rename", "rename_across")
    def test_rename_into_another_namespace_keeps_location_and_data(self, space: Space) -> None:
        other = space.new_namespace()
        table_id = space.with_rows("old")
        before = space.location(table_id)
        space.api.rename_table(table_id, "new", new_namespace_id=other)
        assert space.names() == []
        assert space.api.all_tables(other) == ["new"]
        assert same_place(space.location([*other, "new"]), before)
        assert space.ids([*other, "new"]) == [0, 1, 2]

    @needs("rename")
    def test_rename_onto_an_existing_table_is_table_already_exists(self, space: Space) -> None:
        source = space.with_rows("source", range(3))
        taken = space.with_rows("taken", range(5))
        with refused(ALREADY_EXISTS, naming="taken"):
            space.api.rename_table(source, "taken")
        assert space.ids(source) == [0, 1, 2]
        assert space.ids(taken) == [0, 1, 2, 3, 4]

    @needs("rename", "rename_across")
    def test_rename_onto_an_existing_table_elsewhere_is_table_already_exists(
        self, space: Space
    ) -> None:
        other = space.new_namespace()
        space.api.create_table([*other, "taken"], rows(range(5)))
        source = space.with_rows("source")
        with refused(ALREADY_EXISTS, naming="taken"):
            space.api.rename_table(source, "taken", new_namespace_id=other)
        assert space.ids(source) == [0, 1, 2]
        assert space.ids([*other, "taken"]) == [0, 1, 2, 3, 4]

    @needs("rename")
    def test_rename_of_a_missing_table_is_table_not_found(self, space: Space) -> None:
        with refused(NOT_FOUND, naming="nowhere"):
            space.api.rename_table(space.table("nowhere"), "new")

    @needs("rename")
    def test_rename_in_a_missing_namespace_is_namespace_not_found(self, space: Space) -> None:
        missing = space.missing_namespace()
        with refused(NAMESPACE_NOT_FOUND, naming=missing[-1]):
            space.api.rename_table([*missing, "t"], "new")

    @needs("rename", "rename_across")
    def test_rename_into_a_missing_namespace_is_namespace_not_found(self, space: Space) -> None:
        missing = space.missing_namespace()
        table_id = space.with_rows()
        with refused(NAMESPACE_NOT_FOUND, naming=missing[-1]):
            space.api.rename_table(table_id, "new", new_namespace_id=missing)
        assert space.ids(table_id) == [0, 1, 2]

    @needs("rename")
    def test_a_new_table_under_the_old_name_does_not_touch_the_renamed_one(
        self, space: Space
    ) -> None:
        space.api.rename_table(space.with_rows("old"), "new")
        fresh = space.with_rows("old", range(5))
        assert not same_place(space.location(fresh), space.location(space.table("new")))
        assert space.ids(fresh) == [0, 1, 2, 3, 4]
        assert space.ids(space.table("new")) == [0, 1, 2]

    @needs("rename")
    def test_a_new_table_under_the_name_of_a_renamed_declared_one_lies_elsewhere(
        self, space: Space
    ) -> None:
        space.api.declare_table(space.table("old"))
        space.api.rename_table(space.table("old"), "new")
        space.api.declare_table(space.table("old"))
        assert not same_place(
            space.location(space.table("old")), space.location(space.table("new"))
        )

    @needs("rename")
    def test_drop_of_a_renamed_table_leaves_a_new_one_under_the_old_name(
        self, space: Space
    ) -> None:
        space.api.rename_table(space.with_rows("old"), "new")
        fresh = space.with_rows("old", range(5))
        space.api.drop_table(space.table("new"))
        assert space.names() == ["old"]
        assert space.ids(fresh) == [0, 1, 2, 3, 4]
