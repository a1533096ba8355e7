"""The creation of a version: a staged manifest becomes the next one, or nothing happens."""

from __future__ import annotations

import shutil
from dataclasses import replace
from pathlib import Path

import lance
import lance_namespace as api
import pyarrow as pa
import pytest
from lance_namespace import errors

from lance_bridge.dataset.history import versions
from lance_bridge.storage.manifests import Scheme, VersionDirectory, name_of
from lance_bridge.storage.staging import Staged
from lance_bridge.storage.store import TableStorage
from lance_bridge.storage.table_files import TableFiles
from lance_bridge.table import Table
from lance_bridge.testing.concurrency import race

from .building import DATASET, TABLE, at, count_rows, winner_of
from .managing import another
from .memory_catalog import MemoryNamespace, MemoryServer
from .staging import append, build, creation, dataset, directory, numbers, stage

pytestmark = [pytest.mark.quick, pytest.mark.spec("operations.md#createtableversion")]


def test_the_first_version_completes_a_declared_table(namespace: MemoryNamespace) -> None:
    build(namespace, 1)
    other = [*DATASET, "other"]
    namespace.declare_table(api.DeclareTableRequest(id=other))
    place = directory(namespace, other)
    shutil.copytree(directory(namespace), place, dirs_exist_ok=True)
    only = next((place / "_versions").glob("*.manifest"))
    staged = only.rename(only.with_name(f"{only.name}-staged"))
    namespace.create_table_version(creation(other, 1, staged))
    assert numbers(namespace, other) == [1]
    assert count_rows(namespace, other) == 3


def test_only_the_next_version_can_be_created(namespace: MemoryNamespace) -> None:
    build(namespace, 2)
    version, staged = stage(namespace)
    for number in (1, 2, 4):
        with pytest.raises(errors.ConcurrentModificationError, match="next version is 3"):
            namespace.create_table_version(creation(TABLE, number, staged))
    assert numbers(namespace) == [1, 2]
    assert namespace.create_table_version(creation(TABLE, version, staged)).version
    assert count_rows(namespace, TABLE) == 5


def test_of_several_creators_of_one_version_one_wins(namespace: MemoryNamespace) -> None:
    build(namespace, 1)
    staged = [stage(namespace, value=1000 + number) for number in range(4)]

    def attempt(number: int) -> object:
        return another(namespace).create_table_version(creation(TABLE, *staged[number]))

    won = winner_of(race(attempt, 4), errors.ConcurrentModificationError)
    assert dataset(namespace).to_table()["a"].to_pylist() == [0, 1, 2, 1000 + won]


def test_the_same_creation_again_is_answered_alike(namespace: MemoryNamespace) -> None:
    build(namespace, 1)
    version, staged = stage(namespace)
    content = staged.read_bytes()
    first = namespace.create_table_version(creation(TABLE, version, staged))
    staged.write_bytes(content)
    again = namespace.create_table_version(creation(TABLE, version, staged))
    assert again == first
    assert numbers(namespace) == [1, 2]


def refused(namespace: MemoryNamespace, request: api.CreateTableVersionRequest, why: str) -> None:
    before = sorted(path.name for path in (directory(namespace) / "_versions").iterdir())
    with pytest.raises(errors.InvalidInputError, match=why):
        namespace.create_table_version(request)
    assert sorted(path.name for path in (directory(namespace) / "_versions").iterdir()) == before


def test_a_manifest_that_is_not_the_one_meant_is_refused(namespace: MemoryNamespace) -> None:
    build(namespace, 1)
    version, staged = stage(namespace)
    refused(namespace, creation(TABLE, 2, staged.with_name("absent")), "no staged manifest")
    refused(namespace, creation(TABLE, 2, staged, manifest_size=1), "bytes, not 1")
    refused(namespace, creation(TABLE, 2, staged, e_tag='"x"'), "e_tag")
    refused(namespace, creation(TABLE, 0, staged), "1 or more")
    append(namespace)
    refused(namespace, creation(TABLE, 3, staged), f"of version {version}, and not of version 3")
    staged.write_bytes(b"something else")
    refused(namespace, creation(TABLE, 3, staged), "not a Lance manifest")


def test_a_manifest_outside_of_the_table_is_refused(
    namespace: MemoryNamespace, tmp_path: Path
) -> None:
    build(namespace, 1)
    other = [*DATASET, "other"]
    build(namespace, 1, other)
    _, staged = stage(namespace, other)
    first = next((directory(namespace) / "_versions").glob("*.manifest"))
    refused(namespace, creation(TABLE, 2, staged), "not a file in")
    refused(namespace, creation(TABLE, 2, tmp_path / "m"), "not a file in")
    refused(namespace, creation(TABLE, 2, first), "a version already")


def test_a_manifest_is_named_like_the_others_of_its_table(namespace: MemoryNamespace) -> None:
    build(namespace, 1)
    version, staged = stage(namespace)
    refused(namespace, creation(TABLE, version, staged, naming_scheme="V1"), "unreadable")
    refused(namespace, creation(TABLE, version, staged, naming_scheme="V3"), "V1 or V2")


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
def test_manifests_named_in_two_schemes_are_a_broken_table(namespace: MemoryNamespace) -> None:
    build(namespace, 2)
    (directory(namespace) / "_versions" / "3.manifest").write_bytes(b"")
    with pytest.raises(errors.InvalidTableStateError, match="two schemes"):
        numbers(namespace)


@pytest.mark.spec("operations.md#batchcreatetableversions")
def test_metadata_of_a_version_is_refused_by_name(namespace: MemoryNamespace) -> None:
    build(namespace, 1)
    version, staged = stage(namespace)
    with pytest.raises(errors.UnsupportedOperationError, match="Metadata"):
        namespace.create_table_version(creation(TABLE, version, staged, metadata={"a": "b"}))
    namespace.create_table_version(creation(TABLE, version, staged, metadata={}))
    assert numbers(namespace) == [1, 2]


def test_a_version_is_created_on_a_branch(namespace: MemoryNamespace) -> None:
    build(namespace, 1)
    branch = dataset(namespace).create_branch("dev/x", 1)
    branch.delete("a = 1")
    inside = directory(namespace) / "tree/dev/x/_versions"
    committed = inside / name_of(2, Scheme.V2)
    staged = committed.rename(inside / f"{committed.name}-staged")
    namespace.create_table_version(creation(TABLE, 2, staged, branch="dev/x"))
    assert numbers(namespace, branch="dev/x") == [1, 2]
    assert numbers(namespace) == [1]


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
    namespace: MemoryNamespace, server: MemoryServer, twice: bool
) -> None:
    build(namespace, 1)
    version, staged = stage(namespace)
    record = server.tables[at("Orders")]
    planned = versions.prepare_creation(
        Table(namespace.connection, record), Staged(version, str(staged))
    )
    files = LosingFiles(TableStorage({}), record.location or "")
    files.twice = twice
    made = replace(planned, directory=VersionDirectory(files)).do()
    assert made.version == 2
    assert numbers(namespace) == [1, 2]
