"""Cases: tables whose versions the catalog holds, so that every commit goes through it."""

from __future__ import annotations

from lance_namespace import ErrorCode

from .calls import refused, rows
from .cases import Cases, Namespace, needs
from .concurrency import answers_only, race

MANAGED = {"managed_by": "impl"}
WRITERS = 4
COMMITS = 3


@needs("managed_tables")
class ManagedCases(Cases):
    """Implementation-managed tables."""

    def test_a_managed_table_is_created_read_and_written_through_the_namespace(
        self, ns: Namespace
    ) -> None:
        table_id = _create(ns)
        assert ns.describe_table(table_id).managed_versioning is True
        ns.write(rows(range(2, 4)))
        ns.call("insert_into_table", table_id, rows(range(4, 6)))
        assert ns.read() == [0, 1, 2, 3, 4, 5]
        assert ns.count(table_id) == 6
        assert _versions(ns) == [1, 2, 3]
        assert [ns.count(table_id, version=version) for version in (1, 2, 3)] == [2, 4, 6]

    def test_a_managed_table_that_is_declared_has_no_version(self, ns: Namespace) -> None:
        declared = ns.declare_table(ns.table(), properties=MANAGED)
        assert declared.managed_versioning is True
        described = ns.describe_table(ns.table(), check_declared=True)
        assert described.is_only_declared is True
        assert _versions(ns) == []
        ns.create_table(ns.table(), rows(range(3)))
        assert _versions(ns) == [1]
        assert ns.read() == [0, 1, 2]

    def test_writers_of_a_managed_table_lose_no_row_and_no_version(self, ns: Namespace) -> None:
        table_id = _create(ns)

        def write(number: int) -> None:
            for turn in range(COMMITS):
                own = rows([100 + number * COMMITS + turn])
                if turn % 2:
                    ns.call("insert_into_table", table_id, own)
                else:
                    ns.write(own)

        answers_only(race(write, WRITERS))
        assert ns.read() == [0, 1, *range(100, 100 + WRITERS * COMMITS)]
        assert _versions(ns) == list(range(1, WRITERS * COMMITS + 2))

    def test_what_is_written_without_the_catalog_is_not_shown(self, ns: Namespace) -> None:
        table_id = _create(ns)
        ns.storage.write(ns.location(table_id), rows([666]), mode="append")
        assert ns.read() == [0, 1]
        assert _versions(ns) == [1]
        with refused(ErrorCode.TABLE_VERSION_NOT_FOUND, naming="2"):
            ns.count(table_id, version=2)
        ns.call("insert_into_table", table_id, rows([2]))
        assert ns.read() == [0, 1, 2]

    def test_only_the_next_version_can_be_created(self, ns: Namespace) -> None:
        table_id = _create(ns)
        for version in (1, 3):
            path = f"{ns.location(table_id).lstrip('/')}/_versions/x.manifest-1"
            with refused(ErrorCode.CONCURRENT_MODIFICATION, naming="next version is 2"):
                ns.call("create_table_version", table_id, version=version, manifest_path=path)
        assert _versions(ns) == [1]

    @needs("rename")
    def test_a_managed_table_that_is_renamed_stays_managed(self, ns: Namespace) -> None:
        table_id = _create(ns, "old")
        ns.rename_table(table_id, "t")
        ns.write(rows([2]))
        assert ns.read() == [0, 1, 2]

    @needs("register")
    def test_existing_data_is_registered_as_a_managed_table(self, ns: Namespace) -> None:
        ns.register("t", ns.dataset("there", range(4)), properties=MANAGED)
        ns.write(rows([4]))
        assert ns.read() == [0, 1, 2, 3, 4]

    @needs("namespace_changes", "namespace_properties")
    def test_new_tables_of_a_managed_namespace_are_managed(self, ns: Namespace) -> None:
        namespace_id = ns.track(ns.missing_namespace())
        ns.create_namespace(namespace_id, properties=MANAGED)
        table_id, plain = [*namespace_id, "t"], [*namespace_id, "plain"]
        ns.create_table(table_id, rows(range(2)))
        ns.create_table(plain, rows(range(2)), properties={"managed_by": "storage"})
        assert ns.describe_table(table_id).managed_versioning is True
        assert ns.describe_table(plain).managed_versioning is None

    def test_a_managed_table_is_dropped_with_its_quarantined_versions(self, ns: Namespace) -> None:
        table_id = _create(ns)
        location = ns.location(table_id)
        ns.storage.write(ns.location(table_id), rows([666]), mode="append")
        ns.call("insert_into_table", table_id, rows([2]))
        ns.drop_table(table_id)
        assert not ns.storage.files(location)


def _create(ns: Namespace, name: str = "t") -> list[str]:
    ns.create_table(ns.table(name), rows(range(2)), properties=MANAGED)
    return ns.table(name)


def _versions(ns: Namespace) -> list[int]:
    answer = ns.call("list_table_versions", ns.table())
    return [each.version for each in answer.versions]
