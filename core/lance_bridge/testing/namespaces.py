"""Cases: create, list, describe, drop and exists of namespaces."""

from __future__ import annotations

import pytest
from lance_namespace import ErrorCode

from .build import rows
from .cases import Cases, needs
from .expect import refused
from .space import Space

ALREADY_EXISTS = ErrorCode.NAMESPACE_ALREADY_EXISTS
NOT_FOUND = ErrorCode.NAMESPACE_NOT_FOUND
NOT_EMPTY = ErrorCode.NAMESPACE_NOT_EMPTY
INVALID = ErrorCode.INVALID_INPUT


class NamespaceCases(Cases):
    """Namespaces, without what concerns names, paging and foreign tables."""

    # -- create ----------------------------------------------------------------------------------

    @needs("namespace_changes")
    def test_a_created_namespace_exists_is_described_and_is_listed(self, space: Space) -> None:
        space.api.namespace_exists(space.id)
        space.api.describe_namespace(space.id)
        assert space.name in space.api.all_namespaces(space.target.parent)

    @needs("namespace_changes", "namespace_properties")
    def test_namespace_properties_are_kept(self, space: Space) -> None:
        created = space.adopt(space.missing_namespace())
        wanted = {"owner of data": "Ines", "empty": "", "unicode": "Größe → 7"}
        answer = space.api.create_namespace(created, properties=wanted).properties
        assert wanted.items() <= (answer or {}).items()
        described = space.api.describe_namespace(created).properties
        assert wanted.items() <= (described or {}).items()

    @needs("namespace_changes", "namespace_properties")
    def test_properties_of_a_namespace_without_any_are_not_null(self, space: Space) -> None:
        assert space.api.describe_namespace(space.id).properties is not None

    @needs("namespace_changes")
    @pytest.mark.parametrize("mode", [None, "Create", "create", "CREATE"])
    def test_create_of_an_existing_namespace_is_namespace_already_exists(
        self, space: Space, mode: str | None
    ) -> None:
        with refused(ALREADY_EXISTS, naming=space.name):
            space.api.create_namespace(space.id, mode=mode)

    @needs("namespace_changes")
    @pytest.mark.parametrize("mode", ["ExistOk", "exist_ok", "EXIST_OK", "existok"])
    def test_create_exist_ok_keeps_the_existing_namespace(self, space: Space, mode: str) -> None:
        table_id = space.with_rows("kept")
        space.api.create_namespace(space.id, mode=mode, properties={"new": "value"})
        assert space.ids(table_id) == [0, 1, 2]
        properties = space.api.describe_namespace(space.id).properties or {}
        assert "new" not in properties

    @needs("namespace_changes")
    @pytest.mark.parametrize("mode", ["ExistOk", "Overwrite"])
    def test_every_create_mode_makes_a_missing_namespace(self, space: Space, mode: str) -> None:
        created = space.adopt(space.missing_namespace())
        space.api.create_namespace(created, mode=mode)
        space.api.namespace_exists(created)

    @needs("namespace_changes", "namespace_properties")
    @pytest.mark.parametrize("mode", ["Overwrite", "overwrite", "OVERWRITE"])
    def test_create_overwrite_replaces_an_empty_namespace(self, space: Space, mode: str) -> None:
        created = space.adopt(space.missing_namespace())
        space.api.create_namespace(created, properties={"old": "1", "both": "1"})
        space.api.create_namespace(created, mode=mode, properties={"new": "2", "both": "2"})
        properties = space.api.describe_namespace(created).properties or {}
        assert "old" not in properties
        assert {"new": "2", "both": "2"}.items() <= properties.items()

    @needs("namespace_changes")
    def test_create_overwrite_of_a_namespace_with_tables_is_namespace_not_empty(
        self, space: Space
    ) -> None:
        table_id = space.with_rows("kept")
        with refused(NOT_EMPTY, naming=space.name):
            space.api.create_namespace(space.id, mode="Overwrite")
        assert space.ids(table_id) == [0, 1, 2]

    @needs("namespace_changes")
    def test_create_with_an_unknown_mode_is_invalid_input(self, space: Space) -> None:
        created = space.adopt(space.missing_namespace())
        with refused(INVALID, naming="Upsert"):
            space.api.create_namespace(created, mode="Upsert")
        with refused(NOT_FOUND):
            space.api.namespace_exists(created)

    def test_create_of_the_root_is_refused(self, space: Space) -> None:
        with refused(INVALID, ALREADY_EXISTS):
            space.api.create_namespace([])

    @needs("namespace_changes", "nested_namespaces")
    def test_create_in_a_missing_parent_is_namespace_not_found(self, space: Space) -> None:
        missing = space.missing_namespace()
        with refused(NOT_FOUND, naming=missing[-1]):
            space.api.create_namespace([*missing, "child"])

    # -- describe and exists ---------------------------------------------------------------------

    def test_describe_of_a_missing_namespace_is_namespace_not_found(self, space: Space) -> None:
        missing = space.missing_namespace()
        with refused(NOT_FOUND, naming=missing[-1]):
            space.api.describe_namespace(missing)

    def test_exists_of_a_missing_namespace_is_namespace_not_found(self, space: Space) -> None:
        missing = space.missing_namespace()
        with refused(NOT_FOUND, naming=missing[-1]):
            space.api.namespace_exists(missing)

    def test_the_root_exists_and_is_described(self, space: Space) -> None:
        space.api.namespace_exists([])
        space.api.describe_namespace([])

    def test_a_null_namespace_identifier_is_the_root(self, space: Space) -> None:
        space.api.namespace_exists(None)
        space.api.describe_namespace(None)
        assert space.api.all_namespaces(None) == space.api.all_namespaces([])

    # -- list ------------------------------------------------------------------------------------

    def test_list_namespaces_of_a_missing_parent_is_namespace_not_found(self, space: Space) -> None:
        missing = space.missing_namespace()
        with refused(NOT_FOUND, naming=missing[-1]):
            space.api.list_namespaces(missing)

    def test_a_namespace_without_children_lists_none(self, space: Space) -> None:
        space.with_rows("not_a_namespace")
        assert space.api.all_namespaces(space.id) == []

    # -- drop ------------------------------------------------------------------------------------

    @needs("namespace_changes")
    @pytest.mark.parametrize("mode", [None, "Fail", "fail", "Skip"])
    def test_a_dropped_namespace_is_gone(self, space: Space, mode: str | None) -> None:
        space.api.drop_namespace(space.id, mode=mode)
        with refused(NOT_FOUND, naming=space.name):
            space.api.namespace_exists(space.id)
        assert space.name not in space.api.all_namespaces(space.target.parent)

    @needs("namespace_changes")
    @pytest.mark.parametrize("mode", [None, "Fail", "fail", "FAIL"])
    def test_drop_of_a_missing_namespace_is_namespace_not_found(
        self, space: Space, mode: str | None
    ) -> None:
        missing = space.missing_namespace()
        with refused(NOT_FOUND, naming=missing[-1]):
            space.api.drop_namespace(missing, mode=mode)

    @needs("namespace_changes")
    @pytest.mark.parametrize("mode", ["Skip", "skip", "SKIP"])
    def test_drop_skip_of_a_missing_namespace_succeeds(self, space: Space, mode: str) -> None:
        missing = space.missing_namespace()
        space.api.drop_namespace(missing, mode=mode)
        with refused(NOT_FOUND):
            space.api.namespace_exists(missing)

    @needs("namespace_changes")
    @pytest.mark.parametrize("behavior", [None, "Restrict", "restrict", "RESTRICT"])
    def test_drop_restrict_of_a_namespace_with_a_table_is_namespace_not_empty(
        self, space: Space, behavior: str | None
    ) -> None:
        table_id = space.with_rows()
        with refused(NOT_EMPTY, naming=space.name):
            space.api.drop_namespace(space.id, behavior=behavior)
        assert space.ids(table_id) == [0, 1, 2]

    @needs("namespace_changes")
    def test_drop_restrict_of_a_namespace_with_a_declared_table_is_namespace_not_empty(
        self, space: Space
    ) -> None:
        space.api.declare_table(space.table())
        with refused(NOT_EMPTY, naming=space.name):
            space.api.drop_namespace(space.id)
        assert space.names() == ["t"]

    @needs("namespace_changes", "nested_namespaces")
    def test_drop_restrict_of_a_namespace_with_a_child_is_namespace_not_empty(
        self, space: Space
    ) -> None:
        child = space.adopt([*space.id, "child"])
        space.api.create_namespace(child)
        with refused(NOT_EMPTY, naming=space.name):
            space.api.drop_namespace(space.id)
        space.api.namespace_exists(child)

    @needs("namespace_changes")
    def test_drop_with_an_unknown_mode_is_invalid_input(self, space: Space) -> None:
        with refused(INVALID, naming="Force"):
            space.api.drop_namespace(space.id, mode="Force")
        space.api.namespace_exists(space.id)

    @needs("namespace_changes")
    def test_drop_with_an_unknown_behavior_is_invalid_input(self, space: Space) -> None:
        with refused(INVALID, naming="Purge"):
            space.api.drop_namespace(space.id, behavior="Purge")
        space.api.namespace_exists(space.id)

    def test_drop_of_the_root_is_refused(self, space: Space) -> None:
        with refused(INVALID, NOT_EMPTY):
            space.api.drop_namespace([])

    @needs("namespace_changes")
    def test_drop_namespace_leaves_the_files_of_a_deregistered_table(self, space: Space) -> None:
        table_id = space.with_rows()
        location = space.location(table_id)
        space.api.deregister_table(table_id)
        space.api.drop_namespace(space.id)
        assert space.storage.ids(location) == [0, 1, 2]

    @needs("namespace_changes")
    def test_drop_namespace_leaves_other_files_beside_its_tables(self, space: Space) -> None:
        location = space.api.declare_table(space.table()).location or ""
        beside = f"{location.rstrip('/').rpartition('/')[0]}/{space.name}_beside"
        space.storage.put(beside, "kept.txt", b"kept")
        space.api.drop_table(space.table())
        space.api.drop_namespace(space.id)
        assert space.storage.files(beside) == {"kept.txt"}
        space.storage.remove(beside)

    # -- cascade ---------------------------------------------------------------------------------

    @needs("namespace_changes", "cascade")
    @pytest.mark.parametrize("behavior", ["Cascade", "cascade", "CASCADE"])
    def test_drop_cascade_drops_the_tables_and_their_data(
        self, space: Space, behavior: str
    ) -> None:
        locations = [space.location(space.with_rows(name)) for name in ("a", "b")]
        space.api.declare_table(space.table("declared"))
        space.api.drop_namespace(space.id, behavior=behavior)
        with refused(NOT_FOUND, naming=space.name):
            space.api.namespace_exists(space.id)
        assert [space.storage.files(location) for location in locations] == [frozenset()] * 2

    @needs("namespace_changes", "cascade")
    def test_drop_cascade_of_an_empty_namespace_drops_it(self, space: Space) -> None:
        space.api.drop_namespace(space.id, behavior="Cascade")
        with refused(NOT_FOUND):
            space.api.namespace_exists(space.id)

    @needs("namespace_changes", "cascade")
    def test_drop_cascade_leaves_the_tables_of_other_namespaces(self, space: Space) -> None:
        other = space.new_namespace()
        space.api.create_table([*other, "t"], rows(range(5)))
        space.with_rows()
        space.api.drop_namespace(space.id, behavior="Cascade")
        assert space.ids([*other, "t"]) == [0, 1, 2, 3, 4]

    @needs("namespace_changes", "cascade")
    def test_drop_cascade_leaves_the_files_of_a_deregistered_table(self, space: Space) -> None:
        space.with_rows("dropped")
        location = space.location(space.with_rows("deregistered"))
        space.api.deregister_table(space.table("deregistered"))
        space.api.drop_namespace(space.id, behavior="Cascade")
        assert space.storage.ids(location) == [0, 1, 2]
