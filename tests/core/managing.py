"""What the tests of implementation-managed tables share."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import lance
import lance_namespace as api
import pyarrow as pa
import pytest

from lance_bridge.managed.versions import ManagedDirectory
from lance_bridge.managed_state import State, parse_state
from lance_bridge.records import FOREIGN_COMMITS

from .building import TABLE, at_change, create, raising, stream
from .memory_catalog import CAPABILITIES, Client, MemoryNamespace, MemoryServer, Moment, server_of
from .mortality import Death
from .staging import stage

MANAGED = {"managed_by": "impl"}
KEY = tuple(TABLE)


@pytest.fixture
def able(server: MemoryServer) -> MemoryServer:
    """The server of the test, whose entries can be compared, set and renamed."""
    server.capabilities = replace(CAPABILITIES, no_alter="", no_rename="")
    return server


def create_managed(ns: MemoryNamespace, rows: int = 3) -> None:
    """Create the table, with rows 0, 1, 2, …, as version 1 of a managed one."""
    create(ns, TABLE, rows, properties=MANAGED)


def state(client: Client, table: list[str] = TABLE) -> State:
    """Return what an entry says of the latest version."""
    found = parse_state(server_of(client).tables[tuple(table)])
    assert found is not None
    return found


def directory(client: Client) -> Path:
    """Return where the table lies."""
    return Path((server_of(client).tables[KEY].location or "").removeprefix("file://"))


def rows(ns: MemoryNamespace, table: list[str] = TABLE) -> list[int]:
    """Return the rows of a table as pylance reads them by name."""
    found = lance.dataset(namespace_client=ns, table_id=table).to_table()["a"].to_pylist()
    return sorted(found)


def append(ns: MemoryNamespace, *values: int) -> lance.LanceDataset:
    """Append rows as pylance does, by name."""
    table = pa.table({"a": list(values)})
    return lance.write_dataset(table, namespace_client=ns, table_id=TABLE, mode="append")


def append_past_the_catalog(client: Client, *values: int) -> None:
    """Append rows as one does who knows the place, and not the catalog."""
    lance.write_dataset(pa.table({"a": list(values)}), str(directory(client)), mode="append")


def versions(ns: MemoryNamespace) -> list[int]:
    """Return the versions that the namespace lists."""
    found = ns.list_table_versions(api.ListTableVersionsRequest(id=TABLE)).versions
    return [each.version for each in found]


def another(ns: MemoryNamespace, **more: str) -> MemoryNamespace:
    """Return a second connection to the same server, with further properties."""
    return MemoryNamespace(uri=ns._properties["uri"], root=ns._properties["root"], **more)


def create_with(ns: MemoryNamespace, policy: str) -> None:
    """Create the table as `create_managed` does, with what is done with foreign commits."""
    create(ns, TABLE, 3, properties={**MANAGED, FOREIGN_COMMITS: policy})


def set_policy(server: MemoryServer, policy: str) -> None:
    """Have an entry say what is done with foreign commits."""
    record = server.tables[KEY]
    server.tables[KEY] = record.with_properties({**record.properties, FOREIGN_COMMITS: policy})


def insert(ns: MemoryNamespace) -> None:
    """Add a row of 0."""
    ns.insert_into_table(api.InsertIntoTableRequest(id=TABLE), stream(1))


def commit(ns: MemoryNamespace, version: int, staged: str) -> api.CreateTableVersionResponse:
    """Make a staged manifest a version, as pylance does."""
    return ns.create_table_version(
        api.CreateTableVersionRequest(id=TABLE, version=version, manifest_path=staged)
    )


def table(*values: int) -> pa.Table:
    """Return rows of the one column."""
    return pa.table({"a": list(values)})


def meanwhile(
    client: Client, moment: Moment, act: Callable[[], object], *, number: int = 1
) -> None:
    """Have something happen right before or after the next change of an entry, or a later one."""
    at_change(server_of(client), "alter_table", moment, act, number=number)


def leave_unfinished(ns: MemoryNamespace, patch: pytest.MonkeyPatch) -> None:
    """Commit version 2 as a client that dies before the manifest has its final name."""
    version, staged = stage(ns)
    with patch.context() as patched:
        patched.setattr(ManagedDirectory, "_put_final", raising(Death()))
        with pytest.raises(Death):
            commit(ns, version, str(staged))
