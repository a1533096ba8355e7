"""Cases: tables whose versions the catalog holds, so that every commit goes through it."""

from __future__ import annotations

from typing import Any

import lance
import pyarrow as pa
from lance_namespace import ErrorCode

from .build import rows
from .cases import Cases, needs
from .concurrency import answers_only, race
from .expect import refused
from .space import Space

MANAGED = {"managed_by": "impl"}
WRITERS = 4
COMMITS = 3


class ManagedCases(Cases):
    """Implementation-managed tables."""

    @needs("managed_tables")
    def test_a_managed_table_is_created_read_and_written_through_the_namespace(
        self, space: Space
    ) -> None:
        table_id = _create(space)
        assert space.api.describe_table(table_id).managed_versioning is True
        _append(space, range(2, 4))
        space.api.call("insert_into_table", table_id, rows(range(4, 6)))
        assert _ids(space) == [0, 1, 2, 3, 4, 5]
        assert space.api.count(table_id) == 6
        assert _versions(space) == [1, 2, 3]
        assert [space.api.count(table_id, version=version) for version in (1, 2, 3)] == [2, 4, 6]

    @needs("managed_tables")
    def test_a_managed_table_that_is_declared_has_no_version(self, space: Space) -> None:
        declared = space.api.declare_table(space.table(), properties=MANAGED)
        assert declared.managed_versioning is True
        described = space.api.describe_table(space.table(), check_declared=True)
        assert described.is_only_declared is True
        assert _versions(space) == []
        space.api.create_table(space.table(), rows(range(3)))
        assert _versions(space) == [1]
        assert _ids(space) == [0, 1, 2]

    @needs("managed_tables")
    def test_writers_of_a_managed_table_lose_no_row_and_no_version(self, space: Space) -> None:
        table_id = _create(space)

        def write(number: int) -> None:
            for turn in range(COMMITS):
                own = rows([100 + number * COMMITS + turn])
                if turn % 2:
                    space.api.call("insert_into_table", table_id, own)
                else:
                    _write(space, own)

        answers_only(race(write, WRITERS))
        assert _ids(space) == [0, 1, *range(100, 100 + WRITERS * COMMITS)]
        assert _versions(space) == list(range(1, WRITERS * COMMITS + 2))

    @needs("managed_tables")
    def test_what_is_written_past_the_catalog_is_not_shown(self, space: Space) -> None:
        table_id = _create(space)
        _write_past_the_catalog(space)
        assert _ids(space) == [0, 1]
        assert _versions(space) == [1]
        with refused(ErrorCode.TABLE_VERSION_NOT_FOUND, naming="2"):
            space.api.count(table_id, version=2)
        space.api.call("insert_into_table", table_id, rows([2]))
        assert _ids(space) == [0, 1, 2]

    @needs("managed_tables")
    def test_only_the_next_version_can_be_created(self, space: Space) -> None:
        table_id = _create(space)
        for version in (1, 3):
            path = f"{space.location(table_id).lstrip('/')}/_versions/x.manifest-1"
            with refused(ErrorCode.CONCURRENT_MODIFICATION, naming="next version is 2"):
                space.api.call(
                    "create_table_version", table_id, version=version, manifest_path=path
                )
        assert _versions(space) == [1]

    @needs("managed_tables", "rename")
    def test_a_managed_table_that_is_renamed_stays_managed(self, space: Space) -> None:
        table_id = _create(space, "old")
        space.api.rename_table(table_id, "t")
        _append(space, [2])
        assert _ids(space) == [0, 1, 2]

    @needs("managed_tables", "register")
    def test_data_that_is_there_is_registered_as_a_managed_table(self, space: Space) -> None:
        place = space.target.register_location(space.dataset("there", range(4)))
        space.api.register_table(space.table(), place, properties=MANAGED)
        _append(space, [4])
        assert _ids(space) == [0, 1, 2, 3, 4]

    @needs("managed_tables", "namespace_changes", "namespace_properties")
    def test_new_tables_of_a_managed_namespace_are_managed(self, space: Space) -> None:
        namespace_id = space.adopt(space.missing_namespace())
        space.api.create_namespace(namespace_id, properties=MANAGED)
        space.api.create_table([*namespace_id, "t"], rows(range(2)))
        space.api.create_table(
            [*namespace_id, "plain"], rows(range(2)), properties={"managed_by": "storage"}
        )
        found = [
            space.api.describe_table([*namespace_id, name]).managed_versioning
            for name in ("t", "plain")
        ]
        assert found == [True, None]

    @needs("managed_tables")
    def test_a_managed_table_is_dropped_with_all_that_was_set_aside(self, space: Space) -> None:
        table_id = _create(space)
        location = space.location(table_id)
        _write_past_the_catalog(space)
        space.api.call("insert_into_table", table_id, rows([2]))
        space.api.drop_table(table_id)
        assert not space.storage.files(location)

    @needs("table_properties")
    def test_a_table_is_managed_as_asked_or_not_made(self, space: Space) -> None:
        if space.features.managed_tables:
            assert space.api.describe_table(_create(space)).managed_versioning is True
            return
        with refused(ErrorCode.UNSUPPORTED, naming="t"):
            space.api.create_table(space.table(), rows(range(2)), properties=MANAGED)
        assert space.names() == []


def _create(space: Space, name: str = "t") -> list[str]:
    space.api.create_table(space.table(name), rows(range(2)), properties=MANAGED)
    return space.table(name)


def _write(space: Space, content: pa.Table) -> None:
    lance.write_dataset(
        content, namespace_client=space.api.namespace, table_id=space.table(), mode="append"
    )


def _append(space: Space, ids: Any) -> None:
    _write(space, rows(ids))


def _write_past_the_catalog(space: Space) -> None:
    lance.write_dataset(
        rows([666]),
        space.location(space.table()),
        mode="append",
        storage_options=dict(space.target.storage_options) or None,
    )


def _ids(space: Space) -> list[int]:
    """Return the ids in the table as pylance reads them by name."""
    dataset = lance.dataset(namespace_client=space.api.namespace, table_id=space.table())
    return sorted(dataset.to_table()["id"].to_pylist())


def _versions(space: Space) -> list[int]:
    answer = space.api.call("list_table_versions", space.table())
    return [each.version for each in answer.versions]
