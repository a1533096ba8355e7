"""Implementation-managed tables: the latest version after the entry is removed."""

from __future__ import annotations

import shutil
from collections.abc import Callable

import lance_namespace as api
import pytest
from lance_namespace import errors

from lance_bridge.managed import compare_and_set
from lance_bridge.storage.table_files import TableFiles

from .building import TABLE, raising
from .managing import (
    KEY,
    MANAGED,
    able,  # noqa: F401 - a fixture
    create_managed,
    directory,
    leave_unfinished,
    state,
    versions,
)
from .memory_catalog import MemoryNamespace, MemoryServer

pytestmark = [
    pytest.mark.quick,
    pytest.mark.usefixtures("able"),
    pytest.mark.spec("common.md#deregistertable", "managed.md#operations-on-managed-tables"),
]

Act = Callable[[MemoryNamespace, str], object]


def refuse_writes(patch: pytest.MonkeyPatch, error: Exception) -> None:
    """Have the storage refuse every write of a new file."""
    patch.setattr(TableFiles, "put_new", raising(error))


def deregister(ns: MemoryNamespace, _: str) -> None:
    ns.deregister_table(api.DeregisterTableRequest(id=TABLE))


def move(ns: MemoryNamespace, location: str) -> None:
    ns.register_table(api.RegisterTableRequest(id=TABLE, location=location, mode="Overwrite"))


def drop(ns: MemoryNamespace, _: str) -> None:
    ns.drop_table(api.DropTableRequest(id=TABLE))


@pytest.mark.parametrize(
    "error",
    [errors.ServiceUnavailableError, errors.PermissionDeniedError, errors.UnauthenticatedError],
)
@pytest.mark.parametrize("act", [deregister, move])
def test_an_entry_is_kept_whose_latest_version_cannot_get_its_final_name(
    namespace: MemoryNamespace,
    server: MemoryServer,
    monkeypatch: pytest.MonkeyPatch,
    act: Act,
    error: type[Exception],
) -> None:
    create_managed(namespace)
    place = str(directory(server))
    leave_unfinished(namespace, monkeypatch)
    before = state(server)
    with monkeypatch.context() as patch:
        refuse_writes(patch, error("away"))
        with pytest.raises(error, match=r"is kept.*away"):
            act(namespace, place)
    assert state(server) == before
    act(namespace, place)
    if act is deregister:
        namespace.register_table(
            api.RegisterTableRequest(id=TABLE, location=place, properties=MANAGED)
        )
    assert versions(namespace) == [1, 2]


def test_an_entry_is_kept_while_other_clients_keep_committing(
    namespace: MemoryNamespace, server: MemoryServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    create_managed(namespace)
    before = server.tables[KEY]
    lost = errors.ConcurrentModificationError("another commit came first")
    monkeypatch.setattr(compare_and_set, "swap", raising(lost))
    with pytest.raises(errors.ConcurrentModificationError, match="modified concurrently"):
        deregister(namespace, "")
    assert server.tables[KEY] == before


def test_a_table_whose_files_are_gone_is_deregistered(
    namespace: MemoryNamespace, server: MemoryServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    create_managed(namespace)
    leave_unfinished(namespace, monkeypatch)
    shutil.rmtree(directory(server))
    deregister(namespace, "")
    assert KEY not in server.tables


def test_a_table_that_cannot_be_opened_is_deregistered(
    namespace: MemoryNamespace,
    server: MemoryServer,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    create_managed(namespace)
    leave_unfinished(namespace, monkeypatch)
    refuse_writes(monkeypatch, errors.InvalidInputError("bad options"))
    deregister(namespace, "")
    assert KEY not in server.tables
    assert "may stay staged: bad options" in caplog.text


def test_a_table_is_dropped_whose_latest_version_cannot_get_its_final_name(
    namespace: MemoryNamespace, server: MemoryServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    create_managed(namespace)
    place = directory(server)
    leave_unfinished(namespace, monkeypatch)
    refuse_writes(monkeypatch, errors.ServiceUnavailableError("away"))
    drop(namespace, "")
    assert KEY not in server.tables
    assert not place.exists()
