"""Cases: versions of a table: list, describe, create, delete, restore; several tables at once."""

from __future__ import annotations

import uuid
from typing import Any

import pytest
from lance_namespace import ErrorCode

from ..build import unique_name
from ..cases import needs
from ..expect import refused
from ..space import Space
from .ground import InsideCases, InsideTable, make_table, nowhere, thin
from .items import LIBRARY, items

INVALID = ErrorCode.INVALID_INPUT
NO_VERSION = ErrorCode.TABLE_VERSION_NOT_FOUND
CONFLICT = ErrorCode.CONCURRENT_MODIFICATION


def numbers(table: InsideTable, **more: Any) -> list[int]:
    """Return the numbers of a table's versions, in the order of the answer."""
    return [each.version for each in table.call("list_table_versions", **more).versions]


def with_versions(table: InsideTable, count: int) -> InsideTable:
    """Append rows, past the catalog, until a table has so many versions."""
    while table.dataset().version < count:
        table.space.storage.write(table.location, items([100]), mode="append")
    return table


def stage(table: InsideTable) -> dict[str, Any]:
    """Write what the next version would be, and its manifest under a name that is no version's.

    Returns:
        The fields of a request to create that version.
    """
    storage = table.space.storage
    before = storage.files(table.location)
    version = table.dataset().version + 1
    with_versions(table, version)
    (name,) = (
        name
        for name in storage.files(table.location) - before
        if name.startswith("_versions/") and name.endswith(".manifest")
    )
    manifest = storage.get(table.location, name)
    storage.delete(table.location, name)
    hint = "_versions/latest_version_hint.json"
    if hint in storage.files(table.location):
        storage.delete(table.location, hint)
    staged = f"{name}-{uuid.uuid4()}"
    storage.put(table.location, staged, manifest)
    assert table.dataset().version == version - 1
    return {
        "version": version,
        "manifest_path": _spelled(table, staged),
        "manifest_size": len(manifest),
        "naming_scheme": "V2",
    }


def _spelled(table: InsideTable, file: str) -> str:
    """Return the path of a file of a table as the answers spell it, and pylance's requests."""
    latest = table.call("list_table_versions").versions[-1].manifest_path
    return f"{latest.rpartition('/_versions/')[0]}/{file}"


def entry(table: InsideTable, **fields: Any) -> dict[str, Any]:
    """Return one of the entries of a request that names several tables."""
    return {"id": table.id, **fields}


class VersionCases(InsideCases):
    """Operations on versions."""

    # -- list and describe -----------------------------------------------------------------------

    @thin
    def test_versions_are_listed_with_their_manifests(self, library: InsideTable) -> None:
        latest = library.dataset().version
        assert sorted(numbers(library)) == list(range(1, latest + 1))
        assert numbers(library, descending=True) == list(range(latest, 0, -1))
        for each in library.call("list_table_versions").versions:
            assert each.manifest_path
            assert each.manifest_size in (None, *range(1, 100_000))

    def test_versions_are_listed_page_by_page(self, library: InsideTable) -> None:
        seen: list[int] = []
        token = None
        while token or not seen:
            page = library.call("list_table_versions", limit=2, page_token=token, descending=True)
            assert 0 < len(page.versions) <= 2
            seen += [each.version for each in page.versions]
            token = page.page_token
            assert len(seen) < 100, "the listing never ends"
        assert seen == list(range(library.dataset().version, 0, -1))

    def test_versions_of_a_branch_are_its_own(self, library: InsideTable) -> None:
        assert sorted(numbers(library, branch="dev")) == [1, 2]

    def test_a_version_is_described_as_it_is_listed(self, library: InsideTable) -> None:
        every = {each.version: each for each in library.call("list_table_versions").versions}
        latest = library.dataset().version
        assert library.call("describe_table_version").version == every[latest]
        assert library.call("describe_table_version", version=2).version == every[2]
        of_branch = library.call("describe_table_version", branch="dev").version
        assert of_branch.version == 2
        assert of_branch.manifest_path != every[2].manifest_path

    def test_a_missing_version_is_version_not_found(self, library: InsideTable) -> None:
        with library.refuses(NO_VERSION, naming="99"):
            library.call("describe_table_version", version=99)

    # -- create ----------------------------------------------------------------------------------

    @thin
    def test_a_staged_manifest_becomes_the_next_version(self, table: InsideTable) -> None:
        staged = stage(table)
        answer = table.call("create_table_version", **staged)
        assert answer.version.version == 2
        assert table.dataset().version == 2
        assert table.ids() == [*LIBRARY, 100]
        assert sorted(numbers(table)) == [1, 2]

    def test_a_version_that_is_there_or_is_not_the_next_is_a_conflict(
        self, table: InsideTable
    ) -> None:
        staged = stage(with_versions(table, 2))
        for version in (1, 2, 4):
            with table.refuses(CONFLICT, naming=str(version)):
                table.call("create_table_version", **{**staged, "version": version})

    @pytest.mark.parametrize(
        "wrong",
        [{"manifest_path": "no/such/manifest"}, {"manifest_size": 1}, {"naming_scheme": "V9"}],
        ids=str,
    )
    def test_a_manifest_that_is_not_the_one_meant_is_invalid_input(
        self, table: InsideTable, wrong: dict[str, Any]
    ) -> None:
        staged = stage(table)
        with table.refuses(INVALID):
            table.call("create_table_version", **{**staged, **wrong})

    # -- several tables --------------------------------------------------------------------------

    @thin
    @needs("batch_create_table_versions")
    def test_versions_of_several_tables_are_created_together(
        self, ground: Space, table: InsideTable
    ) -> None:
        other = make_table(ground)
        entries = [entry(table, **stage(table)), entry(other, **stage(other))]
        answer = ground.api.call("batch_create_table_versions", None, entries=entries)
        assert [each.version for each in answer.versions] == [2, 2]
        assert table.ids() == other.ids() == [*LIBRARY, 100]

    @needs("batch_create_table_versions")
    def test_no_version_is_created_where_one_cannot_be(
        self, ground: Space, table: InsideTable
    ) -> None:
        other = make_table(ground)
        good, bad = entry(table, **stage(table)), entry(other, **stage(other))
        for wrong, code in (
            ({"version": 9}, CONFLICT),
            ({"manifest_size": 1}, INVALID),
            ({"id": nowhere(ground)}, ErrorCode.TABLE_NOT_FOUND),
        ):
            with table.unchanged(), other.refuses(code):
                ground.api.call(
                    "batch_create_table_versions", None, entries=[good, {**bad, **wrong}]
                )

    @thin
    @needs("batch_commit_tables")
    def test_operations_on_several_tables_are_done_together(
        self, ground: Space, table: InsideTable
    ) -> None:
        pruned, gone = with_versions(make_table(ground), 3), ground.table(unique_name())
        operations = [
            {"create_table_version": entry(table, **stage(table))},
            {"declare_table": {"id": gone}},
            {"delete_table_versions": entry(pruned, ranges=_ranges((1, 3)))},
        ]
        answer = ground.api.call("batch_commit_tables", None, operations=operations)
        made, declared, deleted = answer.results
        assert made.create_table_version.version.version == 2
        assert declared.declare_table.location == ground.location(gone)
        assert deleted.delete_table_versions.deleted_count == 2
        assert table.ids() == [*LIBRARY, 100]
        assert numbers(pruned) == [3]
        ground.api.call(
            "batch_commit_tables", None, operations=[{"deregister_table": {"id": gone}}]
        )
        with refused(ErrorCode.TABLE_NOT_FOUND):
            ground.api.table_exists(gone)

    @needs("batch_commit_tables")
    def test_no_operation_is_done_where_one_cannot_be(
        self, ground: Space, table: InsideTable
    ) -> None:
        fresh, taken = ground.table(unique_name()), make_table(ground)
        good = [
            {"create_table_version": entry(table, **stage(table))},
            {"declare_table": {"id": fresh}},
        ]
        for wrong, code in (
            ({"declare_table": {"id": taken.id}}, ErrorCode.TABLE_ALREADY_EXISTS),
            ({"deregister_table": {"id": nowhere(ground)}}, ErrorCode.TABLE_NOT_FOUND),
            ({}, INVALID),
        ):
            with table.refuses(code):
                ground.api.call("batch_commit_tables", None, operations=[*good, wrong])
            with refused(ErrorCode.TABLE_NOT_FOUND):
                ground.api.table_exists(fresh)

    # -- delete ----------------------------------------------------------------------------------

    @thin
    def test_versions_in_the_ranges_are_deleted(self, table: InsideTable) -> None:
        with_versions(table, 5)
        ranges = _ranges((1, 2), (3, 5))
        answer = table.call("batch_delete_table_versions", ranges=ranges)
        assert answer.deleted_count == 3
        assert sorted(numbers(table)) == [2, 5]
        assert len(table.ids()) == len(LIBRARY) + 4

    def test_the_latest_version_is_never_deleted(self, table: InsideTable) -> None:
        with_versions(table, 3)
        for bounds in ((1, 4), (0, -1)):
            with table.refuses(INVALID, naming="3"):
                table.call("batch_delete_table_versions", ranges=_ranges(bounds))
        assert sorted(numbers(table)) == [1, 2, 3]

    def test_a_version_that_a_tag_or_a_branch_needs_is_never_deleted(
        self, library: InsideTable
    ) -> None:
        with library.refuses(INVALID, naming="1"):
            library.call("batch_delete_table_versions", ranges=_ranges((1, 3)))
        assert 2 in numbers(library)

    def test_a_range_that_ends_before_it_starts_is_invalid_input(
        self, library: InsideTable
    ) -> None:
        with library.refuses(INVALID):
            library.call("batch_delete_table_versions", ranges=_ranges((3, 2)))

    # -- restore ---------------------------------------------------------------------------------

    @thin
    def test_a_restored_version_is_a_new_one_with_the_old_rows(self, table: InsideTable) -> None:
        with_versions(table, 3)
        table.call("restore_table", version=1)
        assert table.dataset().version == 4
        assert table.ids() == list(LIBRARY)

    def test_a_restore_of_a_missing_version_is_version_not_found(
        self, scratch: InsideTable
    ) -> None:
        with scratch.refuses(NO_VERSION, naming="99"):
            scratch.call("restore_table", version=99)


def _ranges(*bounds: tuple[int, int]) -> list[dict[str, int]]:
    return [{"start_version": start, "end_version": end} for start, end in bounds]
