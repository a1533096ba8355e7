"""Declared, present, missing, unreachable: what is said of a table without data, and done to it."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import lance
import lance_namespace as api
import pyarrow as pa
import pytest
from lance_namespace import errors

from lance_bridge.catalog import TableRecord
from lance_bridge.dataset import rows as request_rows
from lance_bridge.records import ENTRY_ID
from lance_bridge.storage import DataState
from lance_bridge.storage.lance_format import RESERVED_FILE
from lance_bridge.storage.store import TableStorage

from .managed_tables import (
    KEY,
    MANAGED,
    able,  # noqa: F401 - a fixture
    directory,
)
from .memory_catalog import (
    DATASET,
    TABLE,
    MemoryNamespace,
    MemoryServer,
    at_change,
    count_rows,
    create,
    stream,
)

pytestmark = [
    pytest.mark.quick,
    pytest.mark.spec("common.md#presence-of-data"),
]

Call = Callable[[MemoryNamespace], object]

READS: dict[str, Call] = {
    "count": lambda ns: count_rows(ns, TABLE),
    "query": lambda ns: ns.query_table(
        api.QueryTableRequest.model_validate({"id": TABLE, "k": 1, "vector": {}})
    ),
    "describe, checked": lambda ns: ns.describe_table(
        api.DescribeTableRequest(id=TABLE, check_declared=True)
    ),
    "describe, detailed": lambda ns: ns.describe_table(
        api.DescribeTableRequest(id=TABLE, load_detailed_metadata=True)
    ),
    "describe version": lambda ns: ns.describe_table(api.DescribeTableRequest(id=TABLE, version=1)),
    "stats": lambda ns: ns.get_table_stats(api.GetTableStatsRequest(id=TABLE)),
}

FIRST_WRITES: dict[str, Call] = {
    "insert": lambda ns: ns.insert_into_table(api.InsertIntoTableRequest(id=TABLE), stream()),
    "insert overwrite": lambda ns: ns.insert_into_table(
        api.InsertIntoTableRequest(id=TABLE, mode="overwrite"), stream()
    ),
    "merge": lambda ns: ns.merge_insert_into_table(
        api.MergeInsertIntoTableRequest(id=TABLE, on=["a"], when_not_matched_insert_all=True),
        stream(),
    ),
    "create": lambda ns: create(ns, TABLE, mode="create"),
    "create exist_ok": lambda ns: create(ns, TABLE, mode="exist_ok"),
    "create overwrite": lambda ns: create(ns, TABLE, mode="overwrite"),
}

CHANGES: dict[str, Call] = {
    **FIRST_WRITES,
    "declare": lambda ns: ns.declare_table(api.DeclareTableRequest(id=TABLE)),
    "create empty": lambda ns: ns.create_empty_table(api.CreateEmptyTableRequest(id=TABLE)),
    "delete": lambda ns: ns.delete_from_table(
        api.DeleteFromTableRequest(id=TABLE, predicate="true")
    ),
    "update": lambda ns: ns.update_table(api.UpdateTableRequest(id=TABLE, updates=[["a", "1"]])),
}

CALLS = {**READS, **CHANGES}


def is_missing(call: Call, ns: MemoryNamespace, place: Path) -> None:
    """Require the error of missing data: the table, the location and the way out."""
    with pytest.raises(errors.InvalidTableStateError) as caught:
        call(ns)
    message = str(caught.value)
    assert message.startswith("The data of table 'eu.shop.sales.Orders' is missing: ")
    assert str(place) in message
    assert message.endswith(
        "Restore the files there, or deregister or drop the table and create it again"
    )


def is_unreachable(
    call: Call, ns: MemoryNamespace, error: type[errors.LanceNamespaceError]
) -> None:
    with pytest.raises(error) as caught:
        call(ns)
    assert "missing:" not in str(caught.value)


def state_of(ns: MemoryNamespace) -> DataState:
    return ns.tables.load(KEY).presence().state


def add_entry(server: MemoryServer, location: Path, **properties: str) -> None:
    """Add an entry as another tool does."""
    own = {"table_type": "lance", "managed_by": "storage", **properties}
    server.tables[KEY] = TableRecord(KEY, str(location), own, identity="other")


@pytest.fixture
def lost(namespace: MemoryNamespace, server: MemoryServer) -> Path:
    """The location of a table whose directory was deleted."""
    create(namespace, TABLE)
    place = directory(server)
    shutil.rmtree(place)
    return place


# -- missing ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("call", CALLS.values(), ids=CALLS)
def test_a_table_whose_directory_was_deleted_is_missing(
    namespace: MemoryNamespace, lost: Path, call: Call
) -> None:
    assert state_of(namespace) is DataState.MISSING
    is_missing(call, namespace, lost)
    assert not lost.exists()


@pytest.mark.parametrize("call", CALLS.values(), ids=CALLS)
def test_a_managed_table_whose_manifests_are_gone_is_missing(
    namespace: MemoryNamespace,
    able: MemoryServer,  # noqa: F811
    call: Call,
) -> None:
    create(namespace, TABLE, properties=MANAGED)
    place = directory(able)
    shutil.rmtree(place / "_versions")
    if call is READS["describe, checked"]:
        # The catalog alone answers: it has a version.
        answer = namespace.describe_table(api.DescribeTableRequest(id=TABLE, check_declared=True))
        assert answer.is_only_declared is False
    else:
        is_missing(call, namespace, place)
    assert not list(place.glob("_versions/*.manifest*"))
    assert state_of(namespace) is DataState.MISSING


@pytest.mark.parametrize("call", [READS["count"], *FIRST_WRITES.values()])
def test_a_location_that_exists_and_is_empty_is_missing(
    namespace: MemoryNamespace, lost: Path, call: Call
) -> None:
    lost.mkdir()
    is_missing(call, namespace, lost)
    assert list(lost.iterdir()) == []


@pytest.mark.parametrize("call", [READS["count"], *FIRST_WRITES.values()])
def test_a_table_whose_manifests_alone_are_gone_is_missing(
    namespace: MemoryNamespace, server: MemoryServer, call: Call
) -> None:
    """The file that reserves its location is still there."""
    create(namespace, TABLE)
    namespace.insert_into_table(api.InsertIntoTableRequest(id=TABLE), stream())
    place = directory(server)
    shutil.rmtree(place / "_versions")
    assert (place / RESERVED_FILE).exists()
    is_missing(call, namespace, place)


@pytest.mark.parametrize("call", [READS["count"], *FIRST_WRITES.values()])
def test_an_entry_registered_for_a_place_without_a_table_is_missing(
    namespace: MemoryNamespace, tmp_path: Path, call: Call
) -> None:
    place = tmp_path / "typo.lance"
    namespace.register_table(api.RegisterTableRequest(id=TABLE, location=str(place)))
    is_missing(call, namespace, place)
    assert not place.exists()


def test_a_directory_that_the_catalog_made_and_is_gone_is_missing(
    namespace: MemoryNamespace, server: MemoryServer, tmp_path: Path
) -> None:
    """Also for the entry of another tool, which has no property of ours."""
    server.capabilities = replace(server.capabilities, makes_directories=True)
    place = tmp_path / "other.lance"
    add_entry(server, place)
    is_missing(READS["count"], namespace, place)
    place.mkdir()
    assert state_of(namespace) is DataState.UNDECIDED


def test_a_directory_that_a_catalog_did_not_make_is_undecided(
    namespace: MemoryNamespace, server: MemoryServer, tmp_path: Path
) -> None:
    add_entry(server, tmp_path / "other.lance")
    assert state_of(namespace) is DataState.UNDECIDED


def test_a_missing_table_is_listed_also_without_declared_ones(
    namespace: MemoryNamespace, lost: Path
) -> None:
    namespace.declare_table(api.DeclareTableRequest(id=[*DATASET, "declared"]))
    request = api.ListTablesRequest(id=DATASET, include_declared=False)
    assert namespace.list_tables(request).tables == ["Orders"]
    assert not lost.exists()


def test_a_missing_table_is_described_without_asking_the_storage(
    namespace: MemoryNamespace, lost: Path
) -> None:
    answer = namespace.describe_table(api.DescribeTableRequest(id=TABLE))
    assert (answer.location, answer.is_only_declared) == (str(lost), None)


@pytest.mark.parametrize("way", ["deregister", "drop"])
def test_the_ways_out_lead_out(namespace: MemoryNamespace, lost: Path, way: str) -> None:
    if way == "drop":
        namespace.drop_table(api.DropTableRequest(id=TABLE))
    else:
        namespace.deregister_table(api.DeregisterTableRequest(id=TABLE))
    create(namespace, TABLE, rows=2)
    assert count_rows(namespace, TABLE) == 2
    assert lost.exists()


def test_restored_files_are_present(
    namespace: MemoryNamespace, server: MemoryServer, tmp_path: Path
) -> None:
    create(namespace, TABLE)
    place, backup = directory(server), tmp_path / "backup"
    place.rename(backup)
    is_missing(READS["count"], namespace, place)
    (backup / RESERVED_FILE).unlink()  # a backup of the data alone will do
    backup.rename(place)
    assert count_rows(namespace, TABLE) == 3
    assert state_of(namespace) is DataState.PRESENT


def test_a_missing_table_is_not_renamed(
    namespace: MemoryNamespace,
    able: MemoryServer,  # noqa: F811
    lost: Path,
) -> None:
    """The file that reserves its location would make it look declared."""
    request = api.RenameTableRequest(id=TABLE, new_table_name="Other")
    is_missing(lambda ns: ns.rename_table(request), namespace, lost)
    assert not lost.exists()
    assert [*able.tables] == [KEY]


@pytest.mark.usefixtures("able")
def test_a_missing_table_does_not_become_managed(namespace: MemoryNamespace, lost: Path) -> None:
    """Its entry would say that there never was a version."""
    is_missing(lambda ns: ns.tables.load(KEY).manage(), namespace, lost)
    is_missing(lambda ns: create(ns, TABLE, properties=MANAGED), namespace, lost)


def test_a_table_dropped_meanwhile_is_not_found(
    namespace: MemoryNamespace, server: MemoryServer, lost: Path
) -> None:
    table = namespace.tables.load(KEY)
    del server.tables[KEY]
    for look in (table.open, table.is_declared, table.require_data):
        with pytest.raises(errors.TableNotFoundError):
            look()
    assert not lost.exists()


# -- unreachable -----------------------------------------------------------------------------------


@pytest.mark.parametrize("gone", ["namespace", "root"])
@pytest.mark.parametrize("properties", [{}, MANAGED], ids=["storage", "managed"])
@pytest.mark.parametrize("call", [READS["count"], *CHANGES.values()])
def test_a_table_below_a_directory_that_is_gone_is_unreachable(
    namespace: MemoryNamespace,
    able: MemoryServer,  # noqa: F811
    call: Call,
    properties: dict[str, str],
    gone: str,
) -> None:
    """As if its disk was unmounted."""
    create(namespace, TABLE, properties=properties)
    place = directory(able)
    removed = place.parent if gone == "namespace" else place.parents[1]
    shutil.rmtree(removed)
    assert state_of(namespace) is DataState.UNREACHABLE
    # A table of the same name may exist for all that is known.
    expected = (errors.ServiceUnavailableError, errors.TableAlreadyExistsError)
    with pytest.raises(expected, match="mounted"):
        call(namespace)
    assert not place.exists()


def test_a_declared_table_below_a_directory_that_is_gone_is_unreachable(
    namespace: MemoryNamespace, server: MemoryServer
) -> None:
    namespace.declare_table(api.DeclareTableRequest(id=TABLE))
    place = directory(server)
    shutil.rmtree(place.parent)
    is_unreachable(FIRST_WRITES["insert"], namespace, errors.ServiceUnavailableError)
    assert not place.parent.exists()


@pytest.mark.parametrize("is_lost", [False, True])
@pytest.mark.parametrize("call", [READS["count"], *FIRST_WRITES.values()])
def test_refused_permission_is_unreachable(
    namespace: MemoryNamespace,
    server: MemoryServer,
    monkeypatch: pytest.MonkeyPatch,
    call: Call,
    is_lost: bool,
) -> None:
    """The system's refusal is simulated: root is refused nothing."""
    create(namespace, TABLE)
    place = directory(server)
    (shutil.rmtree if is_lost else os.rename)(*([place] if is_lost else [place, f"{place}.away"]))
    before = sorted(place.parent.iterdir())

    def refuse(path: Path, **_: Any) -> os.stat_result:
        raise PermissionError(13, "Permission denied", str(path))

    monkeypatch.setattr(Path, "stat", refuse)
    is_unreachable(call, namespace, errors.PermissionDeniedError)
    assert state_of(namespace) is DataState.UNREACHABLE
    monkeypatch.undo()
    assert sorted(place.parent.iterdir()) == before


# -- declared --------------------------------------------------------------------------------------


@pytest.mark.parametrize("properties", [{}, MANAGED], ids=["storage", "managed"])
@pytest.mark.parametrize("call", FIRST_WRITES.values(), ids=FIRST_WRITES)
def test_a_declared_table_takes_its_first_write(
    namespace: MemoryNamespace,
    able: MemoryServer,  # noqa: F811
    call: Call,
    properties: dict[str, str],
) -> None:
    namespace.declare_table(api.DeclareTableRequest(id=TABLE, properties=properties))
    assert (directory(able) / RESERVED_FILE).exists()
    assert state_of(namespace) is DataState.DECLARED
    with pytest.raises(errors.InvalidTableStateError, match="is declared and has no data yet"):
        count_rows(namespace, TABLE)
    call(namespace)
    assert count_rows(namespace, TABLE) == 3
    assert state_of(namespace) is DataState.PRESENT


def test_a_table_declared_at_a_given_location_is_reserved(
    namespace: MemoryNamespace, tmp_path: Path
) -> None:
    place = tmp_path / "given" / "t.lance"
    namespace.declare_table(api.DeclareTableRequest(id=TABLE, location=str(place)))
    assert (place / RESERVED_FILE).exists()
    create(namespace, TABLE)
    shutil.rmtree(place)
    is_missing(FIRST_WRITES["insert"], namespace, place)


def test_a_reservation_left_by_a_client_that_died_is_not_taken_for_one_of_the_entry(
    namespace: MemoryNamespace, tmp_path: Path
) -> None:
    """Another creator finds it: its table may be the one that it is for."""
    place = tmp_path / "given.lance"
    place.mkdir()
    (place / RESERVED_FILE).touch()
    namespace.declare_table(api.DeclareTableRequest(id=TABLE, location=str(place)))
    shutil.rmtree(place)
    assert state_of(namespace) is DataState.UNDECIDED


@pytest.mark.parametrize("removed", [(), (RESERVED_FILE,)], ids=["reserved", "not reserved"])
def test_a_version_written_while_its_absence_is_looked_into_is_found(
    namespace: MemoryNamespace,
    server: MemoryServer,
    monkeypatch: pytest.MonkeyPatch,
    removed: tuple[str, ...],
) -> None:
    """Files that only a table with versions has were written after the first look for one."""
    namespace.declare_table(api.DeclareTableRequest(id=TABLE))
    place = directory(server)
    for name in removed:
        (place / name).unlink()
    names = TableStorage.names

    def names_and_write(storage: TableStorage, location: str, inside: str = "") -> Iterator[str]:
        found = [*names(storage, location, inside)]
        if not (place / "_versions").exists():
            lance.write_dataset(pa.table({"a": [1]}), str(place))
            lance.write_dataset(pa.table({"a": [2]}), str(place), mode="append")
        return iter(found)

    monkeypatch.setattr(TableStorage, "names", names_and_write)
    assert state_of(namespace) is DataState.PRESENT


def test_one_of_two_clients_that_found_a_location_free_reserves_it(tmp_path: Path) -> None:
    """The other one would release it, though the entry of the first says that it is reserved."""
    first, second = (TableStorage({}).reserve(str(tmp_path / "t.lance")) for _ in range(2))
    assert first == [str(tmp_path / "t.lance")]
    assert second is None


def test_a_managed_table_without_versions_in_the_catalog_is_declared_without_its_directory(
    namespace: MemoryNamespace,
    able: MemoryServer,  # noqa: F811
) -> None:
    """The catalog says that nothing was lost."""
    namespace.declare_table(api.DeclareTableRequest(id=TABLE, properties=MANAGED))
    shutil.rmtree(directory(able))
    assert state_of(namespace) is DataState.DECLARED
    namespace.insert_into_table(api.InsertIntoTableRequest(id=TABLE), stream())
    assert count_rows(namespace, TABLE) == 3


def test_a_declared_table_that_is_registered_again_is_declared(
    namespace: MemoryNamespace, server: MemoryServer
) -> None:
    namespace.declare_table(api.DeclareTableRequest(id=TABLE))
    place = directory(server)
    namespace.deregister_table(api.DeregisterTableRequest(id=TABLE))
    namespace.register_table(api.RegisterTableRequest(id=TABLE, location=str(place)))
    assert state_of(namespace) is DataState.DECLARED


def test_a_table_whose_first_write_died_takes_the_next(
    namespace: MemoryNamespace, server: MemoryServer
) -> None:
    """It leaves the files of version 1, without the manifest."""
    create(namespace, TABLE, rows=5)
    shutil.rmtree(directory(server) / "_versions")
    assert state_of(namespace) is DataState.DECLARED
    namespace.insert_into_table(api.InsertIntoTableRequest(id=TABLE), stream())
    assert count_rows(namespace, TABLE) == 3


def test_versions_that_bypassed_a_declared_managed_table_do_not_make_it_present(
    namespace: MemoryNamespace,
    able: MemoryServer,  # noqa: F811
) -> None:
    namespace.declare_table(api.DeclareTableRequest(id=TABLE, properties=MANAGED))
    lance.write_dataset(pa.table({"a": [1]}), directory(able))
    assert state_of(namespace) is DataState.DECLARED


def test_a_table_declared_twice_keeps_its_reservation(
    namespace: MemoryNamespace, server: MemoryServer
) -> None:
    namespace.declare_table(api.DeclareTableRequest(id=TABLE))
    namespace.declare_table(api.DeclareTableRequest(id=TABLE))
    place = directory(server)
    assert [*place.parent.iterdir()] == [place]
    assert state_of(namespace) is DataState.DECLARED


@pytest.mark.parametrize("step", ["declare", "create"])
def test_a_name_that_is_taken_leaves_no_reservation(
    namespace: MemoryNamespace, server: MemoryServer, step: str
) -> None:
    create(namespace, TABLE)
    with pytest.raises(errors.TableAlreadyExistsError):
        CHANGES[step](namespace)
    place = directory(server)
    assert [*place.parent.iterdir()] == [place]


def test_a_creation_that_another_client_wins_leaves_the_winner_s_reservation(
    namespace: MemoryNamespace, server: MemoryServer, tmp_path: Path
) -> None:
    other = MemoryNamespace(uri=namespace._properties["uri"], root=str(tmp_path / "lake"))
    at_change(
        server,
        "create_table",
        "before",
        lambda: other.tables.add_entry(KEY, str(Path(place)), {}, declared=True),
    )
    place = namespace.tables.default_location(KEY)
    with pytest.raises(errors.TableAlreadyExistsError):
        namespace.declare_table(api.DeclareTableRequest(id=TABLE))
    assert (Path(place) / RESERVED_FILE).exists()


def test_a_refused_creation_leaves_no_reservation(
    namespace: MemoryNamespace, server: MemoryServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(request_rows, "check_types", lambda _: None)
    monkeypatch.setattr(request_rows, "require_storable", lambda _: None)
    nulls = pa.table({"c": pa.array([{}, None], pa.struct([]))})
    with pytest.raises(errors.InvalidInputError, match="empty struct"):
        namespace.create_table(api.CreateTableRequest(id=TABLE), nulls)
    assert not server.tables
    create(namespace, TABLE)
    assert str(directory(server)) == namespace.tables.default_location(KEY)


# -- undecided -------------------------------------------------------------------------------------


@pytest.mark.parametrize("made", ["nothing", "parent", "directory"])
@pytest.mark.parametrize("call", FIRST_WRITES.values(), ids=FIRST_WRITES)
def test_an_entry_of_another_tool_without_files_is_undecided_and_takes_a_write(
    namespace: MemoryNamespace, server: MemoryServer, tmp_path: Path, call: Call, made: str
) -> None:
    """Other implementations declare tables without a file."""
    place = tmp_path / "other" / "t.lance"
    if made != "nothing":
        (place if made == "directory" else place.parent).mkdir(parents=True)
    add_entry(server, place)
    assert state_of(namespace) is DataState.UNDECIDED
    with pytest.raises(errors.InvalidTableStateError, match="nothing says whether") as caught:
        count_rows(namespace, TABLE)
    assert str(place) in str(caught.value)
    call(namespace)
    assert count_rows(namespace, TABLE) == 3


def test_an_entry_of_another_tool_with_its_reservation_is_declared(
    namespace: MemoryNamespace, server: MemoryServer, tmp_path: Path
) -> None:
    """As of pylance's directory namespace."""
    (tmp_path / RESERVED_FILE).touch()
    add_entry(server, tmp_path)
    assert state_of(namespace) is DataState.DECLARED


def test_a_declared_table_that_could_not_be_reserved_is_undecided(
    namespace: MemoryNamespace, server: MemoryServer, tmp_path: Path
) -> None:
    (tmp_path / "lake").write_text("a file where the root should be")
    namespace.declare_table(api.DeclareTableRequest(id=TABLE))
    assert state_of(namespace) is DataState.UNDECIDED
    (tmp_path / "lake").unlink()
    namespace.insert_into_table(api.InsertIntoTableRequest(id=TABLE), stream())
    assert count_rows(namespace, TABLE) == 3
    assert ENTRY_ID in server.tables[KEY].properties


# -- what it costs ---------------------------------------------------------------------------------


@pytest.fixture
def listings(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The listings of storage since the fixture was made: the directory of each."""
    made: list[str] = []
    real = TableStorage.names

    def names(storage: TableStorage, location: str, inside: str = "") -> Any:
        made.append(inside)
        return real(storage, location, inside)

    monkeypatch.setattr(TableStorage, "names", names)
    return made


def test_a_present_table_costs_nothing_more(
    namespace: MemoryNamespace, listings: list[str]
) -> None:
    create(namespace, TABLE)
    listings.clear()
    namespace.describe_table(api.DescribeTableRequest(id=TABLE))
    namespace.list_tables(api.ListTablesRequest(id=DATASET))
    count_rows(namespace, TABLE)
    namespace.insert_into_table(api.InsertIntoTableRequest(id=TABLE), stream())
    assert listings == []
    READS["describe, checked"](namespace)
    assert listings == ["_versions"]


def test_a_new_table_costs_no_more_listings(
    namespace: MemoryNamespace, listings: list[str]
) -> None:
    namespace.declare_table(api.DeclareTableRequest(id=TABLE))
    assert listings == [""]
