"""Implementation-managed tables: the latest version after the entry is removed."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from typing import Any

import lance_namespace as api
import pytest
from lance_namespace import errors

from lance_bridge.managed import versions as directories
from lance_bridge.storage.table_files import TableFiles

from .building import TABLE
from .managing import (
    KEY,
    MANAGED,
    able,  # noqa: F401 - a fixture
    commit,
    create_managed,
    directory,
    state,
    versions,
)
from .memory_catalog import MemoryNamespace, MemoryServer
from .mortality import Death, die
from .staging import stage

pytestmark = pytest.mark.usefixtures("able")

Act = Callable[[MemoryNamespace, str], object]


def leave_unfinished(ns: MemoryNamespace, monkeypatch: pytest.MonkeyPatch) -> None:
    """Commit version 2 as a client that dies before the manifest has its final name."""
    version, staged = stage(ns)
    with monkeypatch.context() as patched:
        patched.setattr(directories.ManagedDirectory, "_put_final", lambda *_: die())
        with pytest.raises(Death):
            commit(ns, version, str(staged))


def refuse_writes(patch: pytest.MonkeyPatch, error: Exception) -> None:
    """Have the storage refuse every write of a new file."""

    def refuse(*_: Any) -> None:
        raise error

    patch.setattr(TableFiles, "put_new", refuse)


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
