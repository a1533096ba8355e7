"""Versions of a table: what is listed and described, and the creation of one."""

from __future__ import annotations

import shutil
from typing import Any

import lance_namespace as api
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis_profiles import examples
from lance_namespace import errors
from lance_namespace_urllib3_client.models import TableVersion
from obstore.store import MemoryStore

from lance_bridge.storage.manifest_content import version_inside
from lance_bridge.storage.manifests import Scheme, VersionDirectory, name_of, parse_name
from lance_bridge.storage.store import TableStorage
from lance_bridge.storage.table_files import TableFiles

from .building import TABLE, at
from .memory_catalog import MemoryNamespace, MemoryServer
from .staging import build, dataset, directory, numbers, oracle, stage

pytestmark = pytest.mark.quick

# -- list and describe ---------------------------------------------------------------------------


@pytest.mark.parametrize("more", [{}, {"descending": True}, {"branch": "dev"}, {"branch": "main"}])
def test_versions_are_listed_as_pylance_lists_them(
    namespace: MemoryNamespace, more: dict[str, Any]
) -> None:
    build(namespace, 3)
    dataset(namespace).create_branch("dev", 2).delete("a = 1")
    listed = namespace.list_table_versions(api.ListTableVersionsRequest(id=TABLE, **more))
    theirs = oracle(namespace).list_table_versions(
        api.ListTableVersionsRequest(id=TABLE[-1:], **more)
    )
    assert len(listed.versions) == (2 if more.get("branch") == "dev" else 3)
    assert listed.versions == theirs.versions


@pytest.mark.parametrize("more", [{}, {"version": 1}, {"branch": "dev"}, {"version": 2}])
def test_a_version_is_described_as_pylance_describes_it(
    namespace: MemoryNamespace, more: dict[str, Any]
) -> None:
    build(namespace, 2)
    dataset(namespace).create_branch("dev", 1)
    ours = namespace.describe_table_version(api.DescribeTableVersionRequest(id=TABLE, **more))
    theirs: Any = oracle(namespace).describe_table_version({"id": TABLE[-1:], **more})
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


def test_a_token_of_one_listing_is_not_one_of_another(namespace: MemoryNamespace) -> None:
    build(namespace, 3)
    request = api.ListTableVersionsRequest(id=TABLE, limit=1)
    token = namespace.list_table_versions(request).page_token
    with pytest.raises(errors.InvalidInputError, match="page_token"):
        numbers(namespace, page_token=token, descending=True)


def test_a_table_whose_directory_is_gone_is_missing(namespace: MemoryNamespace) -> None:
    build(namespace, 1)
    shutil.rmtree(directory(namespace))
    with pytest.raises(errors.InvalidTableStateError, match="is missing"):
        numbers(namespace)


@pytest.mark.parametrize("branch", ["nope", "../main", "a//b", ""])
def test_versions_of_a_missing_branch_are_not_found(
    namespace: MemoryNamespace, branch: str
) -> None:
    build(namespace, 1)
    with pytest.raises(errors.TableBranchNotFoundError):
        numbers(namespace, branch=branch)


def test_files_that_are_no_versions_are_not_listed(namespace: MemoryNamespace) -> None:
    build(namespace, 2)
    stage(namespace)
    inside = directory(namespace) / "_versions"
    (inside / "d123.manifest").write_bytes(b"detached")
    (inside / "readme.txt").write_bytes(b"")
    assert numbers(namespace) == [1, 2]


@pytest.mark.spec("operations.md#errors-of-every-operation")
def test_versions_that_another_implementation_manages_are_left_to_it(
    namespace: MemoryNamespace, server: MemoryServer
) -> None:
    build(namespace, 1)
    record = server.tables[at("Orders")]
    managed = {**record.properties, "managed_by": "impl"}
    server.tables[at("Orders")] = record.with_properties(managed)
    with pytest.raises(errors.UnsupportedOperationError, match="managed_by=impl"):
        numbers(namespace)


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


def test_a_manifest_holds_its_version(namespace: MemoryNamespace) -> None:
    build(namespace, 3)
    for version in (1, 2, 3):
        name = name_of(version, Scheme.V2)
        assert version_inside((directory(namespace) / "_versions" / name).read_bytes()) == version
