"""The methods of implementation-managed tables that are beyond the interface: what they refuse."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import lance
import lance_namespace as api
import pyarrow as pa
import pytest
from core.memory_catalog import CAPABILITIES, SERVERS, MemoryNamespace, MemoryServer
from lance_namespace import errors

from lance_bridge.catalog import LATEST
from lance_bridge.entry import TableEntry
from lance_bridge.testing.build import ipc

from .operation_samples import DATABASE, ROWS, TABLE, new_namespace

pytestmark = [
    pytest.mark.checks,
    pytest.mark.spec(
        "operations.md#adopt_out_of_band_versions",
        "operations.md#discard_out_of_band_versions",
        "operations.md#release_table",
    ),
]

METHODS = [
    "adopt_out_of_band_versions",
    "discard_out_of_band_versions",
    "list_out_of_band_versions",
    "manage_table",
    "release_table",
]
OF_MANAGED_TABLES = [name for name in METHODS if name != "manage_table"]
KEY = tuple(TABLE)


@pytest.fixture
def able(tmp_path: Path) -> Iterator[tuple[MemoryNamespace, MemoryServer]]:
    """A namespace over a catalog that compares and sets, with a managed table."""
    ns, server = new_namespace(tmp_path / "lake")
    server.capabilities = replace(CAPABILITIES, no_alter="", no_rename="")
    ns.create_table(api.CreateTableRequest(id=TABLE, properties={"managed_by": "impl"}), ipc(ROWS))
    yield ns, server
    for name in [name for name, each in SERVERS.items() if each is server]:
        del SERVERS[name]


Able = tuple[MemoryNamespace, MemoryServer]


@pytest.mark.spec("operations.md#errors-of-finding-the-table")
@pytest.mark.parametrize("method", METHODS)
def test_a_method_of_managed_tables_finds_its_table_or_says_why_not(
    able: Able, method: str
) -> None:
    ns, server = able
    call = getattr(ns, method)
    with pytest.raises(errors.NamespaceNotFoundError):
        call([*DATABASE[:-1], "nope", "orders"])
    with pytest.raises(errors.TableNotFoundError):
        call([*DATABASE, "nope"])
    for names in ([], ["orders"]):
        with pytest.raises(errors.InvalidInputError):
            call(names)
    record = server.tables[KEY]
    server.tables[KEY] = replace(record, properties={"table_type": "ICEBERG"})
    with pytest.raises(errors.InvalidInputError):
        call(TABLE)
    server.tables[KEY] = replace(record, location=None)
    with pytest.raises(errors.InvalidTableStateError):
        call(TABLE)


@pytest.mark.spec("operations.md#list_out_of_band_versions")
@pytest.mark.parametrize("method", OF_MANAGED_TABLES)
def test_a_method_on_a_table_that_its_storage_manages_is_invalid_input(
    able: Able, method: str
) -> None:
    ns, server = able
    ns.release_table(TABLE)
    before = server.tables[KEY]
    with pytest.raises(errors.InvalidInputError, match="managed by its storage"):
        getattr(ns, method)(TABLE)
    assert server.tables[KEY] == before


@pytest.mark.parametrize(
    "method", [name for name in OF_MANAGED_TABLES if not name.startswith("list")]
)
def test_a_method_of_managed_tables_waits_for_no_holder(able: Able, method: str) -> None:
    ns, server = able
    write_past_the_catalog(server)
    record = server.tables[KEY]
    held = {
        **record.properties,
        LATEST: TableEntry(ns.connection, record).managed_state().hold().to_text(),
    }
    server.tables[KEY] = record.with_properties(held)
    with pytest.raises(errors.ConcurrentModificationError, match="try again"):
        getattr(ns, method)(TABLE)
    assert dict(server.tables[KEY].properties) == held


@pytest.mark.spec("operations.md#manage_table")
def test_an_entry_that_others_change_all_the_time_is_not_converted(able: Able) -> None:
    ns, server = able
    ns.release_table(TABLE)
    before = server.tables[KEY]

    def beaten(change: str, moment: str) -> None:
        raise errors.ConcurrentModificationError(f"{change} {moment}")

    server.fault = beaten
    with pytest.raises(errors.ConcurrentModificationError):
        ns.manage_table(TABLE)
    assert server.tables[KEY] == before


def test_versions_with_a_gap_are_not_adopted(able: Able) -> None:
    ns, server = able
    for _ in range(2):
        write_past_the_catalog(server)
    versions = place(server) / "_versions"
    (versions / f"{2**64 - 1 - 2:020d}.manifest").unlink()
    with pytest.raises(errors.InvalidTableStateError, match="do not continue"):
        ns.adopt_out_of_band_versions(TABLE)
    assert TableEntry(ns.connection, server.tables[KEY]).managed_state().version == 1


def place(server: MemoryServer) -> Path:
    return Path((server.tables[KEY].location or "").removeprefix("file://"))


def write_past_the_catalog(server: MemoryServer) -> None:
    rows: pa.Table = ROWS.slice(0, 1)
    lance.write_dataset(rows, str(place(server)), mode="append")
