"""How many calls an operation needs, and what each of them is for."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice
from pathlib import Path

import pytest
from lance_namespace.errors import NamespaceNotFoundError
from servers.hive_entries import open_catalog, raw_client, raw_table
from servers.proxy import Refusal, ThriftProxy

import lance_bridge_hive.catalog as adapter
from lance_bridge.catalog import TableRecord
from lance_bridge.testing.calls import Calls, rows
from lance_bridge_hive.catalog import HiveCatalog
from lance_bridge_metastore import Metastore

from .conftest import open_calls

pytestmark = [pytest.mark.servers, pytest.mark.spec("hive.md#connections", "hive.md#declaretable")]

READ = {"get_database": 1}
ADD = {"create_table_with_environment_context": 1}
STORAGE = {"managed_by": "storage"}
READ_TABLES = "get_table_objects_by_name_req"
LANCE_TABLES = ["a", "b", "c", "d", "e"]


@pytest.fixture
def proxied(proxy: ThriftProxy, database: str, tmp_path: Path) -> Iterator[Calls]:
    """A client behind the proxy, with a root, which has called nothing yet."""
    assert database
    with open_calls(uri=proxy.uri, root=str(tmp_path / "lake")) as calls:
        proxy.reset()
        yield calls


def test_a_new_table_needs_the_database_and_its_entry(
    proxied: Calls, proxy: ThriftProxy, database: str, tmp_path: Path
) -> None:
    proxied.declare_table([database, "t"])
    assert dict(proxy.calls) == READ | ADD
    proxy.reset()
    proxied.declare_table([database, "u"], location=str(tmp_path / "u"))
    assert dict(proxy.calls) == READ | ADD
    proxy.reset()
    proxied.register_table([database, "v"], str(tmp_path / "v"))
    assert dict(proxy.calls) == READ | ADD
    proxy.reset()
    proxied.create_table([database, "w"], rows(range(3)))
    # The entry is read again after the commit to the storage.
    assert dict(proxy.calls) == READ | ADD | {"get_table_req": 1}


def test_a_request_that_says_who_manages_the_table_needs_no_database(
    proxied: Calls, proxy: ThriftProxy, database: str, tmp_path: Path
) -> None:
    proxied.declare_table([database, "t"], properties=STORAGE)
    assert dict(proxy.calls) == ADD
    proxy.reset()
    proxied.declare_table([database, "u"], location=str(tmp_path / "u"), properties=STORAGE)
    assert dict(proxy.calls) == ADD


# -- the entries of a database: how many calls, which entries, in what order -----------------------


@pytest.fixture
def catalog(proxy: ThriftProxy, monkeypatch: pytest.MonkeyPatch) -> Iterator[HiveCatalog]:
    """The adapter behind the proxy; it reads two entries in a call for pages, four for all."""
    monkeypatch.setattr(adapter, "_PAGE", 2)
    monkeypatch.setattr(adapter, "_BATCH", 4)
    with open_catalog(proxy.uri) as connected:
        yield connected


@pytest.fixture
def filled(metastore: Metastore, database: str, tmp_path: Path) -> str:
    """A database with Lance tables, and two entries of others between them."""
    with raw_client(metastore.port) as client:
        for name in ("e", "c", "a", "other_b", "d", "b", "another"):
            table = raw_table(database, name, str(tmp_path / name))
            if name not in LANCE_TABLES:
                table.parameters = {"EXTERNAL": "TRUE"}
            client.create_table(table)
    return database


def names(records: Iterator[TableRecord]) -> list[str]:
    return [record.path[-1] for record in records]


def test_a_scan_returns_all_entries_in_few_calls(
    catalog: HiveCatalog, proxy: ThriftProxy, filled: str
) -> None:
    found = {r.path: r.is_lance for r in catalog.scan_tables((filled,))}
    assert found == {
        **{(filled, name): True for name in LANCE_TABLES},
        (filled, "another"): False,
        (filled, "other_b"): False,
    }
    assert list(found) == sorted(found)
    assert (proxy.calls["get_all_tables"], proxy.calls[READ_TABLES]) == (1, 2)


def test_an_entry_that_a_batch_lacks_and_that_cannot_be_read_is_no_absent_one(
    catalog: HiveCatalog, proxy: ThriftProxy, filled: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    load = catalog._entries._load_batch
    monkeypatch.setattr(
        catalog._entries,
        "_load_batch",
        lambda path, wanted: [table for table in load(path, wanted) if table.tableName != "c"],
    )
    found = {record.path[-1]: record for record in catalog.scan_tables((filled,))}
    assert found["c"].is_lance
    proxy.fail_next("get_table_req", Refusal("Permission denied: user=somebody"))
    found = {record.path[-1]: record for record in catalog.scan_tables((filled,))}
    assert found["c"] == TableRecord.unreadable((filled, "c"))
    assert list(found) == sorted(found)


def test_lance_tables_are_read_only_as_far_as_they_are_asked_for(
    catalog: HiveCatalog, proxy: ThriftProxy, filled: str
) -> None:
    page = iter(catalog.scan_tables((filled,), lance_only=True, after="a"))
    for wanted, calls in (("b", 1), ("c", 1), ("d", 2), ("e", 2)):
        assert names(islice(page, 1)) == [wanted]
        assert proxy.calls[READ_TABLES] == calls
    assert proxy.calls["get_table_names_by_filter"] == 1


def test_where_the_metastore_cannot_filter_pages_are_read_bit_by_bit_too(
    catalog: HiveCatalog, proxy: ThriftProxy, filled: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    # No metastore at hand refuses our filter. This one is refused for real, and in the same way.
    monkeypatch.setattr(adapter, "_LANCE_FILTER", "hive_filter_field_nonsense__ = 1")
    for _ in range(2):
        assert names(islice(catalog.scan_tables((filled,), lance_only=True, after="c"), 1)) == ["d"]
    assert proxy.calls["get_table_names_by_filter"] == 1
    assert (proxy.calls["get_all_tables"], proxy.calls[READ_TABLES]) == (2, 2)
    assert names(iter(catalog.scan_tables((filled,), lance_only=True))) == LANCE_TABLES
    assert catalog.list_tables((filled,), lance_only=True) == LANCE_TABLES
    with pytest.raises(NamespaceNotFoundError):
        catalog.list_tables(("missing",), lance_only=True)
    assert (proxy.calls["get_table_names_by_filter"], proxy.calls["get_table_req"]) == (1, 0)


def test_listing_makes_one_call_and_describing_one(
    calls: Calls, proxy: ThriftProxy, database: str
) -> None:
    for number in range(3):
        calls.declare_table([database, f"t{number}"])
    with open_calls(uri=proxy.uri) as behind:
        behind.all_namespaces([])
        proxy.reset()
        assert behind.all_tables([database]) == ["t0", "t1", "t2"]
        behind.describe_table([database, "t1"])
    assert dict(proxy.calls) == {"get_table_names_by_filter": 1, "get_table_req": 1}
    assert proxy.connections == 0
