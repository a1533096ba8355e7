"""Implementation-managed tables: what a request to create, list or delete versions is answered."""

from __future__ import annotations

from typing import Any

import lance_namespace as api
import pytest
from lance_namespace import errors
from lance_namespace_urllib3_client.models import VersionRange

from lance_bridge.catalog import LATEST
from lance_bridge.managed_state import State
from lance_bridge.storage import manifests

from .building import TABLE, raising
from .managing import (
    KEY,
    able,  # noqa: F401 - a fixture
    append,
    append_past_the_catalog,
    commit,
    create_managed,
    directory,
    rows,
    state,
    versions,
)
from .memory_catalog import MemoryNamespace, MemoryServer
from .staging import stage

pytestmark = [pytest.mark.quick, pytest.mark.usefixtures("able")]


@pytest.mark.spec("managed.md#the-steps-of-a-commit")
def test_the_same_request_again_is_no_conflict(
    namespace: MemoryNamespace, server: MemoryServer
) -> None:
    create_managed(namespace)
    version, staged = stage(namespace)
    first = commit(namespace, version, str(staged))
    effects = len(server.effects)
    assert commit(namespace, version, str(staged)) == first
    assert len(server.effects) == effects


@pytest.mark.parametrize(
    ("change", "error"),
    [
        ({"manifest_path": "elsewhere/x.manifest-1"}, errors.InvalidInputError),
        ({"manifest_size": 3}, errors.InvalidInputError),
        ({"e_tag": '"another"'}, errors.InvalidInputError),
        ({"naming_scheme": "V1"}, errors.InvalidInputError),
        ({"metadata": {"a": "b"}}, errors.UnsupportedOperationError),
        ({"branch": "b"}, errors.TableBranchNotFoundError),
        ({"version": 0}, errors.InvalidInputError),
    ],
)
def test_a_request_that_is_wrong_commits_nothing(
    namespace: MemoryNamespace, server: MemoryServer, change: dict[str, Any], error: type[Exception]
) -> None:
    create_managed(namespace)
    version, staged = stage(namespace)
    request = {"id": TABLE, "version": version, "manifest_path": str(staged), **change}
    with pytest.raises(error):
        namespace.create_table_version(api.CreateTableVersionRequest(**request))
    assert state(server).version == 1
    assert staged.exists()


def test_the_latest_version_is_listed_without_listing_all(
    namespace: MemoryNamespace, monkeypatch: pytest.MonkeyPatch
) -> None:
    create_managed(namespace)
    latest = api.ListTableVersionsRequest(id=TABLE, limit=1, descending=True)
    alone = namespace.list_table_versions(latest)
    assert ([each.version for each in alone.versions], alone.page_token) == ([1], None)
    append(namespace, 7)
    refuse = raising(AssertionError("all versions were listed"))
    with monkeypatch.context() as patched:
        patched.setattr(manifests.VersionDirectory, "list", refuse)
        page = namespace.list_table_versions(latest)
    assert [each.version for each in page.versions] == [2]
    rest = namespace.list_table_versions(
        api.ListTableVersionsRequest(id=TABLE, descending=True, page_token=page.page_token)
    )
    assert [each.version for each in rest.versions] == [1]


@pytest.mark.spec("managed.md#operations-on-managed-tables")
def test_versions_are_deleted_up_to_the_latest(namespace: MemoryNamespace) -> None:
    create_managed(namespace)
    append(namespace, 7)
    append(namespace, 8)
    ranges = [VersionRange(start_version=0, end_version=3)]
    request = api.BatchDeleteTableVersionsRequest(id=TABLE, ranges=ranges)
    assert namespace.batch_delete_table_versions(request).deleted_count == 2
    assert versions(namespace) == [3]
    everything = [VersionRange(start_version=0, end_version=-1)]
    with pytest.raises(errors.InvalidInputError, match="latest"):
        namespace.batch_delete_table_versions(
            api.BatchDeleteTableVersionsRequest(id=TABLE, ranges=everything)
        )
    assert rows(namespace) == [0, 1, 2, 7, 8]


@pytest.mark.spec("common.md#describetable")
def test_an_entry_whose_state_is_not_ours_is_an_invalid_state(
    namespace: MemoryNamespace, server: MemoryServer
) -> None:
    create_managed(namespace)
    for text in ("nonsense", "[1]", '{"version": "1"}', '{"version": 1, "staged": "../x"}'):
        found = server.tables[KEY]
        server.tables[KEY] = found.with_properties({**found.properties, LATEST: text})
        with pytest.raises(errors.InvalidTableStateError, match="latest version"):
            namespace.count_table_rows(api.CountTableRowsRequest(id=TABLE))
        with pytest.raises(errors.InvalidTableStateError, match="of its latest version"):
            namespace.describe_table(api.DescribeTableRequest(id=TABLE))


@pytest.mark.parametrize(
    "given", [State(0), State(7, "00.manifest-a"), State(7, "", 5), State(3, "x", 1763759000000)]
)
def test_a_state_is_read_as_it_was_written(given: State) -> None:
    assert State.from_text(given.to_text()) == given


@pytest.mark.spec("managed.md#out-of-band-versions")
def test_a_version_that_was_written_past_the_catalog_is_not_shown(
    namespace: MemoryNamespace, server: MemoryServer
) -> None:
    create_managed(namespace)
    append_past_the_catalog(server, 666)
    assert rows(namespace) == [0, 1, 2]
    assert versions(namespace) == [1]
    for request in (api.DescribeTableRequest, api.CountTableRowsRequest):
        call = "describe_table" if request is api.DescribeTableRequest else "count_table_rows"
        with pytest.raises(errors.TableVersionNotFoundError):
            getattr(namespace, call)(request(id=TABLE, version=2))
    with pytest.raises(errors.TableVersionNotFoundError):
        namespace.describe_table_version(api.DescribeTableVersionRequest(id=TABLE, version=2))


@pytest.mark.spec("server.md#governed-commits")
def test_no_older_version_takes_the_place_of_a_latest_that_is_missing(
    namespace: MemoryNamespace, server: MemoryServer
) -> None:
    create_managed(namespace)
    append(namespace, 7)
    latest = min((directory(server) / "_versions").glob("*.manifest"))
    content = latest.read_bytes()
    latest.unlink()
    with pytest.raises(errors.InvalidTableStateError, match="manifest of version 2, the latest"):
        versions(namespace)
    with pytest.raises(ValueError, match="manifest of version 2, the latest"):
        rows(namespace)
    with pytest.raises(OSError, match="manifest of version 2, the latest"):
        append(namespace, 8)
    latest.write_bytes(content)
    assert rows(namespace) == [0, 1, 2, 7]
    latest.unlink()
    namespace.drop_table(api.DropTableRequest(id=TABLE))
