"""What the tests of versions share: tables with several versions, and staged manifests."""

from __future__ import annotations

import shutil
import uuid
from pathlib import Path
from typing import Any

import lance
import lance_namespace as api
import pyarrow as pa
from lance.namespace import DirectoryNamespace

from .building import TABLE, create
from .memory_catalog import MemoryNamespace


def directory(ns: MemoryNamespace, table: list[str] = TABLE) -> Path:
    """Return the local directory of a table."""
    return Path(ns.describe_table(api.DescribeTableRequest(id=table)).location or "")


def dataset(ns: MemoryNamespace, table: list[str] = TABLE, **more: Any) -> lance.LanceDataset:
    """Open a table by its path."""
    return lance.dataset(str(directory(ns, table)), **more)


def append(ns: MemoryNamespace, table: list[str] = TABLE, value: int = 100) -> lance.LanceDataset:
    """Commit one more version, with one more row, by the path: as any Lance writer does."""
    return lance.write_dataset(pa.table({"a": [value]}), str(directory(ns, table)), mode="append")


def build(ns: MemoryNamespace, versions: int, table: list[str] = TABLE) -> None:
    """Create a table with this many versions, the first with three rows, each with one more."""
    create(ns, table)
    for number in range(2, versions + 1):
        append(ns, table, number)


def numbers(ns: MemoryNamespace, table: list[str] = TABLE, **more: Any) -> list[int]:
    """Return the numbers of a table's versions as the namespace lists them."""
    request = api.ListTableVersionsRequest(id=table, **more)
    return [each.version for each in ns.list_table_versions(request).versions]


def oracle(ns: MemoryNamespace, table: list[str] = TABLE) -> DirectoryNamespace:
    """Return pylance's own namespace over the same files; there, a table's id is its last name."""
    root = str(directory(ns, table).parent)
    return DirectoryNamespace(root=root)  # type: ignore[no-untyped-call]  # pylance gives it no types


def stage(ns: MemoryNamespace, table: list[str] = TABLE, value: int = 100) -> tuple[int, Path]:
    """Write what the next version would be, but its manifest under a name that is no version's.

    Returns:
        The version, and the path of the staged manifest.
    """
    place = directory(ns, table)
    copy = place.with_name(f"copy-{uuid.uuid4().hex}")
    shutil.copytree(place, copy)
    version = lance.write_dataset(pa.table({"a": [value]}), str(copy), mode="append").version
    name = f"{2**64 - 1 - version:020d}.manifest"
    staged = place / "_versions" / f"{name}-{uuid.uuid4()}"
    shutil.copy(copy / "_versions" / name, staged)
    for inside in ("data", "_transactions"):
        shutil.copytree(copy / inside, place / inside, dirs_exist_ok=True)
    shutil.rmtree(copy)
    return version, staged


def creation(
    table: list[str], version: int, staged: Path | str, **more: Any
) -> api.CreateTableVersionRequest:
    """Return a request to create a version, its path as pylance spells it."""
    return api.CreateTableVersionRequest(
        id=table, version=version, manifest_path=str(staged).lstrip("/"), **more
    )
