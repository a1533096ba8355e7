"""Implementation-managed tables for tests, one or several, and clients that die at a step."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import lance
import lance_namespace as api
import pyarrow as pa
import pytest
from lance_namespace_urllib3_client.models import CreateTableVersionEntry

from lance_bridge.managed.version_directory import ManagedDirectory
from lance_bridge.managed_state import State, parse_state
from lance_bridge.storage.store import TableFiles

from .memory_catalog import (
    CAPABILITIES,
    DATASET,
    TABLE,
    Client,
    MemoryNamespace,
    MemoryServer,
    Moment,
    at_change,
    create,
    raiser,
    server_of,
    stage,
    stream,
)

MANAGED = {"managed_by": "impl"}
KEY = tuple(TABLE)
HOME, OTHER, THIRD = ([*DATASET, name] for name in ("a", "b", "c"))
"""Tables in the order in which a batch commits to them; the first has its record."""
NEW = [*DATASET, "new"]
Entry = CreateTableVersionEntry


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


def insert(ns: MemoryNamespace, table: list[str] = TABLE, values: int = 1) -> None:
    """Add rows 0, 1, … to a table, by itself."""
    ns.insert_into_table(api.InsertIntoTableRequest(id=table), stream(values))


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
        patched.setattr(ManagedDirectory, "_put_final", raiser(Death()))
        with pytest.raises(Death):
            commit(ns, version, str(staged))


# -- clients that die at one of their steps --------------------------------------------------------


class Death(BaseException):
    """Ends a client at one of its steps."""


def die() -> None:
    """End the client."""
    raise Death


class DyingClient:
    """Dies before one of its changes of the storage or of an entry; later ones fail too."""

    def __init__(self, server: MemoryServer, patch: pytest.MonkeyPatch, steps: int) -> None:
        self.left = steps
        server.fault = lambda *_: self.step()
        for name in ("put_new", "put_over", "remove"):
            patch.setattr(TableFiles, name, self.counted(getattr(TableFiles, name)))

    def step(self) -> None:
        """Count a step, and die at the last one."""
        self.left -= 1
        if self.left < 0:
            die()

    def counted(self, change: Callable[..., Any]) -> Callable[..., Any]:
        """Return a change that is a step."""

        def counted(*args: Any) -> Any:
            self.step()
            return change(*args)

        return counted


# -- batches of several tables ---------------------------------------------------------------------


def create_managed_tables(ns: MemoryNamespace, *tables: list[str], **properties: str) -> None:
    """Create managed tables, each with the rows 0, 1 and 2."""
    for each in tables:
        create(ns, each, properties={**MANAGED, **properties})


def staged(ns: MemoryNamespace, table: list[str], value: int = 100, **fields: Any) -> Entry:
    """Return the entry of a request to create the next version of a table, with one more row."""
    version, path = stage(ns, table, value)
    spelled = {"version": version, "manifest_path": str(path).lstrip("/"), **fields}
    return CreateTableVersionEntry(id=table, **spelled)


def stage_all(ns: MemoryNamespace, *tables: list[str]) -> list[Entry]:
    """Return an entry of a request for each table."""
    return [staged(ns, each) for each in tables]


def create_and_stage(ns: MemoryNamespace, *tables: list[str]) -> list[Entry]:
    """Create managed tables, and return an entry of a request for each."""
    create_managed_tables(ns, *tables)
    return stage_all(ns, *tables)


def create_all(ns: MemoryNamespace, entries: Sequence[Entry]) -> list[int]:
    """Create the versions of a request, and return their numbers."""
    request = api.BatchCreateTableVersionsRequest(entries=list(entries))
    return [each.version for each in ns.batch_create_table_versions(request).versions]


def as_operation(entry: Entry) -> dict[str, Any]:
    """Return the same as an operation of BatchCommitTables."""
    return {"create_table_version": entry.model_dump(exclude_none=True)}


def commit_batch(ns: MemoryNamespace, *operations: dict[str, Any]) -> list[dict[str, Any]]:
    """Do operations as a batch, and return their answers."""
    request: Any = {"operations": list(operations)}
    results = ns.batch_commit_tables(request).results
    return [each.model_dump(exclude_none=True) for each in results]


def batch_files(client: Client, table: list[str]) -> list[str]:
    """Return the names of the files that batches have written beside a table."""
    location = Path((server_of(client).tables[tuple(table)].location or "").removeprefix("file://"))
    return sorted(path.name for path in (location / "_transactions").glob("*.json"))
