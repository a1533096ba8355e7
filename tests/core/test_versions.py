"""Versions of a table: listed, described, made, restored and deleted, and what each changed."""

from __future__ import annotations

import shutil
from collections.abc import Iterable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import lance
import lance_namespace as api
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis_profiles import examples
from lance_namespace import errors
from lance_namespace_urllib3_client.models import TableVersion
from obstore.store import MemoryStore

from lance_bridge.credentials import Caller, acting_for
from lance_bridge.dataset import change_of_version, versions
from lance_bridge.storage.lance_format import version_inside
from lance_bridge.storage.manifests import (
    Manifest,
    Scheme,
    Staged,
    VersionDirectory,
    name_of,
    parse_name,
)
from lance_bridge.storage.store import TableFiles, TableStorage
from lance_bridge.table import Table
from lance_bridge.testing.calls import Calls, ipc
from lance_bridge.testing.concurrency import race

from .managed_tables import another
from .memory_catalog import (
    DATASET,
    TABLE,
    MemoryNamespace,
    append,
    at,
    build,
    count_rows,
    create,
    creation,
    dataset,
    directory,
    numbers,
    oracle,
    stage,
    winner_of,
)

pytestmark = [pytest.mark.quick, pytest.mark.spec("operations.md#batchdeletetableversions")]

LARGEST = 2**64


# -- list and describe ---------------------------------------------------------------------------


@pytest.mark.parametrize("more", [{}, {"descending": True}, {"branch": "dev"}, {"branch": "main"}])
def test_versions_are_listed_as_pylance_lists_them(
    three_versions: MemoryNamespace, more: dict[str, Any]
) -> None:
    dataset(three_versions).create_branch("dev", 2).delete("a = 1")
    listed = three_versions.list_table_versions(api.ListTableVersionsRequest(id=TABLE, **more))
    expected = oracle(three_versions).list_table_versions(
        api.ListTableVersionsRequest(id=TABLE[-1:], **more)
    )
    assert len(listed.versions) == (2 if more.get("branch") == "dev" else 3)
    assert listed.versions == expected.versions


@pytest.mark.parametrize("more", [{}, {"version": 1}, {"branch": "dev"}, {"version": 2}])
def test_a_version_is_described_as_pylance_describes_it(
    two_versions: MemoryNamespace, more: dict[str, Any]
) -> None:
    dataset(two_versions).create_branch("dev", 1)
    ours = two_versions.describe_table_version(api.DescribeTableVersionRequest(id=TABLE, **more))
    expected: Any = oracle(two_versions).describe_table_version({"id": TABLE[-1:], **more})
    assert ours.version == TableVersion.model_validate(expected["version"])


@examples(15, share_fixtures=True)
@given(limit=st.integers(1, 8), descending=st.booleans())
def test_pages_of_versions_are_the_whole_list(
    namespace: MemoryNamespace, limit: int, descending: bool
) -> None:
    if at("Orders") not in namespace.connection.catalog.server.tables:  # type: ignore[attr-defined]  # the one in memory
        build(namespace, 6)
    seen: list[int] = []
    token: str | None = None
    while not seen or token:
        page = namespace.list_table_versions(
            api.ListTableVersionsRequest(
                id=TABLE, limit=limit, page_token=token, descending=descending
            )
        )
        assert 0 < len(page.versions) <= limit
        seen += [each.version for each in page.versions]
        token = page.page_token
    assert seen == ([6, 5, 4, 3, 2, 1] if descending else [1, 2, 3, 4, 5, 6])


def test_a_token_of_one_listing_is_not_one_of_another(three_versions: MemoryNamespace) -> None:
    request = api.ListTableVersionsRequest(id=TABLE, limit=1)
    token = three_versions.list_table_versions(request).page_token
    with pytest.raises(errors.InvalidInputError, match="page_token"):
        numbers(three_versions, page_token=token, descending=True)


def test_a_table_whose_directory_is_gone_is_missing(with_table: MemoryNamespace) -> None:
    shutil.rmtree(directory(with_table))
    with pytest.raises(errors.InvalidTableStateError, match="is missing"):
        numbers(with_table)


@pytest.mark.parametrize("branch", ["nope", "../main", "a//b", ""])
def test_versions_of_a_missing_branch_are_not_found(
    with_table: MemoryNamespace, branch: str
) -> None:
    with pytest.raises(errors.TableBranchNotFoundError):
        numbers(with_table, branch=branch)


def test_files_that_are_no_versions_are_not_listed(two_versions: MemoryNamespace) -> None:
    stage(two_versions)
    inside = directory(two_versions) / "_versions"
    (inside / "d123.manifest").write_bytes(b"detached")
    (inside / "readme.txt").write_bytes(b"")
    assert numbers(two_versions) == [1, 2]


class InMemory(TableFiles):
    """Files of a store that is not the local file system."""

    def __init__(self) -> None:
        super().__init__(TableStorage({}), "s3://lake/t.lance")
        self._store = MemoryStore()

    def _open(self) -> MemoryStore:
        return self._store


def test_files_in_a_store_are_like_local_ones() -> None:
    files = InMemory()
    own = VersionDirectory(files)
    assert own.list() == []
    assert own.find(1) is None
    assert files.read("_versions/x") is None
    assert files.put_new(own.within(name_of(1, Scheme.V2)), b"one")
    assert not files.put_new(own.within(name_of(1, Scheme.V2)), b"two")
    assert files.put_own(own.within(name_of(1, Scheme.V2)), b"one")
    assert not files.put_own(own.within(name_of(1, Scheme.V2)), b"two")
    assert [each.path for each in own.list()] == [f"t.lance/_versions/{name_of(1, Scheme.V2)}"]
    assert own.find(1) == own.list()[0]
    files.remove([own.within(name_of(1, Scheme.V2)), "_versions/absent"])
    assert own.list() == []


# -- names and content ---------------------------------------------------------------------------


@given(st.integers(1, 10**18), st.sampled_from(Scheme))
def test_the_name_of_a_manifest_holds_its_version(version: int, scheme: Scheme) -> None:
    assert parse_name(name_of(version, scheme)) == (version, scheme)


@pytest.mark.parametrize(
    "name", ["1", "x.manifest", "d1.manifest", ".manifest", "1.manifest-abc", "²².manifest"]
)
def test_other_files_are_no_manifests(name: str) -> None:
    assert parse_name(name) is None


def test_paths_are_relative_to_the_bucket() -> None:
    files = TableFiles(TableStorage({}), "s3a://lake/my%20db/t.lance/")
    assert VersionDirectory(files).path == "my db/t.lance/_versions"
    own = VersionDirectory(files, "dev/x")
    assert own.path == "my db/t.lance/tree/dev/x/_versions"
    assert own.name_of_staged("my db/t.lance/tree/dev/x/_versions/m-1") == "m-1"
    with pytest.raises(errors.InvalidInputError, match="not a file in"):
        own.name_of_staged("my db/t.lance/_versions/m-1")


@examples(200)
@given(st.binary(max_size=80), st.integers(0, 2**65))
def test_what_is_no_manifest_has_no_version(data: bytes, position: int) -> None:
    footer = (position % 2**64).to_bytes(8, "little") + b"\0\0\2\0LANC"
    assert version_inside(data) is None or data.endswith(b"LANC")
    assert version_inside(data + footer) is None or position % 2**64 <= len(data)


# -- the creation of a version: a staged manifest becomes the next one, or nothing happens ---------


def test_the_first_version_completes_a_declared_table(with_table: MemoryNamespace) -> None:
    other = [*DATASET, "other"]
    with_table.declare_table(api.DeclareTableRequest(id=other))
    place = directory(with_table, other)
    shutil.copytree(directory(with_table), place, dirs_exist_ok=True)
    only = next((place / "_versions").glob("*.manifest"))
    staged = only.rename(only.with_name(f"{only.name}-staged"))
    (place / "_versions" / "latest_version_hint.json").unlink()  # only a commit writes it
    with_table.create_table_version(creation(other, 1, staged))
    assert numbers(with_table, other) == [1]
    assert count_rows(with_table, other) == 3


@pytest.mark.spec("operations.md#createtableversion")
def test_only_the_next_version_can_be_created(two_versions: MemoryNamespace) -> None:
    version, staged = stage(two_versions)
    for number in (1, 2, 4):
        with pytest.raises(errors.ConcurrentModificationError, match="next version is 3"):
            two_versions.create_table_version(creation(TABLE, number, staged))
    assert numbers(two_versions) == [1, 2]
    assert two_versions.create_table_version(creation(TABLE, version, staged)).version
    assert count_rows(two_versions, TABLE) == 5


@pytest.mark.spec("operations.md#createtableversion")
def test_of_several_creators_of_one_version_one_wins(with_table: MemoryNamespace) -> None:
    staged = [stage(with_table, value=1000 + number) for number in range(4)]

    def attempt(number: int) -> object:
        return another(with_table).create_table_version(creation(TABLE, *staged[number]))

    won = winner_of(race(attempt, 4), errors.ConcurrentModificationError)
    assert dataset(with_table).to_table()["a"].to_pylist() == [0, 1, 2, 1000 + won]


@pytest.mark.spec("operations.md#createtableversion")
def test_the_same_creation_again_is_answered_alike(with_table: MemoryNamespace) -> None:
    version, staged = stage(with_table)
    content = staged.read_bytes()
    first = with_table.create_table_version(creation(TABLE, version, staged))
    staged.write_bytes(content)
    again = with_table.create_table_version(creation(TABLE, version, staged))
    assert again == first
    assert numbers(with_table) == [1, 2]


def refused(namespace: MemoryNamespace, request: api.CreateTableVersionRequest, why: str) -> None:
    before = sorted(path.name for path in (directory(namespace) / "_versions").iterdir())
    with pytest.raises(errors.InvalidInputError, match=why):
        namespace.create_table_version(request)
    assert sorted(path.name for path in (directory(namespace) / "_versions").iterdir()) == before


@pytest.mark.spec("operations.md#createtableversion")
def test_a_manifest_that_is_not_the_one_meant_is_refused(with_table: MemoryNamespace) -> None:
    version, staged = stage(with_table)
    refused(with_table, creation(TABLE, 2, staged.with_name("absent")), "no staged manifest")
    refused(with_table, creation(TABLE, 2, staged, manifest_size=1), "bytes, not 1")
    refused(with_table, creation(TABLE, 2, staged, e_tag='"x"'), "e_tag")
    refused(with_table, creation(TABLE, 0, staged), "1 or more")
    refused(with_table, creation(TABLE, version, staged, naming_scheme="V1"), "unreadable")
    refused(with_table, creation(TABLE, version, staged, naming_scheme="V3"), "V1 or V2")
    append(with_table)
    refused(with_table, creation(TABLE, 3, staged), f"of version {version}, and not of version 3")
    staged.write_bytes(b"something else")
    refused(with_table, creation(TABLE, 3, staged), "not a Lance manifest")


def test_a_manifest_outside_of_the_table_is_refused(
    with_table: MemoryNamespace, tmp_path: Path
) -> None:
    other = [*DATASET, "other"]
    build(with_table, 1, other)
    _, staged = stage(with_table, other)
    first = next((directory(with_table) / "_versions").glob("*.manifest"))
    refused(with_table, creation(TABLE, 2, staged), "not a file in")
    refused(with_table, creation(TABLE, 2, tmp_path / "m"), "not a file in")
    refused(with_table, creation(TABLE, 2, first), "a version already")


@pytest.mark.spec("operations.md#createtableversion")
def test_a_table_of_the_old_naming_scheme_keeps_it(namespace: MemoryNamespace) -> None:
    namespace.declare_table(api.DeclareTableRequest(id=TABLE))
    place = directory(namespace)
    lance.write_dataset(
        pa.table({"a": [1]}), str(place), mode="overwrite", enable_v2_manifest_paths=False
    )
    version, staged = stage_v1(place)
    refused(namespace, creation(TABLE, version, staged, naming_scheme="V2"), "scheme V1")
    made = namespace.create_table_version(creation(TABLE, version, staged)).version
    assert made is not None
    assert made.manifest_path.endswith("_versions/2.manifest")
    assert numbers(namespace) == [1, 2]
    assert count_rows(namespace, TABLE) == 2


def stage_v1(place: Path) -> tuple[int, Path]:
    """Commit one more version, and take its manifest back to be staged."""
    version = lance.write_dataset(pa.table({"a": [2]}), str(place), mode="append").version
    committed = place / "_versions" / f"{version}.manifest"
    return version, committed.rename(committed.with_name("2.manifest-staged"))


@pytest.mark.spec(
    "operations.md#batchdeletetableversions",
    "operations.md#describetableversion",
    "operations.md#listtableversions",
)
def test_manifests_named_in_two_schemes_are_a_broken_table(two_versions: MemoryNamespace) -> None:
    (directory(two_versions) / "_versions" / "3.manifest").write_bytes(b"")
    with pytest.raises(errors.InvalidTableStateError, match="two schemes"):
        numbers(two_versions)


@pytest.mark.spec("operations.md#batchcreatetableversions")
def test_metadata_of_a_version_is_refused_by_name(with_table: MemoryNamespace) -> None:
    version, staged = stage(with_table)
    with pytest.raises(errors.UnsupportedOperationError, match="Metadata"):
        with_table.create_table_version(creation(TABLE, version, staged, metadata={"a": "b"}))
    with_table.create_table_version(creation(TABLE, version, staged, metadata={}))
    assert numbers(with_table) == [1, 2]


def test_a_version_is_created_on_a_branch(with_table: MemoryNamespace) -> None:
    branch = dataset(with_table).create_branch("dev/x", 1)
    branch.delete("a = 1")
    inside = directory(with_table) / "tree/dev/x/_versions"
    committed = inside / name_of(2, Scheme.V2)
    staged = committed.rename(inside / f"{committed.name}-staged")
    with_table.create_table_version(creation(TABLE, 2, staged, branch="dev/x"))
    assert numbers(with_table, branch="dev/x") == [1, 2]
    assert numbers(with_table) == [1]


class LosingFiles(TableFiles):
    """Writes, and loses the reply; or writes twice, as a client does that repeats by itself."""

    twice = False

    def put_new(self, path: str, data: bytes) -> bool:
        done = super().put_new(path, data)
        if self.twice:
            return super().put_new(path, data)
        if done:
            raise errors.ServiceUnavailableError("the reply was lost")
        return done


@pytest.mark.parametrize("twice", [False, True])
def test_a_version_whose_reply_was_lost_is_created_once(
    with_table: MemoryNamespace, twice: bool
) -> None:
    version, staged = stage(with_table)
    record = with_table.server.tables[at("Orders")]
    planned = versions.prepare_creation(
        Table(with_table.connection, record), Staged(version, str(staged))
    )
    files = LosingFiles(TableStorage({}), record.location or "")
    files.twice = twice
    made = replace(planned, directory=VersionDirectory(files)).do()
    assert made.version == 2
    assert numbers(with_table) == [1, 2]


# -- what a version changed ------------------------------------------------------------------------


def id_rows(start: int, end: int) -> pa.Table:
    return pa.table({"id": pa.array(range(start, end), pa.int64()), "v": ["a"] * (end - start)})


def changes(namespace: MemoryNamespace, *versions: int, branch: str | None = None) -> list[Any]:
    table = namespace.tables.load_by_id(TABLE)
    found = [change_of_version(table, each, branch) for each in versions]
    return [(each.operation, each.added, each.removed) for each in found]


def write(namespace: MemoryNamespace, data: pa.Table, mode: str = "append") -> None:
    lance.write_dataset(data, namespace_client=namespace, table_id=TABLE, mode=mode)


@pytest.mark.spec("server.md#versions-on-a-page")
def test_rows_added_and_removed_are_apart(namespace: MemoryNamespace) -> None:
    write(namespace, id_rows(0, 100), "create")
    write(namespace, id_rows(100, 120))
    dataset(namespace).delete("id < 5")
    dataset(namespace).update({"v": "'b'"}, where="id >= 50 AND id < 60")
    merge = dataset(namespace).merge_insert("id")
    merge.when_matched_update_all().when_not_matched_insert_all().execute(id_rows(110, 130))
    dataset(namespace).optimize.compact_files()
    write(namespace, id_rows(0, 7), "overwrite")
    latest = dataset(namespace).version
    assert changes(namespace, *range(1, 6), latest - 1, latest) == [
        ("Overwrite", 100, 0),
        ("Append", 20, 0),
        ("Delete", 0, 5),
        ("Update", 10, 10),
        ("Update", 20, 10),
        ("Rewrite", 0, 0),
        ("Overwrite", 7, 125),
    ]


@pytest.mark.spec("server.md#versions-on-a-page")
def test_a_version_without_the_one_before_has_no_numbers(namespace: MemoryNamespace) -> None:
    for start in range(3):
        write(namespace, id_rows(start, start + 1), "append" if start else "create")
    dataset(namespace).cleanup_old_versions(retain_versions=2)
    assert changes(namespace, 2, 3) == [("Append", None, None), ("Append", 1, 0)]
    with pytest.raises(errors.TableVersionNotFoundError):
        changes(namespace, 1)


@pytest.mark.spec("server.md#versions-on-a-page")
def test_branches_have_changes_of_their_own(namespace: MemoryNamespace) -> None:
    write(namespace, id_rows(0, 9), "create")
    namespace.create_table_branch(api.CreateTableBranchRequest(id=TABLE, name="b"))
    request = api.InsertIntoTableRequest(id=TABLE, branch="b")
    namespace.insert_into_table(request, ipc(id_rows(9, 12)))
    assert changes(namespace, 1, 2, branch="b") == [("Clone", 0, 0), ("Append", 3, 0)]


@pytest.mark.spec("server.md#versions-on-a-page")
def test_rows_that_are_written_for_a_caller_are_recorded_as_its(namespace: MemoryNamespace) -> None:
    with acting_for(Caller("ann", lambda _write: True)):
        namespace.create_table(api.CreateTableRequest(id=TABLE), ipc(id_rows(0, 3)))
        namespace.insert_into_table(api.InsertIntoTableRequest(id=TABLE), ipc(id_rows(3, 5)))
        request = api.CreateTableRequest(id=TABLE, mode="Overwrite")
        namespace.create_table(request, ipc(id_rows(0, 2)))
    namespace.insert_into_table(api.InsertIntoTableRequest(id=TABLE), ipc(id_rows(2, 3)))
    table = namespace.tables.load_by_id(TABLE)
    found = [dict(change_of_version(table, each).properties) for each in range(1, 5)]
    assert found == [{"lance_bridge.principal": "ann"}] * 3 + [{}]


# -- restored versions -----------------------------------------------------------------------------


def restore(ns: MemoryNamespace, version: int, branch: str | None = None) -> str | None:
    request = api.RestoreTableRequest(id=TABLE, version=version, branch=branch)
    return ns.restore_table(request).transaction_id


def delete(ns: MemoryNamespace, *ranges: tuple[int, int], **more: Any) -> Any:
    table = more.pop("table", TABLE)
    parts = [{"start_version": start, "end_version": end} for start, end in ranges]
    answer = Calls(ns).call("batch_delete_table_versions", table, ranges=parts, **more)
    return answer.deleted_count


@pytest.mark.parametrize("branch", [None, "dev"])
def test_a_restored_version_is_a_new_one_with_the_old_rows(
    with_table: MemoryNamespace, branch: str | None
) -> None:
    dataset(with_table).create_branch("dev", 1)
    opened = dataset(with_table)
    (opened if branch is None else opened.checkout_version((branch, None))).delete("a = 0")
    restore(with_table, 1, branch)
    assert numbers(with_table, branch=branch) == [1, 2, 3]
    counted = api.CountTableRowsRequest(id=TABLE, branch=branch)
    assert with_table.count_table_rows(counted).count == 3
    assert numbers(with_table, branch="dev" if branch is None else None) == [1]


@pytest.mark.spec("operations.md#restoretable")
def test_a_missing_version_is_not_restored(two_versions: MemoryNamespace) -> None:
    with pytest.raises(errors.TableVersionNotFoundError, match="version 3"):
        restore(two_versions, 3)
    with pytest.raises(errors.TableBranchNotFoundError, match="'nope'"):
        restore(two_versions, 1, "nope")
    with pytest.raises(errors.InvalidInputError, match="1 or more"):
        restore(two_versions, 0)
    assert numbers(two_versions) == [1, 2]


def test_a_restore_that_fails_changes_nothing(two_versions: MemoryNamespace) -> None:
    place = directory(two_versions)
    (place / "_transactions").rename(place / "elsewhere")
    (place / "_transactions").write_bytes(b"in the way")
    with pytest.raises(errors.ServiceUnavailableError, match="version 1 was not restored"):
        restore(two_versions, 1)
    assert numbers(two_versions) == [1, 2]


@pytest.mark.parametrize(
    ("is_overtaken", "error"),
    [(False, errors.ServiceUnavailableError), (True, errors.ConcurrentModificationError)],
)
def test_a_restore_that_fails_is_a_conflict_only_after_another_commit(
    three_versions: MemoryNamespace,
    monkeypatch: pytest.MonkeyPatch,
    is_overtaken: bool,
    error: type[Exception],
) -> None:

    def fail(_: lance.LanceDataset) -> None:
        if is_overtaken:
            append(three_versions)
        raise RuntimeError("broken")

    monkeypatch.setattr(lance.LanceDataset, "restore", fail)
    with pytest.raises(error):
        restore(three_versions, 1)


# -- delete --------------------------------------------------------------------------------------


@examples(20, share_fixtures=True)
@given(
    st.lists(st.tuples(st.integers(0, 8), st.integers(-1, 9)), max_size=3),
    st.sets(st.integers(1, 6), max_size=2),
)
def test_versions_in_the_ranges_go_or_none_does(
    namespace: MemoryNamespace, ranges: list[tuple[int, int]], tagged: set[int]
) -> None:
    table = [*DATASET, f"t{len(namespace.server.tables)}"]
    build(namespace, 6, table)
    for version in tagged:
        dataset(namespace, table).tags.create(f"v{version}", version)
    every = set(range(1, 7))
    meant = {
        v for v in every for start, end in ranges if start <= v < (LARGEST if end < 0 else end)
    }
    bad_range = any(0 <= end < start for start, end in ranges)
    if bad_range or meant & {6, *tagged}:
        with pytest.raises(errors.InvalidInputError):
            delete(namespace, *ranges, table=table)
        meant = set()
    else:
        assert delete(namespace, *ranges, table=table) == len(meant)
    assert set(numbers(namespace, table)) == every - meant
    for version in every - meant:
        assert dataset(namespace, table, version=version).count_rows() == 2 + version
    assert append(namespace, table).version == 7


def test_a_version_that_a_tag_or_a_branch_refers_to_stays(namespace: MemoryNamespace) -> None:
    build(namespace, 4)
    dataset(namespace).tags.create("t", 2)
    dataset(namespace).create_branch("dev", 1)
    with pytest.raises(errors.InvalidInputError, match="needed by branch 'dev'"):
        delete(namespace, (1, 2))
    with pytest.raises(errors.InvalidInputError, match="needed by tag 't'"):
        delete(namespace, (2, 4))
    assert numbers(namespace) == [1, 2, 3, 4]
    assert delete(namespace, (3, 4)) == 1


def test_versions_of_a_branch_are_deleted_by_themselves(two_versions: MemoryNamespace) -> None:
    dataset(two_versions).tags.create("t", 1)
    branch = dataset(two_versions).create_branch("dev", 1)
    branch.delete("a = 0")
    branch.delete("a = 1")
    assert delete(two_versions, (1, 2), branch="dev") == 1
    assert numbers(two_versions, branch="dev") == [2, 3]
    assert numbers(two_versions) == [1, 2]
    dataset(two_versions).tags.create("own", ("dev", 2))
    with pytest.raises(errors.InvalidInputError, match="tag 'own'"):
        delete(two_versions, (2, 3), branch="dev")


def test_data_of_deleted_versions_stays(two_versions: MemoryNamespace) -> None:
    dataset(two_versions).delete("true")
    before = sorted((directory(two_versions) / "data").iterdir())
    assert delete(two_versions, (0, 3)) == 2
    assert sorted((directory(two_versions) / "data").iterdir()) == before


def test_missing_versions_are_not_counted(two_versions: MemoryNamespace) -> None:
    assert delete(two_versions) == 0
    assert delete(two_versions, (0, 1), (7, 9), (5, -1)) == 0
    assert delete(two_versions, (0, 2), (1, 2)) == 1
    assert delete(two_versions, (0, 2)) == 0
    two_versions.declare_table(api.DeclareTableRequest(id=[*DATASET, "empty"]))
    assert delete(two_versions, (0, -1), table=[*DATASET, "empty"]) == 0


def plan_deletion(namespace: MemoryNamespace) -> versions.Deletion:
    """Return the deletion of versions 1 and 2."""
    table = Table(namespace.connection, namespace.server.tables[at("Orders")])
    return versions.prepare_deletion(table, None, versions.check_ranges([(1, 3)]))


def test_a_version_that_is_tagged_meanwhile_comes_back(three_versions: MemoryNamespace) -> None:
    planned = plan_deletion(three_versions)
    dataset(three_versions).tags.create("late", 2)
    with pytest.raises(errors.ConcurrentModificationError, match="tag 'late'"):
        versions.delete(planned)
    assert dataset(three_versions, version="late").count_rows() == 4
    assert numbers(three_versions) == [1, 2, 3]


def test_a_version_that_is_tagged_during_a_deletion_that_fails_comes_back(
    three_versions: MemoryNamespace, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Who tagged it has seen it, and does not check again."""
    remove = TableFiles.remove

    def remove_in_part(files: TableFiles, paths: Sequence[str]) -> None:
        tag = api.CreateTableTagRequest(id=TABLE, tag="late", version=1)
        three_versions.create_table_tag(tag)
        remove(files, paths[:1])
        raise errors.ServiceUnavailableError("away")

    with monkeypatch.context() as patch:
        patch.setattr(TableFiles, "remove", remove_in_part)
        with pytest.raises(errors.ServiceUnavailableError, match="away"):
            delete(three_versions, (1, 3))
    assert dataset(three_versions, version="late").count_rows() == 3
    assert numbers(three_versions) == [1, 2, 3]


def test_versions_are_restored_where_references_cannot_be_read(
    three_versions: MemoryNamespace,
) -> None:
    dataset(three_versions).tags.create("t", 3)
    planned = plan_deletion(three_versions)
    (directory(three_versions) / "_refs/tags/t.json").write_bytes(b"broken")
    with pytest.raises(errors.ServiceUnavailableError, match="Tags or branches"):
        versions.delete(planned)
    assert numbers(three_versions) == [1, 2, 3]


def test_many_versions_are_deleted_in_parts(
    namespace: MemoryNamespace, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(versions, "_CHUNK_FILES", 2)
    removed: list[int] = []
    delete_chunk = versions._delete_chunk

    def remember(planned: versions.Deletion, chunk: Iterable[Manifest]) -> None:
        parts = list(chunk)
        removed.append(len(parts))
        delete_chunk(planned, parts)

    monkeypatch.setattr(versions, "_delete_chunk", remember)
    build(namespace, 6)
    assert delete(namespace, (0, 6)) == 5
    assert removed == [2, 2, 1]
    assert numbers(namespace) == [6]


def test_a_table_can_be_recreated_over_deleted_versions(two_versions: MemoryNamespace) -> None:
    delete(two_versions, (1, 2))
    assert create(two_versions, TABLE, mode="Overwrite").version == 3
    assert numbers(two_versions) == [2, 3]
