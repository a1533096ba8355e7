"""Versions of a table: what is listed and described, what each changed, and how one is made."""

from __future__ import annotations

import shutil
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
from lance_bridge.dataset import change_of_version
from lance_bridge.dataset.history import versions
from lance_bridge.storage.manifest_content import version_inside
from lance_bridge.storage.manifests import Scheme, VersionDirectory, name_of, parse_name
from lance_bridge.storage.staging import Staged
from lance_bridge.storage.store import TableStorage
from lance_bridge.storage.table_files import TableFiles
from lance_bridge.table import Table
from lance_bridge.testing.build import ipc
from lance_bridge.testing.concurrency import race

from .building import DATASET, TABLE, at, count_rows, winner_of
from .managing import another
from .memory_catalog import MemoryNamespace
from .staging import append, build, creation, dataset, directory, numbers, oracle, stage

pytestmark = pytest.mark.quick

# -- list and describe ---------------------------------------------------------------------------


@pytest.mark.parametrize("more", [{}, {"descending": True}, {"branch": "dev"}, {"branch": "main"}])
def test_versions_are_listed_as_pylance_lists_them(
    three_versions: MemoryNamespace, more: dict[str, Any]
) -> None:
    dataset(three_versions).create_branch("dev", 2).delete("a = 1")
    listed = three_versions.list_table_versions(api.ListTableVersionsRequest(id=TABLE, **more))
    theirs = oracle(three_versions).list_table_versions(
        api.ListTableVersionsRequest(id=TABLE[-1:], **more)
    )
    assert len(listed.versions) == (2 if more.get("branch") == "dev" else 3)
    assert listed.versions == theirs.versions


@pytest.mark.parametrize("more", [{}, {"version": 1}, {"branch": "dev"}, {"version": 2}])
def test_a_version_is_described_as_pylance_describes_it(
    two_versions: MemoryNamespace, more: dict[str, Any]
) -> None:
    dataset(two_versions).create_branch("dev", 1)
    ours = two_versions.describe_table_version(api.DescribeTableVersionRequest(id=TABLE, **more))
    theirs: Any = oracle(two_versions).describe_table_version({"id": TABLE[-1:], **more})
    assert ours.version == TableVersion.model_validate(theirs["version"])


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
