"""Restoring a version, and deleting versions."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import lance
import lance_namespace as api
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis_profiles import examples
from lance_namespace import errors

from lance_bridge.dataset.history import versions
from lance_bridge.storage.manifests import Manifest
from lance_bridge.storage.table_files import TableFiles
from lance_bridge.table import Table
from lance_bridge.testing.calls import Calls

from .building import DATASET, TABLE, at, create
from .memory_catalog import MemoryNamespace
from .staging import append, build, dataset, directory, numbers

pytestmark = [pytest.mark.quick, pytest.mark.spec("operations.md#batchdeletetableversions")]

LARGEST = 2**64


def restore(ns: MemoryNamespace, version: int, branch: str | None = None) -> str | None:
    request = api.RestoreTableRequest(id=TABLE, version=version, branch=branch)
    return ns.restore_table(request).transaction_id


def delete(ns: MemoryNamespace, *ranges: tuple[int, int], **more: Any) -> Any:
    table = more.pop("table", TABLE)
    parts = [{"start_version": start, "end_version": end} for start, end in ranges]
    answer = Calls(ns).call("batch_delete_table_versions", table, ranges=parts, **more)
    return answer.deleted_count


# -- restore -------------------------------------------------------------------------------------


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
