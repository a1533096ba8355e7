"""Implementation-managed tables: every commit goes through the catalog, whatever fails on the way.

The catalog is the one in memory: what is shown is what core does with a catalog that compares and
sets. That real catalogs do is shown with the adapters.
"""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta

import lance
import lance_namespace as api
import pytest
from lance_namespace import errors

from lance_bridge.errors import OutcomeUnknownError
from lance_bridge.managed import versions as directories
from lance_bridge.table import Table

from .building import TABLE, create, raising, stream
from .managing import (
    KEY,
    MANAGED,
    able,  # noqa: F401 - a fixture
    another,
    append,
    commit,
    create_managed,
    directory,
    leave_unfinished,
    meanwhile,
    rows,
    state,
    table,
    versions,
)
from .memory_catalog import MemoryNamespace, MemoryServer, Moment
from .mortality import Death
from .staging import stage

pytestmark = [pytest.mark.quick, pytest.mark.usefixtures("able")]


def manifest_files(server: MemoryServer) -> list[str]:
    return sorted(p.name for p in (directory(server) / "_versions").glob("*.manifest*"))


@pytest.mark.spec(
    "clients.md#which-writers-commit-through-the-catalog", "managed.md#operations-on-managed-tables"
)
def test_every_operation_that_changes_rows_commits_through_the_catalog(
    namespace: MemoryNamespace, server: MemoryServer
) -> None:
    create_managed(namespace)
    namespace.insert_into_table(api.InsertIntoTableRequest(id=TABLE), stream(2))
    namespace.update_table(
        api.UpdateTableRequest(id=TABLE, updates=[["a", "a + 10"]], predicate="a = 0")
    )
    namespace.delete_from_table(api.DeleteFromTableRequest(id=TABLE, predicate="a = 1"))
    namespace.merge_insert_into_table(
        api.MergeInsertIntoTableRequest(id=TABLE, on=["a"], when_not_matched_insert_all=True),
        stream(4),
    )
    namespace.restore_table(api.RestoreTableRequest(id=TABLE, version=1))
    create(namespace, TABLE, 5, mode="Overwrite")
    namespace.insert_into_table(api.InsertIntoTableRequest(id=TABLE, mode="overwrite"), stream(1))
    assert state(server).version == 8
    assert versions(namespace) == list(range(1, 9))
    assert rows(namespace) == [0]
    counted = [
        namespace.count_table_rows(api.CountTableRowsRequest(id=TABLE, version=v)).count
        for v in range(1, 9)
    ]
    assert counted == [3, 5, 5, 3, 6, 3, 5, 1]


# -- crashes and lost replies ----------------------------------------------------------------------


@pytest.mark.spec("managed.md#the-steps-of-a-commit")
@pytest.mark.parametrize("step", ["before the final name", "before the staged file is deleted"])
def test_a_version_whose_writer_died_is_read_and_built_upon(
    namespace: MemoryNamespace, server: MemoryServer, monkeypatch: pytest.MonkeyPatch, step: str
) -> None:
    create_managed(namespace)
    if step == "before the final name":
        leave_unfinished(namespace, monkeypatch)
    else:
        version, staged = stage(namespace)
        with monkeypatch.context() as patched:
            patched.setattr(directories, "discard", raising(Death()))
            with pytest.raises(Death):
                commit(namespace, version, str(staged))
    assert state(server).version == 2
    assert state(server).staged in manifest_files(server)
    found = namespace.count_table_rows(api.CountTableRowsRequest(id=TABLE)).count
    assert versions(namespace) == [1, 2]
    assert append(namespace, 9).version == 3
    assert len(rows(namespace)) == (found or 0) + 1
    assert [name for name in manifest_files(server) if not name.endswith(".manifest")] == []


def test_a_commit_finishes_the_version_before_it(
    namespace: MemoryNamespace, server: MemoryServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    create_managed(namespace)
    leave_unfinished(namespace, monkeypatch)
    staged = directory(server) / "_versions" / state(server).staged
    final = staged.with_name(staged.name.split(".manifest")[0] + ".manifest")
    final.write_bytes(staged.read_bytes())
    version, next_staged = stage(namespace)
    final.unlink()
    commit(namespace, version, str(next_staged))
    assert final.exists()
    assert versions(namespace) == [1, 2, 3]


@pytest.mark.spec("managed.md#the-steps-of-a-commit")
def test_a_reader_who_may_not_write_reads_a_version_that_is_still_staged(
    namespace: MemoryNamespace, monkeypatch: pytest.MonkeyPatch
) -> None:
    create_managed(namespace)
    leave_unfinished(namespace, monkeypatch)
    read_only = raising(errors.PermissionDeniedError("read only"))
    monkeypatch.setattr(directories.ManagedDirectory, "_put_final", read_only)
    described = namespace.describe_table_version(api.DescribeTableVersionRequest(id=TABLE))
    assert described.version.version == 2
    assert ".manifest-" in described.version.manifest_path
    assert len(rows(namespace)) > 3


@pytest.mark.spec("managed.md#the-steps-of-a-commit")
def test_a_writer_that_died_before_the_commit_leaves_the_table_as_it_was(
    namespace: MemoryNamespace,
) -> None:
    create_managed(namespace)
    stage(namespace)
    assert versions(namespace) == [1]
    assert rows(namespace) == [0, 1, 2]
    assert append(namespace, 9).version == 2


@pytest.mark.spec("managed.md#the-steps-of-a-commit")
@pytest.mark.parametrize("moment", ["before", "after"])
def test_a_commit_whose_reply_was_lost_is_made_once(
    namespace: MemoryNamespace, server: MemoryServer, moment: Moment
) -> None:
    create_managed(namespace)
    meanwhile(server, moment, raising(OutcomeUnknownError("lost")))
    assert append(namespace, 7).version == 2
    assert rows(namespace) == [0, 1, 2, 7]


def test_a_commit_whose_reply_was_lost_is_known_though_others_have_built_on_it(
    namespace: MemoryNamespace, server: MemoryServer
) -> None:
    create_managed(namespace)

    def build_and_lose() -> None:
        append(another(namespace), 8)
        raise OutcomeUnknownError("lost")

    meanwhile(server, "after", build_and_lose)
    assert append(namespace, 7).version == 2
    assert rows(namespace) == [0, 1, 2, 7, 8]
    assert versions(namespace) == [1, 2, 3]


def test_a_commit_that_never_arrived_is_not_taken_for_another_of_its_number(
    namespace: MemoryNamespace, server: MemoryServer
) -> None:
    create_managed(namespace)

    def commit_and_lose() -> None:
        append(another(namespace), 8)
        append(another(namespace), 9)
        raise OutcomeUnknownError("lost")

    meanwhile(server, "before", commit_and_lose)
    assert append(namespace, 7).version == 4
    assert rows(namespace) == [0, 1, 2, 7, 8, 9]


def test_another_change_of_the_entry_does_not_stop_a_commit(
    namespace: MemoryNamespace, server: MemoryServer
) -> None:
    create_managed(namespace)

    def change() -> None:
        found = server.tables[KEY]
        changed = found.with_properties({**found.properties, "owner": "me"})
        server.tables[KEY] = replace(changed, revision=server.stamp())

    meanwhile(server, "before", change)
    assert append(namespace, 7).version == 2
    found = namespace.describe_table(api.DescribeTableRequest(id=TABLE))
    assert found.properties == {"owner": "me"}


@pytest.mark.parametrize("is_first", [False, True])
def test_a_commit_that_the_catalog_refuses_says_why(
    namespace: MemoryNamespace, server: MemoryServer, is_first: bool
) -> None:
    if is_first:
        namespace.declare_table(api.DeclareTableRequest(id=TABLE, properties=MANAGED))
    else:
        create_managed(namespace)
    before = state(server)
    meanwhile(server, "before", raising(errors.PermissionDeniedError("not yours")))
    with pytest.raises(errors.PermissionDeniedError, match="not yours"):
        namespace.insert_into_table(api.InsertIntoTableRequest(id=TABLE), stream(2))
    assert state(server) == before


def test_a_commit_to_a_table_that_was_dropped_is_not_found(
    namespace: MemoryNamespace, server: MemoryServer
) -> None:
    create_managed(namespace)
    dataset = lance.dataset(namespace_client=namespace, table_id=TABLE)
    namespace.deregister_table(api.DeregisterTableRequest(id=TABLE))
    with pytest.raises(OSError, match="is unknown"):
        lance.write_dataset(table(5), dataset, mode="append")
    assert KEY not in server.tables


@pytest.mark.parametrize("managed", [False, True])
def test_what_lance_gives_up_because_of_others_is_a_concurrent_modification(
    namespace: MemoryNamespace, server: MemoryServer, managed: bool
) -> None:
    create(namespace, TABLE, properties=MANAGED if managed else {})
    changed = Table(namespace.connection, server.tables[KEY])
    opened = changed.open(write=True)
    other = lance.dataset(namespace_client=namespace, table_id=TABLE)
    other.update({"a": "a + 10"}, where="a = 1")
    with (
        pytest.raises(errors.ConcurrentModificationError) as caught,
        changed.committing(opened, "it was not updated"),
    ):
        opened.update({"a": "a + 20"}, where="a = 1", retry_timeout=timedelta(0))
    assert "Too many concurrent writers" in str(caught.value.__cause__)
    assert rows(namespace) == [0, 2, 11]


def test_others_who_are_faster_each_time_are_a_concurrent_modification(
    namespace: MemoryNamespace, server: MemoryServer
) -> None:
    create_managed(namespace)
    opened = lance.dataset(str(directory(server)))
    table = Table(namespace.connection, server.tables[KEY])
    with (
        pytest.raises(errors.ConcurrentModificationError),
        table.committing(opened, "it was not compacted"),
    ):
        raise OSError("Too many concurrent writers. Attempted 5 times, but failed on retry_timeout")
