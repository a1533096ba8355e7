"""Entries that are only links to others, and namespaces that the caller may not read."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path
from typing import Any

import lance_namespace as api
import pytest
from lance_namespace import errors

from lance_bridge.catalog import NamespaceRecord, TableRecord
from lance_bridge.catalog import Path as Names

from .building import DATASET, TABLE, count_rows, create
from .memory_catalog import MemoryCatalog, MemoryNamespace, MemoryServer

pytestmark = pytest.mark.quick

LINK = [*DATASET[:-1], "links", "orders"]


@pytest.fixture
def linked(namespace: MemoryNamespace, server: MemoryServer) -> MemoryNamespace:
    """A namespace with a table, and a link to it in another namespace."""
    create(namespace, TABLE)
    server.namespaces[tuple(LINK[:-1])] = NamespaceRecord(tuple(LINK[:-1]))
    server.tables[tuple(LINK)] = replace(
        server.tables[tuple(TABLE)],
        path=tuple(LINK),
        link_to="eu.shop.sales.Orders",
        link_path=tuple(TABLE),
    )
    return namespace


@pytest.mark.spec("glue.md#droptable")
def test_dropping_a_link_never_deletes_the_tables_data(
    linked: MemoryNamespace, server: MemoryServer
) -> None:
    with pytest.raises(errors.InvalidTableStateError, match=r"link to eu\.shop.*eregister"):
        linked.drop_table(api.DropTableRequest(id=LINK))
    assert tuple(LINK) in server.tables
    assert count_rows(linked, TABLE) == 3


@pytest.mark.spec("common.md#dropnamespace")
def test_cascade_over_a_link_changes_nothing(linked: MemoryNamespace, server: MemoryServer) -> None:
    before = dict(server.tables)
    request = api.DropNamespaceRequest(id=LINK[:-1], behavior="Cascade")
    with pytest.raises(errors.InvalidTableStateError, match="link to"):
        linked.drop_namespace(request)
    assert server.tables == before
    assert count_rows(linked, TABLE) == 3


def test_a_link_does_not_keep_its_table_from_being_dropped(
    linked: MemoryNamespace, server: MemoryServer
) -> None:
    place = Path(server.tables[tuple(TABLE)].location.removeprefix("file://"))  # type: ignore[union-attr]  # it has one
    linked.drop_table(api.DropTableRequest(id=TABLE))
    assert tuple(TABLE) not in server.tables
    assert not place.exists()


def test_a_link_to_another_catalogs_table_keeps_what_lies_there(
    linked: MemoryNamespace, server: MemoryServer
) -> None:
    server.tables[tuple(LINK)] = replace(server.tables[tuple(LINK)], link_path=None)
    with pytest.raises(errors.InvalidTableStateError, match="overlaps"):
        linked.drop_table(api.DropTableRequest(id=TABLE))
    assert count_rows(linked, TABLE) == 3


def test_overwriting_a_link_with_other_properties_changes_nothing(
    linked: MemoryNamespace, server: MemoryServer
) -> None:
    server.capabilities = replace(server.capabilities, no_alter="")
    before = dict(server.tables)
    with pytest.raises(errors.InvalidInputError, match="link to"):
        create(linked, LINK, rows=9, mode="Overwrite", properties={"new": "yes"})
    assert server.tables == before
    assert count_rows(linked, TABLE) == 3


def test_a_link_cannot_be_registered_elsewhere(
    linked: MemoryNamespace, server: MemoryServer, tmp_path: Path
) -> None:
    server.capabilities = replace(server.capabilities, no_alter="")
    before = dict(server.tables)
    request = api.RegisterTableRequest(id=LINK, location=str(tmp_path / "other"), mode="Overwrite")
    with pytest.raises(errors.InvalidInputError, match="link to"):
        linked.register_table(request)
    assert server.tables == before


@pytest.fixture
def linked_namespace(linked: MemoryNamespace, server: MemoryServer) -> MemoryNamespace:
    """A namespace that is a link, with what a catalog shows as in it."""
    path = tuple(LINK[:-1])
    server.namespaces[path] = NamespaceRecord(path, link_to="eu.shop.sales")
    return linked


def test_of_a_link_to_a_namespace_only_the_link_is_dropped(
    linked_namespace: MemoryNamespace, server: MemoryServer
) -> None:
    linked_namespace.drop_namespace(api.DropNamespaceRequest(id=LINK[:-1]))
    assert tuple(LINK[:-1]) not in server.namespaces
    assert count_rows(linked_namespace, TABLE) == 3


def test_no_data_is_deleted_through_a_link_to_a_namespace(
    linked_namespace: MemoryNamespace, server: MemoryServer
) -> None:
    seen_through_it = replace(server.tables[tuple(LINK)], link_to="", link_path=None)
    server.tables[tuple(LINK)] = seen_through_it
    with pytest.raises(errors.InvalidTableStateError, match=r"in a link to eu\.shop\.sales"):
        linked_namespace.drop_table(api.DropTableRequest(id=LINK))
    assert server.tables[tuple(LINK)] == seen_through_it
    assert count_rows(linked_namespace, TABLE) == 3


@pytest.mark.spec("glue.md#dropnamespace")
def test_cascade_over_a_linked_namespace_changes_nothing(
    linked_namespace: MemoryNamespace, server: MemoryServer
) -> None:
    before = dict(server.tables)
    request = api.DropNamespaceRequest(id=LINK[:-1], behavior="Cascade")
    with pytest.raises(errors.InvalidInputError, match=r"link to eu\.shop\.sales"):
        linked_namespace.drop_namespace(request)
    assert server.tables == before
    assert tuple(LINK[:-1]) in server.namespaces


@pytest.fixture
def forbidden(
    namespace: MemoryNamespace, server: MemoryServer, monkeypatch: pytest.MonkeyPatch
) -> MemoryNamespace:
    """A namespace with a table, beside one whose tables the caller may not list."""
    create(namespace, TABLE)
    closed = (*DATASET[:-1], "closed")
    server.namespaces[closed] = NamespaceRecord(closed)
    scan = MemoryCatalog.scan_tables

    def guarded(self: MemoryCatalog, path: Names, **options: Any) -> Iterable[TableRecord]:
        if path == closed:
            raise errors.PermissionDeniedError("not for you")
        return scan(self, path, **options)

    monkeypatch.setattr(MemoryCatalog, "scan_tables", guarded)
    return namespace


def test_all_tables_are_listed_without_those_that_the_caller_may_not_see(
    forbidden: MemoryNamespace, caplog: pytest.LogCaptureFixture
) -> None:
    assert forbidden.list_all_tables(api.ListTablesRequest()).tables == ["$".join(TABLE)]
    assert "closed" in caplog.text


def test_a_namespace_that_the_caller_may_not_read_is_refused_by_name(
    forbidden: MemoryNamespace,
) -> None:
    with pytest.raises(errors.PermissionDeniedError):
        forbidden.list_tables(api.ListTablesRequest(id=[*DATASET[:-1], "closed"]))


@pytest.mark.spec(
    "common.md#droptable",
    "common.md#errors-of-every-operation",
    "hive.md#errors-of-every-operation",
)
def test_nothing_is_deleted_where_a_namespace_could_hold_an_entry_that_shares_the_place(
    forbidden: MemoryNamespace, server: MemoryServer
) -> None:
    with pytest.raises(errors.PermissionDeniedError, match=r"drop\.check-sharing"):
        forbidden.drop_table(api.DropTableRequest(id=TABLE))
    assert tuple(TABLE) in server.tables
    assert count_rows(forbidden, TABLE) == 3
