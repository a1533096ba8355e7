"""What the tests of batches share: managed tables, and versions to create of several."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import lance_namespace as api
from lance_namespace_urllib3_client.models import CreateTableVersionEntry

from .building import DATASET, create, stream
from .managing import MANAGED
from .memory_catalog import Client, MemoryNamespace, server_of
from .staging import stage

HOME, OTHER, THIRD = ([*DATASET, name] for name in ("a", "b", "c"))
"""Tables in the order in which a batch commits to them; the first has its record."""
NEW = [*DATASET, "new"]

Entry = CreateTableVersionEntry


def create_managed(ns: MemoryNamespace, *tables: list[str], **properties: str) -> None:
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
    create_managed(ns, *tables)
    return stage_all(ns, *tables)


def create_all(ns: MemoryNamespace, entries: Sequence[Entry]) -> list[int]:
    """Create the versions of a request, and return their numbers."""
    request = api.BatchCreateTableVersionsRequest(entries=list(entries))
    return [each.version for each in ns.batch_create_table_versions(request).versions]


def creation(entry: Entry) -> dict[str, Any]:
    """Return the same as an operation of BatchCommitTables."""
    return {"create_table_version": entry.model_dump(exclude_none=True)}


def commit(ns: MemoryNamespace, *operations: dict[str, Any]) -> list[dict[str, Any]]:
    """Do operations as a batch, and return their answers."""
    request: Any = {"operations": list(operations)}
    results = ns.batch_commit_tables(request).results
    return [each.model_dump(exclude_none=True) for each in results]


def insert(ns: MemoryNamespace, table: list[str], values: int = 1) -> None:
    """Commit rows 0, 1, … to a table, by itself."""
    ns.insert_into_table(api.InsertIntoTableRequest(id=table), stream(values))


def batch_files(client: Client, table: list[str]) -> list[str]:
    """Return the names of the files that batches have written beside a table."""
    location = Path((server_of(client).tables[tuple(table)].location or "").removeprefix("file://"))
    return sorted(path.name for path in (location / "_transactions").glob("*.json"))
