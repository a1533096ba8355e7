"""Cases: tables whose versions the catalog holds, so that every commit goes through it."""

from __future__ import annotations

from typing import Any

import lance
import pyarrow as pa
from lance_namespace import ErrorCode

from .calls import refused, rows
from .cases import CaseNamespace, Cases, needs
from .concurrency import answers_only, race

MANAGED = {"managed_by": "impl"}
WRITERS = 4
COMMITS = 3


class ManagedCases(Cases):
    """Implementation-managed tables."""

    @needs("managed_tables")
    def test_a_managed_table_is_created_read_and_written_through_the_namespace(
        self, ns: CaseNamespace
    ) -> None:
        table_id = _create(ns)
        assert ns.describe_table(table_id).managed_versioning is True
        _append(ns, range(2, 4))
        ns.call("insert_into_table", table_id, rows(range(4, 6)))
        assert _ids(ns) == [0, 1, 2, 3, 4, 5]
        assert ns.count(table_id) == 6
        assert _versions(ns) == [1, 2, 3]
        assert [ns.count(table_id, version=version) for version in (1, 2, 3)] == [2, 4, 6]

    @needs("managed_tables")
    def test_a_managed_table_that_is_declared_has_no_version(self, ns: CaseNamespace) -> None:
        declared = ns.declare_table(ns.table(), properties=MANAGED)
        assert declared.managed_versioning is True
        described = ns.describe_table(ns.table(), check_declared=True)
        assert described.is_only_declared is True
        assert _versions(ns) == []
        ns.create_table(ns.table(), rows(range(3)))
        assert _versions(ns) == [1]
        assert _ids(ns) == [0, 1, 2]

    @needs("managed_tables")
    def test_writers_of_a_managed_table_lose_no_row_and_no_version(self, ns: CaseNamespace) -> None:
        table_id = _create(ns)

        def write(number: int) -> None:
            for turn in range(COMMITS):
                own = rows([100 + number * COMMITS + turn])
                if turn % 2:
                    ns.call("insert_into_table", table_id, own)
                else:
                    _write(ns, own)

        answers_only(race(write, WRITERS))
        assert _ids(ns) == [0, 1, *range(100, 100 + WRITERS * COMMITS)]
        assert _versions(ns) == list(range(1, WRITERS * COMMITS + 2))

    @needs("managed_tables")
    def test_what_is_written_without_the_catalog_is_not_shown(self, ns: CaseNamespace) -> None:
        table_id = _create(ns)
        _write_without_the_catalog(ns)
        assert _ids(ns) == [0, 1]
        assert _versions(ns) == [1]
        with refused(ErrorCode.TABLE_VERSION_NOT_FOUND, naming="2"):
            ns.count(table_id, version=2)
        ns.call("insert_into_table", table_id, rows([2]))
        assert _ids(ns) == [0, 1, 2]

    @needs("managed_tables")
    def test_only_the_next_version_can_be_created(self, ns: CaseNamespace) -> None:
        table_id = _create(ns)
        for version in (1, 3):
            path = f"{ns.location(table_id).lstrip('/')}/_versions/x.manifest-1"
            with refused(ErrorCode.CONCURRENT_MODIFICATION, naming="next version is 2"):
                ns.call("create_table_version", table_id, version=version, manifest_path=path)
        assert _versions(ns) == [1]

    @needs("managed_tables", "rename")
    def test_a_managed_table_that_is_renamed_stays_managed(self, ns: CaseNamespace) -> None:
        table_id = _create(ns, "old")
        ns.rename_table(table_id, "t")
        _append(ns, [2])
        assert _ids(ns) == [0, 1, 2]

    @needs("managed_tables", "register")
    def test_existing_data_is_registered_as_a_managed_table(self, ns: CaseNamespace) -> None:
        place = ns.target.register_location(ns.dataset("there", range(4)))
        ns.register_table(ns.table(), place, properties=MANAGED)
        _append(ns, [4])
        assert _ids(ns) == [0, 1, 2, 3, 4]

    @needs("managed_tables", "namespace_changes", "namespace_properties")
    def test_new_tables_of_a_managed_namespace_are_managed(self, ns: CaseNamespace) -> None:
        namespace_id = ns.track(ns.missing_namespace())
        ns.create_namespace(namespace_id, properties=MANAGED)
        ns.create_table([*namespace_id, "t"], rows(range(2)))
        ns.create_table(
            [*namespace_id, "plain"], rows(range(2)), properties={"managed_by": "storage"}
        )
        found = [
            ns.describe_table([*namespace_id, name]).managed_versioning for name in ("t", "plain")
        ]
        assert found == [True, None]

    @needs("managed_tables")
    def test_a_managed_table_is_dropped_with_its_quarantined_versions(
        self, ns: CaseNamespace
    ) -> None:
        table_id = _create(ns)
        location = ns.location(table_id)
        _write_without_the_catalog(ns)
        ns.call("insert_into_table", table_id, rows([2]))
        ns.drop_table(table_id)
        assert not ns.storage.files(location)

    @needs("table_properties")
    def test_a_table_is_managed_as_asked_or_not_made(self, ns: CaseNamespace) -> None:
        if ns.features.managed_tables:
            assert ns.describe_table(_create(ns)).managed_versioning is True
            return
        with refused(ErrorCode.UNSUPPORTED, naming="t"):
            ns.create_table(ns.table(), rows(range(2)), properties=MANAGED)
        assert ns.names() == []


def _create(ns: CaseNamespace, name: str = "t") -> list[str]:
    ns.create_table(ns.table(name), rows(range(2)), properties=MANAGED)
    return ns.table(name)


def _write(ns: CaseNamespace, content: pa.Table) -> None:
    lance.write_dataset(content, namespace_client=ns.client, table_id=ns.table(), mode="append")


def _append(ns: CaseNamespace, ids: Any) -> None:
    _write(ns, rows(ids))


def _write_without_the_catalog(ns: CaseNamespace) -> None:
    lance.write_dataset(
        rows([666]),
        ns.location(ns.table()),
        mode="append",
        storage_options=dict(ns.target.storage_options) or None,
    )


def _ids(ns: CaseNamespace) -> list[int]:
    """Return the ids in the table, which pylance reads through the namespace."""
    dataset = lance.dataset(namespace_client=ns.client, table_id=ns.table())
    return sorted(dataset.to_table()["id"].to_pylist())


def _versions(ns: CaseNamespace) -> list[int]:
    answer = ns.call("list_table_versions", ns.table())
    return [each.version for each in answer.versions]
