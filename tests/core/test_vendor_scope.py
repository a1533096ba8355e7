"""Where credentials may reach: inside the allowed roots, and where no other entry has files."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from lance_namespace import errors

from lance_bridge.catalog import TableRecord
from lance_bridge.credentials import Caller, acting_for
from lance_bridge.credentials.scope import StoragePrefix, parse_root, storage_prefix
from lance_bridge.locations import default_below

from .building import TABLE, at
from .memory_catalog import MemoryCatalog, MemoryNamespace, MemoryServer
from .vending import ASKED, LOCATION, connect, described, put, vendor_properties

pytestmark = [pytest.mark.quick, pytest.mark.spec("common.md#vending-rules")]

# -- where they may reach --------------------------------------------------------------------------


@pytest.mark.spec("common.md#rights-and-lifetime")
@pytest.mark.parametrize(
    "location",
    [
        "s3://lake/private/t", "s3://lake/tables", "s3://lake/tables2/t", "s3://lakes/tables/t",
        "s3://lake/table", "s3://lake/tables%2F..%2Fprivate/t", "s3://lake/tables/../private/t",
        "s3://lake/tables/%2e%2e/t", "gs://lake/tables/t", "s3://lake/Tables/t",
        "s3://lake/tables/caf%E9/t", "s3://arn:aws:s3:eu-1:1:accesspoint/ap/tables/t",
        "s3://lake-s3alias/tables/t",
    ],
)  # fmt: skip
def test_a_location_outside_the_allowed_roots_gets_none(
    server: MemoryServer, vending: MemoryNamespace, log: str, location: str
) -> None:
    put(server, "x", location)
    with pytest.raises((errors.PermissionDeniedError, errors.InvalidInputError)):
        described(vending, "x")
    assert ASKED[log] == []


def test_a_location_that_was_changed_in_the_entry_is_checked_again(
    server: MemoryServer, vending: MemoryNamespace
) -> None:
    described(vending)
    put(server, TABLE[-1], "s3://lake/private/t")
    with pytest.raises(errors.PermissionDeniedError, match="inside no root"):
        described(vending)


@pytest.mark.parametrize(
    ("location", "prefix"),
    [
        ("s3a://lake/tables/t/", "tables/t"),
        ("s3://lake/tables/./t", "tables/t"),
        ("s3://lake/tables/a%20b", "tables/a b"),
        ("s3://lake/tables/a%2525b", "tables/a%25b"),
        ("s3://lake/tables%2Ft", "tables/t"),
        ("s3://lake/tables/${aws:username}*?".replace("?", "%3F"), "tables/${aws:username}*?"),
        ("s3://lake/tables/ü😀", "tables/ü😀"),
    ],
)
def test_a_prefix_is_what_lance_makes_of_the_location(
    server: MemoryServer, vending: MemoryNamespace, log: str, location: str, prefix: str
) -> None:
    put(server, TABLE[-1], location)
    described(vending)
    assert ASKED[log][0].prefix == prefix


def test_an_account_of_azure_is_part_of_the_root() -> None:
    root = parse_root("abfss://lake@one.dfs.core.windows.net/tables")
    assert root == StoragePrefix("az", "lake", ("tables",), "one")
    assert root.contains(storage_prefix("abfss://lake@one.dfs.core.windows.net/tables/t"))
    assert not root.contains(storage_prefix("abfss://lake@two.dfs.core.windows.net/tables/t"))
    assert not root.contains(storage_prefix("az://lake/tables/t"))


# -- other entries ---------------------------------------------------------------------------------


@pytest.mark.spec("common.md#rights-and-lifetime")
@pytest.mark.parametrize(
    "other",
    [LOCATION, "s3://lake/tables/t.lance/data", "s3a://lake/tables/", "s3n://lake/tables/t.lance/"],
)
@pytest.mark.parametrize("table_type", ["lance", "iceberg"])
def test_a_table_that_shares_its_location_gets_none(
    server: MemoryServer, vending: MemoryNamespace, log: str, other: str, table_type: str
) -> None:
    put(server, "other", other, properties={"table_type": table_type})
    with pytest.raises(errors.InvalidTableStateError, match=r"overlaps that of .*other"):
        described(vending)
    assert ASKED[log] == []


@pytest.mark.parametrize("other", ["s3://lake/tables/t.lance2", "s3://lake/tables/t", "s3://x/y"])
def test_a_neighbour_is_no_reason_to_refuse(
    server: MemoryServer, vending: MemoryNamespace, other: str
) -> None:
    put(server, "other", other)
    assert described(vending)


def test_an_entry_that_cannot_be_read_may_be_anywhere(
    server: MemoryServer, vending: MemoryNamespace
) -> None:
    server.tables[at("odd")] = TableRecord.unreadable(at("odd"))
    with pytest.raises(errors.InvalidTableStateError, match=r"odd' cannot be read.*check-sharing"):
        described(vending)


def test_hidden_entries_count(server: MemoryServer, vending: MemoryNamespace) -> None:
    server.hidden.append(TableRecord(("elsewhere", "h"), LOCATION))
    with pytest.raises(errors.InvalidTableStateError, match=r"overlaps that of 'elsewhere\.h'"):
        described(vending)


def test_only_the_tables_own_namespace_is_read_where_the_property_says_so(
    server: MemoryServer, request: pytest.FixtureRequest, log: str
) -> None:
    put(server, TABLE[-1], LOCATION)
    server.hidden.append(TableRecord(("elsewhere", "h"), LOCATION))
    narrow = vendor_properties(log, **{"credentials.check-sharing": "namespace"})
    namespace = connect(request, **narrow)
    assert described(namespace)
    put(server, "b", f"{LOCATION}2")
    put(server, "c", f"{LOCATION}2/x")
    with pytest.raises(errors.InvalidTableStateError, match="overlaps"):
        described(connect(request, **narrow), "b")


@pytest.fixture
def scans(monkeypatch: pytest.MonkeyPatch) -> list[object]:
    """The namespaces whose entries were read, in order."""
    found: list[object] = []
    scan = MemoryCatalog.scan_tables

    def counted(self: MemoryCatalog, namespace: Any, **more: Any) -> Any:
        found.append(namespace)
        return scan(self, namespace, **more)

    monkeypatch.setattr(MemoryCatalog, "scan_tables", counted)
    return found


def test_entries_are_read_once_for_many_tables(
    server: MemoryServer, vending: MemoryNamespace, scans: list[object]
) -> None:
    for number in range(20):
        put(server, f"t{number}", f"s3://lake/tables/n{number}")
        assert described(vending, f"t{number}")
    assert len(scans) == 1


def test_an_entry_that_has_gone_or_moved_since_is_no_reason_to_refuse(
    server: MemoryServer, vending: MemoryNamespace
) -> None:
    put(server, "old", "s3://lake/tables/n")
    put(server, "older", "s3://lake/tables/n/x")
    assert described(vending)
    del server.tables[at("old")]
    put(server, "older", "s3://lake/tables/m")
    put(server, "new", "s3://lake/tables/n")
    assert described(vending, "new")


@pytest.fixture
def principal() -> Iterator[None]:
    """Whom a server answers, and who may read and write the tables that it asks for."""
    with acting_for(Caller("anna", lambda _: True)):
        yield


@pytest.mark.usefixtures("principal")
def test_a_location_that_was_chosen_since_is_compared_with_new_entries(
    server: MemoryServer, vending: MemoryNamespace, log: str
) -> None:
    described(vending)
    put(server, "new", "s3://lake/tables/new.lance")
    put(server, "inside", "s3://lake/tables/new.lance/data")
    with pytest.raises(errors.InvalidTableStateError, match=r"overlaps that of .*new"):
        described(vending, "inside")
    put(server, TABLE[-1], "s3://lake/tables/old.lance")
    put(server, "around", "s3://lake/tables/old.lance")
    with pytest.raises(errors.InvalidTableStateError, match="overlaps"):
        described(vending, TABLE[-1])
    assert len(ASKED[log]) == 1


@pytest.mark.usefixtures("principal")
def test_entries_are_read_again_for_none_that_is_known_or_at_its_default_location(
    server: MemoryServer, scans: list[object], request: pytest.FixtureRequest, log: str
) -> None:
    namespace = connect(request, root="s3://lake/tables", **vendor_properties(log))
    known, default, chosen = TABLE[-1], "default", "chosen"
    put(server, known, "s3://lake/tables/known.lance")
    assert described(namespace, known, vend_credentials=True)
    put(server, default, default_below("s3://lake/tables", at(default)))
    assert described(namespace, default)
    assert described(namespace, known)
    assert len(scans) == 1
    put(server, chosen, "s3://lake/tables/chosen.lance")
    assert described(namespace, chosen)
    assert len(scans) == 2
