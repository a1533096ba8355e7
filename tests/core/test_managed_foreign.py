"""What is written past the catalog of an implementation-managed table: never shown, never lost."""

from __future__ import annotations

import re
from typing import Any

import lance
import lance_namespace as api
import pytest
from lance_namespace import errors

from lance_bridge.catalog import MANAGED_BY
from lance_bridge.dataset.maintenance import compact
from lance_bridge.managed import versions as directories
from lance_bridge.storage.table_files import TableFiles
from lance_bridge.table import Table

from .building import TABLE, create, raising
from .managing import (
    KEY,
    able,  # noqa: F401 - a fixture
    another,
    append,
    append_past_the_catalog,
    commit,
    create_managed,
    directory,
    insert,
    meanwhile,
    rows,
    state,
    table,
)
from .memory_catalog import MemoryNamespace, MemoryServer
from .staging import stage

pytestmark = [
    pytest.mark.quick,
    pytest.mark.usefixtures("able"),
    pytest.mark.spec("managed.md#out-of-band-versions"),
]


def test_to_manage_a_table_again_adopts_nothing(
    namespace: MemoryNamespace, server: MemoryServer
) -> None:
    create(namespace, TABLE)
    namespace.manage_table(TABLE)
    append_past_the_catalog(server, 8)
    namespace.manage_table(TABLE)
    assert len(namespace.list_out_of_band_versions(TABLE).versions) == 1
    assert rows(namespace) == [0, 1, 2]


@pytest.mark.spec("operations.md#adopt_out_of_band_versions")
def test_there_may_be_nothing_to_adopt_or_discard(namespace: MemoryNamespace) -> None:
    create_managed(namespace)
    with pytest.raises(errors.InvalidInputError, match="has no version that was not committed"):
        namespace.adopt_out_of_band_versions(TABLE)
    assert namespace.discard_out_of_band_versions(TABLE) == 0


@pytest.mark.spec("operations.md#release_table")
def test_a_table_is_not_released_with_versions_that_would_show_up(
    namespace: MemoryNamespace, server: MemoryServer
) -> None:
    create_managed(namespace)
    append_past_the_catalog(server, 8)
    with pytest.raises(errors.InvalidTableStateError, match="adopt or discard"):
        namespace.release_table(TABLE)
    assert server.tables[KEY].properties[MANAGED_BY] == "impl"
    namespace.discard_out_of_band_versions(TABLE)
    namespace.release_table(TABLE)
    assert rows(namespace) == [0, 1, 2]


def test_writes_through_the_namespace_win_over_those_past_it(
    namespace: MemoryNamespace, server: MemoryServer
) -> None:
    create_managed(namespace)
    append_past_the_catalog(server, 8)
    insert(namespace)
    assert rows(namespace) == [0, 0, 1, 2]
    aside = namespace.list_out_of_band_versions(TABLE).quarantined
    assert len(aside) == 1
    assert (directory(server) / "_versions" / aside[0]).exists()
    with pytest.raises(errors.InvalidInputError, match="has no version that was not committed"):
        namespace.adopt_out_of_band_versions(TABLE)


def test_a_dataset_that_was_open_before_fails_once_and_is_then_taken(
    namespace: MemoryNamespace, server: MemoryServer
) -> None:
    create_managed(namespace)
    opened = lance.dataset(namespace_client=namespace, table_id=TABLE)
    append_past_the_catalog(server, 8)
    with pytest.raises(OSError, match="Commit result for version 3 is unknown"):
        opened.insert(table(9))
    assert rows(namespace) == [0, 1, 2]
    opened.insert(table(9))
    assert rows(namespace) == [0, 1, 2, 9]


@pytest.mark.spec("operations.md#adopt_out_of_band_versions")
def test_what_was_set_aside_can_be_adopted_until_a_commit_takes_its_place(
    namespace: MemoryNamespace, server: MemoryServer
) -> None:
    create_managed(namespace)
    append_past_the_catalog(server, 8)
    append_past_the_catalog(server, 9)
    assert rows(namespace) == [0, 1, 2]
    found = namespace.list_out_of_band_versions(TABLE)
    assert (found.versions, found.quarantined_versions) == ((), (3, 2))
    assert namespace.adopt_out_of_band_versions(TABLE) == 3
    assert rows(namespace) == [0, 1, 2, 8, 9]
    assert namespace.list_out_of_band_versions(TABLE).quarantined == ()
    append_past_the_catalog(server, 10)
    assert append(namespace, 11).version == 4
    with pytest.raises(errors.InvalidInputError, match="has no version that was not committed"):
        namespace.adopt_out_of_band_versions(TABLE)


@pytest.mark.spec("managed.md#operations-on-managed-tables")
def test_a_late_deletion_of_what_was_set_aside_takes_no_commit_away(
    namespace: MemoryNamespace, server: MemoryServer
) -> None:
    create_managed(namespace)
    append_past_the_catalog(server, 8)
    assert append(namespace, 9).version == 2
    [aside] = namespace.list_out_of_band_versions(TABLE).quarantined
    final = directory(server) / "_versions" / aside.replace("-foreign", "")
    final.unlink()
    assert rows(namespace) == [0, 1, 2, 9]
    final.unlink()
    assert append(namespace, 10).version == 3
    assert rows(namespace) == [0, 1, 2, 9, 10]
    assert namespace.count_table_rows(api.CountTableRowsRequest(id=TABLE, version=2)).count == 4


@pytest.mark.spec("operations.md#adopt_out_of_band_versions")
def test_two_versions_that_were_set_aside_from_one_place_are_not_adopted(
    namespace: MemoryNamespace, server: MemoryServer
) -> None:
    create_managed(namespace)
    for value in (8, 9):
        append_past_the_catalog(server, value)
        assert rows(namespace) == [0, 1, 2]
    with pytest.raises(errors.InvalidTableStateError, match="2, 2 do not continue"):
        namespace.adopt_out_of_band_versions(TABLE)
    assert rows(namespace) == [0, 1, 2]


def test_a_reader_without_write_permission_does_not_block_commits(
    namespace: MemoryNamespace, server: MemoryServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    create_managed(namespace)
    append_past_the_catalog(server, 8)
    before = server.tables[KEY]
    server.fault = raising(errors.PermissionDeniedError("read only"))
    monkeypatch.setattr(TableFiles, "put_own", server.fault)
    assert rows(namespace) == [0, 1, 2]
    assert server.tables[KEY] == before
    assert len(namespace.list_out_of_band_versions(TABLE).versions) == 1


def test_a_commit_that_was_built_on_what_lost_is_refused(
    namespace: MemoryNamespace, monkeypatch: pytest.MonkeyPatch, server: MemoryServer
) -> None:
    monkeypatch.setattr(directories, "REBASE_SECONDS", 0)
    _commit_between(namespace, server, monkeypatch)
    assert rows(namespace) == [0, 1, 2, 100]
    append(namespace, 8)
    assert rows(namespace) == [0, 1, 2, 8, 100]


def test_a_commit_right_after_one_that_had_a_rival_is_taken_at_once(
    namespace: MemoryNamespace, monkeypatch: pytest.MonkeyPatch, server: MemoryServer
) -> None:
    monkeypatch.setattr(directories, "_DATA_FILE", re.compile(rb"(?!)"))
    _commit_between(namespace, server, monkeypatch)
    assert rows(namespace) == [0, 1, 2, 100]
    insert(namespace)
    assert rows(namespace) == [0, 0, 1, 2, 100]


def test_a_compaction_right_after_a_commit_that_had_a_rival_is_taken_at_once(
    namespace: MemoryNamespace, monkeypatch: pytest.MonkeyPatch, server: MemoryServer
) -> None:
    monkeypatch.setattr(directories, "REBASE_SECONDS", 1_000_000.0)
    create_managed(namespace)
    append_past_the_catalog(server, 8)
    insert(namespace)
    assert len(namespace.list_out_of_band_versions(TABLE).quarantined) == 1
    connection = namespace.connection
    assert compact(Table(connection, connection.catalog.load_table(KEY))).version > 2
    assert rows(namespace) == [0, 0, 1, 2]


def test_pylance_s_own_compaction_is_taken_at_once(
    namespace: MemoryNamespace, monkeypatch: pytest.MonkeyPatch, server: MemoryServer
) -> None:
    monkeypatch.setattr(directories, "REBASE_SECONDS", 1_000_000.0)
    create_managed(namespace)
    append(namespace, 7)
    append_past_the_catalog(server, 8)
    opened = lance.dataset(namespace_client=namespace, table_id=TABLE)
    # It reserves fragments in a version of its own, and is rebased on that.
    assert opened.optimize.compact_files().fragments_removed == 2
    assert rows(namespace) == [0, 1, 2, 7]
    assert len(opened.get_fragments()) == 1
    assert state(server).version == 4


def _commit_between(
    namespace: MemoryNamespace, server: MemoryServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Have a writer build on a foreign version, and another commit before it does."""
    create_managed(namespace)
    version, staged = stage(namespace)
    other = another(namespace)
    opened = lance.dataset(namespace_client=other, table_id=TABLE)
    append_past_the_catalog(server, 7)
    create_version = MemoryNamespace.create_table_version

    def after_the_other(ns: MemoryNamespace, request: Any) -> Any:
        if ns is other:
            monkeypatch.setattr(MemoryNamespace, "create_table_version", create_version)
            commit(namespace, version, str(staged))
        return create_version(ns, request)

    monkeypatch.setattr(MemoryNamespace, "create_table_version", after_the_other)
    with pytest.raises(OSError, match="is unknown"):
        lance.write_dataset(table(8), opened, mode="append")


def test_a_write_past_the_catalog_that_comes_between_loses(
    namespace: MemoryNamespace, server: MemoryServer
) -> None:
    create_managed(namespace)
    meanwhile(server, "after", lambda: append_past_the_catalog(server, 666))
    insert(namespace)
    assert rows(namespace) == [0, 0, 1, 2]
    assert len(namespace.list_out_of_band_versions(TABLE).quarantined) == 1
    insert(namespace)
    assert rows(namespace) == [0, 0, 0, 1, 2]


def test_a_tag_of_what_was_written_past_the_catalog_leads_nowhere(
    namespace: MemoryNamespace, server: MemoryServer
) -> None:
    create_managed(namespace)
    append_past_the_catalog(server, 8)
    lance.dataset(str(directory(server))).tags.create("foreign", 2)
    namespace.create_table_tag(api.CreateTableTagRequest(id=TABLE, tag="own", version=1))
    with pytest.raises(errors.TableVersionNotFoundError):
        namespace.describe_table(api.DescribeTableRequest(id=TABLE, tag="foreign"))
    found = namespace.describe_table(
        api.DescribeTableRequest(id=TABLE, tag="own", load_detailed_metadata=True)
    )
    assert found.version == 1
    with pytest.raises(errors.TableTagNotFoundError):
        namespace.describe_table(api.DescribeTableRequest(id=TABLE, tag="none"))
