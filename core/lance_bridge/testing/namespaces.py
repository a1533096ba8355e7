"""Cases: create, list, describe, drop and exists of namespaces."""

from __future__ import annotations

from lance_namespace import ErrorCode

from .calls import refused, rows
from .cases import Cases, Namespace, needs

ALREADY_EXISTS = ErrorCode.NAMESPACE_ALREADY_EXISTS
NOT_FOUND = ErrorCode.NAMESPACE_NOT_FOUND
NOT_EMPTY = ErrorCode.NAMESPACE_NOT_EMPTY
INVALID = ErrorCode.INVALID_INPUT


class RootCases(Cases):
    """The root, which always exists."""

    def test_the_root_is_neither_created_nor_dropped(self, ns: Namespace) -> None:
        with refused(INVALID, ALREADY_EXISTS):
            ns.create_namespace([])
        with refused(INVALID, NOT_EMPTY):
            ns.drop_namespace([])

    def test_the_root_exists_and_is_described(self, ns: Namespace) -> None:
        ns.namespace_exists([])
        ns.describe_namespace([])

    def test_a_null_namespace_identifier_is_the_root(self, ns: Namespace) -> None:
        ns.namespace_exists(None)
        ns.describe_namespace(None)
        assert ns.all_namespaces(None) == ns.all_namespaces([])

    def test_a_namespace_without_children_lists_none(self, ns: Namespace) -> None:
        ns.with_rows("not_a_namespace")
        assert ns.all_namespaces(ns.id) == []


@needs("namespace_changes")
class NamespaceCases(RootCases):
    """Namespaces, except names, paging and foreign tables."""

    # -- create ----------------------------------------------------------------------------------

    def test_a_created_namespace_exists_is_described_and_is_listed(self, ns: Namespace) -> None:
        ns.namespace_exists(ns.id)
        ns.describe_namespace(ns.id)
        assert ns.name in ns.all_namespaces(ns.target.parent)

    @needs("namespace_properties")
    def test_namespace_properties_are_kept(self, ns: Namespace) -> None:
        created = ns.track(ns.missing_namespace())
        wanted = {"owner of data": "Ines", "empty": "", "unicode": "Größe → 7"}
        answer = ns.create_namespace(created, properties=wanted).properties
        assert wanted.items() <= (answer or {}).items()
        described = ns.describe_namespace(created).properties
        assert wanted.items() <= (described or {}).items()

    @needs("namespace_properties")
    def test_properties_of_a_namespace_without_any_are_not_null(self, ns: Namespace) -> None:
        assert ns.describe_namespace(ns.id).properties is not None

    def test_create_of_an_existing_namespace_is_namespace_already_exists(
        self, ns: Namespace
    ) -> None:
        for mode in (None, "Create", "create", "CREATE"):
            with refused(ALREADY_EXISTS, naming=ns.name):
                ns.create_namespace(ns.id, mode=mode)

    def test_create_exist_ok_keeps_the_existing_namespace(self, ns: Namespace) -> None:
        table_id = ns.with_rows("kept")
        for mode in ("ExistOk", "exist_ok", "EXIST_OK", "existok"):
            ns.create_namespace(ns.id, mode=mode, properties={"new": "value"})
        assert ns.ids(table_id) == [0, 1, 2]
        properties = ns.describe_namespace(ns.id).properties or {}
        assert "new" not in properties

    def test_every_create_mode_makes_a_missing_namespace(self, ns: Namespace) -> None:
        for mode in ("ExistOk", "Overwrite"):
            created = ns.track(ns.missing_namespace())
            ns.create_namespace(created, mode=mode)
            ns.namespace_exists(created)

    @needs("namespace_properties")
    def test_create_overwrite_replaces_an_empty_namespace(self, ns: Namespace) -> None:
        created = ns.track(ns.missing_namespace())
        ns.create_namespace(created, properties={"key0": "1", "both": "0"})
        for number, mode in enumerate(("Overwrite", "overwrite", "OVERWRITE"), 1):
            wanted = {f"key{number}": "1", "both": str(number)}
            ns.create_namespace(created, mode=mode, properties=wanted)
            properties = ns.describe_namespace(created).properties or {}
            assert f"key{number - 1}" not in properties, mode
            assert wanted.items() <= properties.items(), mode

    def test_create_overwrite_of_a_namespace_with_tables_is_namespace_not_empty(
        self, ns: Namespace
    ) -> None:
        table_id = ns.with_rows("kept")
        with refused(NOT_EMPTY, naming=ns.name):
            ns.create_namespace(ns.id, mode="Overwrite")
        assert ns.ids(table_id) == [0, 1, 2]

    def test_create_with_an_unknown_mode_is_invalid_input(self, ns: Namespace) -> None:
        created = ns.track(ns.missing_namespace())
        with refused(INVALID, naming="Upsert"):
            ns.create_namespace(created, mode="Upsert")
        with refused(NOT_FOUND):
            ns.namespace_exists(created)

    # -- drop ------------------------------------------------------------------------------------

    def test_a_dropped_namespace_is_gone(self, ns: Namespace) -> None:
        for mode in (None, "Fail", "fail", "Skip"):
            dropped = ns.new_namespace()
            ns.drop_namespace(dropped, mode=mode)
            with refused(NOT_FOUND, naming=dropped[-1]):
                ns.namespace_exists(dropped)
            assert dropped[-1] not in ns.all_namespaces(ns.target.parent)

    def test_drop_skip_of_a_missing_namespace_succeeds(self, ns: Namespace) -> None:
        missing = ns.missing_namespace()
        for mode in ("Skip", "skip", "SKIP"):
            ns.drop_namespace(missing, mode=mode)
        with refused(NOT_FOUND):
            ns.namespace_exists(missing)

    def test_drop_restrict_of_a_namespace_with_a_table_is_namespace_not_empty(
        self, ns: Namespace
    ) -> None:
        table_id = ns.with_rows()
        for behavior in (None, "Restrict", "restrict", "RESTRICT"):
            with refused(NOT_EMPTY, naming=ns.name):
                ns.drop_namespace(ns.id, behavior=behavior)
        assert ns.ids(table_id) == [0, 1, 2]

    def test_drop_restrict_of_a_namespace_with_a_declared_table_is_namespace_not_empty(
        self, ns: Namespace
    ) -> None:
        ns.declare_table(ns.table())
        with refused(NOT_EMPTY, naming=ns.name):
            ns.drop_namespace(ns.id)
        assert ns.names() == ["t"]

    @needs("nested_namespaces")
    def test_drop_restrict_of_a_namespace_with_a_child_is_namespace_not_empty(
        self, ns: Namespace
    ) -> None:
        child = ns.track([*ns.id, "child"])
        ns.create_namespace(child)
        with refused(NOT_EMPTY, naming=ns.name):
            ns.drop_namespace(ns.id)
        ns.namespace_exists(child)

    def test_drop_with_an_unknown_mode_or_behavior_is_invalid_input(self, ns: Namespace) -> None:
        with refused(INVALID, naming="Force"):
            ns.drop_namespace(ns.id, mode="Force")
        with refused(INVALID, naming="Purge"):
            ns.drop_namespace(ns.id, behavior="Purge")
        ns.namespace_exists(ns.id)

    def test_drop_namespace_leaves_the_files_of_a_deregistered_table(self, ns: Namespace) -> None:
        table_id = ns.with_rows()
        location = ns.location(table_id)
        ns.deregister_table(table_id)
        ns.drop_namespace(ns.id)
        assert ns.storage.ids(location) == [0, 1, 2]

    def test_drop_namespace_leaves_other_files_beside_its_tables(self, ns: Namespace) -> None:
        location = ns.declare_table(ns.table()).location or ""
        beside = f"{location.rstrip('/').rpartition('/')[0]}/{ns.name}_beside"
        ns.storage.put(beside, "kept.txt", b"kept")
        ns.drop_table(ns.table())
        ns.drop_namespace(ns.id)
        assert ns.storage.files(beside) == {"kept.txt"}
        ns.storage.remove(beside)

    @needs("cascade")
    def test_drop_cascade_drops_the_tables_and_their_data(self, ns: Namespace) -> None:
        locations = [ns.location(ns.with_rows(name)) for name in ("a", "b")]
        ns.declare_table(ns.table("declared"))
        ns.drop_namespace(ns.id, behavior="Cascade")
        with refused(NOT_FOUND, naming=ns.name):
            ns.namespace_exists(ns.id)
        assert [ns.storage.files(each) for each in locations] == [frozenset()] * 2

    @needs("cascade")
    def test_drop_cascade_of_an_empty_namespace_drops_it(self, ns: Namespace) -> None:
        for behavior in ("Cascade", "cascade", "CASCADE"):
            dropped = ns.new_namespace()
            ns.drop_namespace(dropped, behavior=behavior)
            with refused(NOT_FOUND):
                ns.namespace_exists(dropped)

    @needs("cascade")
    def test_drop_cascade_leaves_what_is_not_in_the_namespace(self, ns: Namespace) -> None:
        elsewhere = [*ns.new_namespace(), "t"]
        ns.create_table(elsewhere, rows(range(5)))
        ns.with_rows("dropped")
        location = ns.location(ns.with_rows("deregistered"))
        ns.deregister_table(ns.table("deregistered"))
        ns.drop_namespace(ns.id, behavior="Cascade")
        assert ns.ids(elsewhere) == [0, 1, 2, 3, 4]
        assert ns.storage.ids(location) == [0, 1, 2]
