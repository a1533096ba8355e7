"""Making tables implementation-managed, renaming them, and leaving them to their storage."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import lance
import lance_namespace as api
import pytest
from lance_namespace import errors

from lance_bridge.catalog import (
    GUARD,
    IMPLEMENTATION,
    LATEST,
    MANAGED_BY,
    Capabilities,
)
from lance_bridge.entry import TableEntry
from lance_bridge.errors import OutcomeUnknownError
from lance_bridge.managed import compare_and_set
from lance_bridge.managed_state import BRIEF_SECONDS, HOLD_SECONDS, with_state

from .building import TABLE, at_change, count_rows, create, raising, stream
from .managing import (
    KEY,
    MANAGED,
    able,  # noqa: F401 - a fixture
    append,
    append_past_the_catalog,
    create_managed,
    insert,
    meanwhile,
    rows,
    state,
    table,
    versions,
)
from .memory_catalog import CAPABILITIES, MemoryNamespace, MemoryServer, Moment

pytestmark = [pytest.mark.quick, pytest.mark.usefixtures("able")]

NEW = [*TABLE[:-1], "Renamed"]


def mark(server: MemoryServer) -> str | None:
    return server.tables[KEY].properties.get(MANAGED_BY)


# -- conversion ------------------------------------------------------------------------------------


@pytest.mark.spec("managed.md#becoming-managed")
def test_a_table_goes_to_the_catalog_and_back_with_all_its_versions(
    namespace: MemoryNamespace, server: MemoryServer
) -> None:
    create(namespace, TABLE)
    append(namespace, 7)
    namespace.manage_table(TABLE)
    assert (mark(server), state(server).version) == ("impl", 2)
    append(namespace, 8)
    namespace.release_table(TABLE)
    assert mark(server) == "storage"
    assert not {LATEST, GUARD} & set(server.tables[KEY].properties)
    append_past_the_catalog(server, 9)
    assert versions(namespace) == [1, 2, 3, 4]
    assert rows(namespace) == [0, 1, 2, 7, 8, 9]


def test_to_manage_a_managed_table_changes_nothing(
    namespace: MemoryNamespace, server: MemoryServer
) -> None:
    create_managed(namespace)
    effects = len(server.effects)
    namespace.manage_table(TABLE)
    assert len(server.effects) == effects


def test_to_release_a_table_of_the_storage_is_refused(namespace: MemoryNamespace) -> None:
    create(namespace, TABLE)
    with pytest.raises(errors.InvalidInputError, match="managed by its storage"):
        namespace.release_table(TABLE)


def test_a_table_of_another_implementation_is_named_as_such(
    namespace: MemoryNamespace, server: MemoryServer
) -> None:
    create(namespace, TABLE)
    record = server.tables[KEY]
    server.tables[KEY] = record.with_properties({**record.properties, MANAGED_BY: IMPLEMENTATION})
    with pytest.raises(errors.InvalidInputError, match="managed by another implementation"):
        namespace.release_table(TABLE)


def test_what_was_committed_to_the_storage_during_the_conversion_is_kept(
    namespace: MemoryNamespace, server: MemoryServer
) -> None:
    create(namespace, TABLE)
    meanwhile(server, "before", lambda: append_past_the_catalog(server, 5))
    namespace.manage_table(TABLE)
    assert rows(namespace) == [0, 1, 2, 5]


@pytest.mark.parametrize("moment", ["before", "after"])
@pytest.mark.parametrize("way", ["manage_table", "release_table"])
def test_a_conversion_whose_reply_was_lost_is_made(
    namespace: MemoryNamespace, server: MemoryServer, way: str, moment: Moment
) -> None:
    create(namespace, TABLE, properties=MANAGED if way == "release_table" else {})
    meanwhile(server, moment, raising(OutcomeUnknownError("lost")))
    getattr(namespace, way)(TABLE)
    assert mark(server) == ("impl" if way == "manage_table" else "storage")
    append(namespace, 7)
    assert rows(namespace) == [0, 1, 2, 7]


@pytest.mark.spec(
    "common.md#createtable",
    "common.md#registertable",
    "managed.md#becoming-managed",
    "operations.md#manage_table",
)
def test_a_table_with_branches_stays_with_its_storage(
    namespace: MemoryNamespace, server: MemoryServer
) -> None:
    create(namespace, TABLE)
    namespace.create_table_branch(api.CreateTableBranchRequest(id=TABLE, name="b"))
    with pytest.raises(errors.InvalidTableStateError, match="branches"):
        namespace.manage_table(TABLE)
    assert mark(server) == "storage"


@pytest.mark.spec("operations.md#createtablebranch")
def test_a_managed_table_gets_no_branch(namespace: MemoryNamespace) -> None:
    create_managed(namespace)
    with pytest.raises(errors.UnsupportedOperationError, match="branches"):
        namespace.create_table_branch(api.CreateTableBranchRequest(id=TABLE, name="b"))
    with pytest.raises(errors.TableBranchNotFoundError):
        namespace.count_table_rows(api.CountTableRowsRequest(id=TABLE, branch="b"))
    listed = namespace.list_table_branches(api.ListTableBranchesRequest(id=TABLE))
    assert listed.branches == {}


@pytest.mark.spec(
    "common.md#createtable",
    "common.md#declaretable",
    "common.md#registertable",
    "managed.md#becoming-managed",
    "operations.md#manage_table",
)
def test_a_table_with_manifests_of_the_first_scheme_stays_with_its_storage(
    namespace: MemoryNamespace, server: MemoryServer, tmp_path: Any
) -> None:
    place = str(tmp_path / "old.lance")
    lance.write_dataset(table(0, 1, 2), place, enable_v2_manifest_paths=False)
    asked: dict[str, Any] = {"id": TABLE, "location": place, "properties": MANAGED}
    with pytest.raises(errors.InvalidTableStateError, match="migrate_manifest_paths_v2"):
        namespace.register_table(api.RegisterTableRequest(**asked))
    assert KEY not in server.tables
    with pytest.raises(errors.InvalidTableStateError, match="migrate_manifest_paths_v2"):
        namespace.declare_table(api.DeclareTableRequest(**asked))
    assert mark(server) == "storage"


@pytest.mark.spec("managed.md#properties-of-the-entry", "operations.md#manage_table")
def test_a_table_that_another_implementation_manages_is_left_to_it(
    namespace: MemoryNamespace, server: MemoryServer
) -> None:
    create(namespace, TABLE)
    found = server.tables[KEY]
    server.tables[KEY] = found.with_properties({**found.properties, MANAGED_BY: "impl"})
    refused: list[Callable[[], object]] = [
        lambda: namespace.manage_table(TABLE),
        lambda: namespace.list_table_versions(api.ListTableVersionsRequest(id=TABLE)),
        lambda: insert(namespace),
        lambda: namespace.create_table_branch(api.CreateTableBranchRequest(id=TABLE, name="b")),
    ]
    for call in refused:
        with pytest.raises(errors.UnsupportedOperationError, match="another implementation"):
            call()
    assert count_rows(namespace, TABLE) == 3
    described = namespace.describe_table(api.DescribeTableRequest(id=TABLE))
    assert described.managed_versioning is None


# -- new tables ------------------------------------------------------------------------------------


def test_a_registration_that_is_overwritten_is_managed_as_it_says(
    namespace: MemoryNamespace, tmp_path: Any
) -> None:
    create_managed(namespace)
    place = str(tmp_path / "other.lance")
    lance.write_dataset(table(0, 1, 2), place)
    for properties, version in (({}, None), (MANAGED, 1)):
        namespace.register_table(
            api.RegisterTableRequest(
                id=TABLE, location=place, mode="overwrite", properties=properties
            )
        )
        managed = namespace.describe_table(api.DescribeTableRequest(id=TABLE)).managed_versioning
        assert managed is (True if version else None)


def test_a_registration_stays_where_it_is_if_the_new_place_cannot_be_managed(
    namespace: MemoryNamespace, server: MemoryServer, tmp_path: Any
) -> None:
    create(namespace, TABLE)
    before = server.tables[KEY]
    place = str(tmp_path / "old.lance")
    lance.write_dataset(table(1), place, enable_v2_manifest_paths=False)
    with pytest.raises(errors.InvalidTableStateError):
        namespace.register_table(
            api.RegisterTableRequest(id=TABLE, location=place, mode="overwrite", properties=MANAGED)
        )
    assert server.tables[KEY] == before


@pytest.mark.spec(
    "common.md#createnamespace",
    "common.md#createtable",
    "common.md#declaretable",
    "common.md#registertable",
    "operations.md#manage_table",
)
@pytest.mark.parametrize(
    "capabilities",
    [
        replace(CAPABILITIES, no_alter="it forgets"),
        replace(CAPABILITIES, no_alter="", no_managed_tables="it forgets"),
    ],
)
def test_a_catalog_that_cannot_says_why_and_makes_nothing(
    namespace: MemoryNamespace, server: MemoryServer, tmp_path: Any, capabilities: Capabilities
) -> None:
    server.capabilities = capabilities
    place = str(tmp_path / "x.lance")
    calls: list[Callable[[], object]] = [
        lambda: create_managed(namespace),
        lambda: namespace.declare_table(api.DeclareTableRequest(id=TABLE, properties=MANAGED)),
        lambda: namespace.register_table(
            api.RegisterTableRequest(id=TABLE, location=place, properties=MANAGED)
        ),
        lambda: namespace.create_namespace(
            api.CreateNamespaceRequest(id=["eu", "shop", "new"], properties=MANAGED)
        ),
    ]
    for call in calls:
        with pytest.raises(errors.UnsupportedOperationError, match="it forgets"):
            call()
    assert not server.effects


@pytest.mark.spec("common.md#createtable")
def test_a_table_that_cannot_be_guarded_is_taken_back(
    namespace: MemoryNamespace, server: MemoryServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    refuse = raising(errors.UnsupportedOperationError("neither lock nor condition"))
    monkeypatch.setattr(type(namespace.connection.catalog), "commit_guard", refuse)
    calls: list[Callable[[], object]] = [
        lambda: create_managed(namespace),
        lambda: namespace.declare_table(api.DeclareTableRequest(id=TABLE, properties=MANAGED)),
    ]
    for call in calls:
        with pytest.raises(errors.UnsupportedOperationError, match="neither"):
            call()
        assert not server.tables


def test_of_two_creators_one_creates(namespace: MemoryNamespace, server: MemoryServer) -> None:
    namespace.declare_table(api.DeclareTableRequest(id=TABLE, properties=MANAGED))
    meanwhile(server, "before", lambda: create(namespace, TABLE, 5))
    with pytest.raises(errors.TableAlreadyExistsError):
        create(namespace, TABLE, 3)
    assert len(rows(namespace)) == 5
    create(namespace, TABLE, 3, mode="ExistOk")
    assert len(rows(namespace)) == 5


# -- renames ---------------------------------------------------------------------------------------


@pytest.mark.spec("managed.md#operations-on-managed-tables")
@pytest.mark.parametrize("by_copy", [False, True])
def test_a_table_that_is_being_renamed_takes_no_commit(
    namespace: MemoryNamespace, server: MemoryServer, by_copy: bool
) -> None:
    server.capabilities = replace(server.capabilities, renames_by_copy=by_copy)
    create_managed(namespace)
    refused: list[str] = []

    def fault(change: str, _: str) -> None:
        if change in ("rename_table", "copy_table", "drop_table"):
            with pytest.raises(errors.LanceNamespaceError) as caught:
                insert(namespace)
            refused.append(type(caught.value).__name__)

    server.fault = fault
    namespace.rename_table(api.RenameTableRequest(id=TABLE, new_table_name=NEW[-1]))
    assert refused[0] == "ConcurrentModificationError"
    assert count_rows(namespace, NEW) == 3


@pytest.mark.parametrize("by_copy", [False, True])
def test_a_rename_that_fails_lets_the_table_go_again(
    namespace: MemoryNamespace, server: MemoryServer, by_copy: bool
) -> None:
    server.capabilities = replace(server.capabilities, renames_by_copy=by_copy)
    create_managed(namespace)
    create(namespace, NEW)
    with pytest.raises(errors.TableAlreadyExistsError):
        namespace.rename_table(api.RenameTableRequest(id=TABLE, new_table_name=NEW[-1]))
    assert state(server).held is None
    assert append(namespace, 7).version == 2


@pytest.mark.spec("managed.md#operations-on-managed-tables")
def test_a_table_that_a_rename_left_under_two_names_takes_no_commit_until_it_has_one(
    namespace: MemoryNamespace, server: MemoryServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    server.capabilities = replace(server.capabilities, renames_by_copy=True)
    create_managed(namespace)

    def interrupt() -> None:
        server.fault = raising(KeyboardInterrupt())
        raise KeyboardInterrupt

    at_change(server, "copy_table", "after", interrupt)
    with pytest.raises(KeyboardInterrupt):
        namespace.rename_table(api.RenameTableRequest(id=TABLE, new_table_name=NEW[-1]))
    server.fault = None
    assert set(server.tables) == {KEY, tuple(NEW)}
    monkeypatch.setattr("lance_bridge.managed_state.HOLD_SECONDS", 0)
    for name in (TABLE, NEW):
        with pytest.raises(errors.InvalidTableStateError, match="deregister one of the two"):
            namespace.insert_into_table(api.InsertIntoTableRequest(id=name), stream(1))
        assert count_rows(namespace, name) == 3
    namespace.deregister_table(api.DeregisterTableRequest(id=TABLE))
    namespace.insert_into_table(api.InsertIntoTableRequest(id=NEW), stream(1))
    assert count_rows(namespace, NEW) == 4


@pytest.mark.spec("managed.md#operations-on-managed-tables")
@pytest.mark.parametrize(("brief", "seconds"), [(False, HOLD_SECONDS), (True, BRIEF_SECONDS)])
def test_a_hold_whose_holder_died_ends_by_itself(
    namespace: MemoryNamespace, server: MemoryServer, brief: bool, seconds: float
) -> None:
    create_managed(namespace)
    with compare_and_set.held(TableEntry(namespace.connection, server.tables[KEY]), brief=brief):
        with pytest.raises(errors.ConcurrentModificationError, match="try again"):
            insert(namespace)
        held = state(server)
        old = replace(held, held=(held.held or 0) - int(seconds * 1000) - 1)
        server.tables[KEY] = with_state(server.tables[KEY], old)
        assert append(namespace, 7).version == 2
    assert state(server).version == 2
