"""Cases: versions of a table: list, describe, create, delete, restore; several tables at once."""

from __future__ import annotations

import uuid
from typing import Any

from lance_namespace import ErrorCode

from ..build import unique_name
from ..case_namespace import CaseNamespace
from ..cases import Refusals, needs
from ..expect import code_of, refused
from .case_table import CaseTable, DataOperationCases, SharedTable, bad
from .items import IDS

INVALID = ErrorCode.INVALID_INPUT
NO_VERSION = ErrorCode.TABLE_VERSION_NOT_FOUND
CONFLICT = ErrorCode.CONCURRENT_MODIFICATION


def numbers(table: CaseTable, **more: Any) -> list[int]:
    """Return the numbers of a table's versions, in the order of the response."""
    return [each.version for each in table.call("list_table_versions", **more).versions]


def with_versions(table: CaseTable, count: int) -> CaseTable:
    """Append rows, without the catalog, until a table has ``count`` versions."""
    while table.dataset().version < count:
        table.append([100])
    return table


def stage(table: CaseTable) -> dict[str, Any]:
    """Write the data of the next version, and its manifest under a name that is not a version's.

    Returns:
        The fields of a request to create that version.
    """
    storage = table.ns.storage
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
        "manifest_path": _path_in_response(table, staged),
        "manifest_size": len(manifest),
        "naming_scheme": "V2",
    }


def _path_in_response(table: CaseTable, file: str) -> str:
    """Return the path of a table's file in the form of responses and of pylance's requests."""
    latest = table.call("list_table_versions").versions[-1].manifest_path
    return f"{latest.rpartition('/_versions/')[0]}/{file}"


def entry(table: CaseTable, **fields: Any) -> dict[str, Any]:
    """Return one of the entries of a request that names several tables."""
    return {"id": table.id, **fields}


def _managed(ns: CaseNamespace) -> CaseTable:
    """Return a new table whose versions the catalog holds."""
    return CaseTable(ns, properties={"managed_by": "impl"})


def _ranges(*bounds: tuple[int, int]) -> list[dict[str, int]]:
    return [{"start_version": start, "end_version": end} for start, end in bounds]


BAD_VERSIONS = {
    "describe a missing one": bad("describe_table_version", NO_VERSION, version=99),
    "restore a missing one": bad("restore_table", NO_VERSION, version=99),
    "delete one that a tag and a branch need": bad(
        "batch_delete_table_versions", naming="1", ranges=_ranges((1, 3))
    ),
    "delete a range that ends before it starts": bad(
        "batch_delete_table_versions", ranges=_ranges((3, 2))
    ),
}
BAD_MANIFESTS = (
    {"manifest_path": "no/such/manifest"},
    {"manifest_size": 1},
    {"naming_scheme": "V9"},
)


class VersionCases(DataOperationCases):
    """Operations on versions."""

    # -- list and describe -----------------------------------------------------------------------

    def test_versions_are_listed_with_their_manifests(self, shared_table: CaseTable) -> None:
        latest = shared_table.dataset().version
        assert sorted(numbers(shared_table)) == list(range(1, latest + 1))
        assert numbers(shared_table, descending=True) == list(range(latest, 0, -1))
        for each in shared_table.call("list_table_versions").versions:
            assert each.manifest_path
            assert each.manifest_size in (None, *range(1, 100_000))

    def test_versions_are_listed_page_by_page(self, shared_table: CaseTable) -> None:
        seen: list[int] = []
        token = None
        while token or not seen:
            page = shared_table.call(
                "list_table_versions", limit=2, page_token=token, descending=True
            )
            assert 0 < len(page.versions) <= 2
            seen += [each.version for each in page.versions]
            token = page.page_token
            assert len(seen) < 100, "the listing never ends"
        assert seen == list(range(shared_table.dataset().version, 0, -1))

    def test_versions_of_a_branch_are_its_own(self, shared_table: CaseTable) -> None:
        assert sorted(numbers(shared_table, branch="dev")) == [1, 2]

    def test_a_version_is_described_as_it_is_listed(self, shared_table: CaseTable) -> None:
        every = {each.version: each for each in shared_table.call("list_table_versions").versions}
        latest = shared_table.dataset().version
        assert shared_table.call("describe_table_version").version == every[latest]
        assert shared_table.call("describe_table_version", version=2).version == every[2]
        of_branch = shared_table.call("describe_table_version", branch="dev").version
        assert of_branch.version == 2
        assert of_branch.manifest_path != every[2].manifest_path

    def test_bad_requests_on_versions_are_refused(
        self, shared_table: SharedTable, refusals: Refusals
    ) -> None:
        self.refuse(refusals, shared_table, BAD_VERSIONS)

    # -- create ----------------------------------------------------------------------------------

    def test_a_staged_manifest_becomes_the_next_version(self, table: CaseTable) -> None:
        staged = stage(table)
        answer = table.call("create_table_version", **staged)
        assert answer.version.version == 2
        assert table.dataset().version == 2
        assert table.ids() == [*IDS, 100]
        assert sorted(numbers(table)) == [1, 2]

    def test_a_version_that_exists_or_is_not_the_next_is_a_conflict(self, table: CaseTable) -> None:
        staged = stage(with_versions(table, 2))
        for version in (1, 2, 4):
            with table.refuses(CONFLICT, naming=str(version)):
                table.call("create_table_version", **{**staged, "version": version})

    def test_a_manifest_that_is_not_the_one_meant_is_invalid_input(self, table: CaseTable) -> None:
        staged = stage(table)
        for wrong in BAD_MANIFESTS:
            with table.refuses(INVALID):
                table.call("create_table_version", **{**staged, **wrong})

    # -- several tables --------------------------------------------------------------------------

    @needs("batch_create_table_versions", "managed_tables")
    def test_versions_of_several_tables_are_created_together(
        self, shared_namespace: CaseNamespace
    ) -> None:
        one, other = _managed(shared_namespace), _managed(shared_namespace)
        entries = [entry(one, **stage(one)), entry(other, **stage(other))]
        answer = shared_namespace.call("batch_create_table_versions", None, entries=entries)
        assert [each.version for each in answer.versions] == [2, 2]
        assert one.ids() == other.ids() == [*IDS, 100]
        assert numbers(one) == numbers(other) == [1, 2]

    @needs("batch_create_table_versions", "managed_tables")
    def test_no_version_is_created_where_one_cannot_be(
        self, shared_namespace: CaseNamespace
    ) -> None:
        one, other = _managed(shared_namespace), _managed(shared_namespace)
        good, bad = entry(one, **stage(one)), entry(other, **stage(other))
        for wrong, code in (
            ({"version": 9}, CONFLICT),
            ({"manifest_size": 1}, INVALID),
            ({"id": shared_namespace.missing_table()}, ErrorCode.TABLE_NOT_FOUND),
        ):
            with one.unchanged(), other.refuses(code):
                shared_namespace.call(
                    "batch_create_table_versions", None, entries=[good, {**bad, **wrong}]
                )
        shared_namespace.call("batch_create_table_versions", None, entries=[good, bad])

    @needs("batch_create_table_versions")
    def test_versions_in_the_storage_are_all_created_or_refused(
        self, shared_namespace: CaseNamespace, table: CaseTable
    ) -> None:
        other = CaseTable(shared_namespace)
        entries = [entry(table, **stage(table)), entry(other, **stage(other))]
        code = code_of(
            lambda: shared_namespace.call("batch_create_table_versions", None, entries=entries)
        )
        assert code in (None, ErrorCode.UNSUPPORTED)
        assert numbers(table) == numbers(other) == ([1, 2] if code is None else [1])

    @needs("batch_commit_tables", "managed_tables")
    def test_operations_that_create_versions_are_done_together(
        self, shared_namespace: CaseNamespace
    ) -> None:
        one, other = _managed(shared_namespace), _managed(shared_namespace)
        operations = [{"create_table_version": entry(each, **stage(each))} for each in (one, other)]
        answer = shared_namespace.call("batch_commit_tables", None, operations=operations)
        made = [each.create_table_version.version.version for each in answer.results]
        assert made == [2, 2]
        assert one.ids() == other.ids() == [*IDS, 100]

    @needs("batch_commit_tables")
    def test_one_operation_of_each_kind_is_done(
        self, shared_namespace: CaseNamespace, table: CaseTable
    ) -> None:
        def commit(**operation: Any) -> Any:
            answer = shared_namespace.call("batch_commit_tables", None, operations=[operation])
            (result,) = answer.results
            return result

        declared = shared_namespace.table(unique_name())
        result = commit(declare_table={"id": declared}).declare_table
        assert result.location == shared_namespace.location(declared)
        made = commit(create_table_version=entry(table, **stage(table)))
        assert made.create_table_version.version.version == 2
        deleted = commit(delete_table_versions=entry(table, ranges=_ranges((1, 2))))
        assert deleted.delete_table_versions.deleted_count == 1
        assert numbers(table) == [2]
        commit(deregister_table={"id": declared})
        with refused(ErrorCode.TABLE_NOT_FOUND):
            shared_namespace.table_exists(declared)

    @needs("batch_commit_tables")
    def test_no_operation_is_done_where_one_cannot_be(
        self, shared_namespace: CaseNamespace, table: CaseTable
    ) -> None:
        fresh, taken = shared_namespace.table(unique_name()), CaseTable(shared_namespace)
        good = [
            {"create_table_version": entry(table, **stage(table))},
            {"declare_table": {"id": fresh}},
        ]
        for wrong, code in (
            ({"declare_table": {"id": taken.id}}, ErrorCode.TABLE_ALREADY_EXISTS),
            (
                {"deregister_table": {"id": shared_namespace.missing_table()}},
                ErrorCode.TABLE_NOT_FOUND,
            ),
            ({}, INVALID),
        ):
            with table.refuses(code, ErrorCode.UNSUPPORTED):
                shared_namespace.call("batch_commit_tables", None, operations=[*good, wrong])
            with refused(ErrorCode.TABLE_NOT_FOUND):
                shared_namespace.table_exists(fresh)

    # -- delete ----------------------------------------------------------------------------------

    def test_versions_in_the_ranges_are_deleted(self, table: CaseTable) -> None:
        with_versions(table, 5)
        ranges = _ranges((1, 2), (3, 5))
        answer = table.call("batch_delete_table_versions", ranges=ranges)
        assert answer.deleted_count == 3
        assert sorted(numbers(table)) == [2, 5]
        assert len(table.ids()) == len(IDS) + 4

    def test_the_latest_version_is_never_deleted(self, table: CaseTable) -> None:
        with_versions(table, 3)
        for bounds in ((1, 4), (0, -1)):
            with table.refuses(INVALID, naming="3"):
                table.call("batch_delete_table_versions", ranges=_ranges(bounds))
        assert sorted(numbers(table)) == [1, 2, 3]

    # -- restore ---------------------------------------------------------------------------------

    def test_a_restored_version_is_a_new_one_with_the_old_rows(self, table: CaseTable) -> None:
        with_versions(table, 3)
        table.call("restore_table", version=1)
        assert table.dataset().version == 4
        assert table.ids() == list(IDS)
