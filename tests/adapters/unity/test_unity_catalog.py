"""The open-source server through the adapter: entries, requests, races, what it cannot do."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing

import pytest
from lance_namespace.errors import (
    InternalError,
    InvalidInputError,
    NamespaceAlreadyExistsError,
    NamespaceNotEmptyError,
    NamespaceNotFoundError,
    TableAlreadyExistsError,
    TableNotFoundError,
    UnsupportedOperationError,
)
from servers.http_proxy import Answer, Fault, HttpProxy, Request
from servers.unity import DIALECTS, OPEN_SOURCE_0_3, OPEN_SOURCE_0_4, OPEN_SOURCE_0_6, UnityServer

from lance_bridge.catalog import Column, NamespaceRecord, TableRecord
from lance_bridge.config import load
from lance_bridge_unity import UnityConfig
from lance_bridge_unity.catalog import UnityCatalog
from lance_bridge_unity.client import Client

from .building import ID, TABLE, Connect, record

OPEN_SOURCE = [OPEN_SOURCE_0_3.name, OPEN_SOURCE_0_4.name, OPEN_SOURCE_0_6.name]


def namespace(*path: str, **properties: str) -> NamespaceRecord:
    return NamespaceRecord(path, {ID: "1", **properties})


# -- dialects ------------------------------------------------------------------------------------


@pytest.mark.parametrize("dialect", OPEN_SOURCE)
def test_every_release_says_what_is_missing_and_what_is_taken(dialect: str) -> None:
    with UnityServer(DIALECTS[dialect]) as server:
        server.add_catalog("c")
        server.add_schema("c", "s")
        config = load(UnityConfig, "unity", {"host": server.url, "root": "/data"})
        with closing(UnityCatalog(config)) as catalog:
            catalog.create_table(record())
            for make, kind in (
                (lambda: catalog.create_table(record(own="2")), TableAlreadyExistsError),
                (lambda: catalog.create_namespace(namespace("c")), NamespaceAlreadyExistsError),
                (
                    lambda: catalog.create_namespace(namespace("c", "s")),
                    NamespaceAlreadyExistsError,
                ),
                (lambda: catalog.load_table(("c", "s", "x")), TableNotFoundError),
                (lambda: catalog.load_namespace(("x",)), NamespaceNotFoundError),
                (lambda: catalog.load_namespace(("c", "x")), NamespaceNotFoundError),
                (lambda: list(catalog.scan_tables(("c", "x"))), NamespaceNotFoundError),
                (lambda: catalog.list_namespaces(("x",)), NamespaceNotFoundError),
                (lambda: catalog.create_namespace(namespace("x", "s")), NamespaceNotFoundError),
                (
                    lambda: catalog.create_table(TableRecord(("c", "x", "t"), "/p", {})),
                    NamespaceNotFoundError,
                ),
                (lambda: catalog.drop_table(record("x")), TableNotFoundError),
                (lambda: catalog.drop_namespace(("c", "x")), NamespaceNotFoundError),
                (lambda: catalog.drop_namespace(("c", "s")), NamespaceNotEmptyError),
                (lambda: catalog.drop_namespace(("c",)), NamespaceNotEmptyError),
            ):
                with pytest.raises(kind):
                    make()
            catalog.drop_table(record())
            catalog.drop_namespace(("c", "s"))
            catalog.drop_namespace(("c",))
            assert list(catalog.list_namespaces(())) == []


# -- tables --------------------------------------------------------------------------------------


def test_columns_reach_the_server(server: UnityServer, connect: Connect) -> None:
    vector = {"type": "array", "elementType": "float", "containsNull": True}
    columns = (Column("id", "long", nullable=False), Column("v", vector))
    made = TableRecord(TABLE, "file:///data/t", {ID: "1"}, columns=columns)
    connect().create_table(made)
    with closing(_raw(server)) as raw:
        found = raw.get("/api/2.1/unity-catalog/tables/c.s.t")["columns"]
    assert [(c["name"], c["type_name"], c["nullable"]) for c in found] == [
        ("id", "LONG", False),
        ("v", "ARRAY", True),
    ]


def test_describing_is_one_request_and_listing_one_per_page(
    server: UnityServer, proxy: HttpProxy, connect: Connect
) -> None:
    for number in range(300):
        server.add_table("c", "s", f"t{number:03}", properties={"table_type": "lance"})
    catalog = connect()
    catalog.load_table(("c", "s", "t000"))
    assert sum(proxy.counts.values()) == 1
    assert len(list(catalog.list_tables(("c", "s"), lance_only=True))) == 300
    # Three full pages, and an empty one that says that there are no more.
    assert sum(proxy.counts.values()) == 1 + 4
    assert len(list(catalog.list_tables(("c", "s")))) == 300
    assert sum(proxy.counts.values()) == 1 + 4 + 4


def test_listings_leave_out_what_they_do_not_need(
    server: UnityServer, proxy: HttpProxy, connect: Connect
) -> None:
    server.add_table("c", "s", "t")
    list(connect().scan_tables(("c", "s")))
    list(connect().list_tables(("c", "s")))
    scan, names = (request.path for request in proxy.requests)
    assert "omit_columns=true" in scan
    assert "omit_properties" not in scan
    assert "omit_properties=true" in names


def test_a_name_that_two_creators_broke_is_listed_and_stops_nothing(
    server: UnityServer, connect: Connect
) -> None:
    for own in ("1", "2"):
        server.add_table("c", "s", "broken", properties={ID: own})
    server.add_table("c", "s", "whole")
    names = [found.path[-1] for found in connect().scan_tables(("c", "s"))]
    assert "whole" in names


def test_an_entry_without_a_name_is_listed_as_one_that_cannot_be_read(
    connect: Connect, proxy: HttpProxy
) -> None:
    rows = [
        {"name": "good", "table_type": "EXTERNAL"},
        {"table_id": "x7", "table_type": "EXTERNAL"},
    ]
    proxy.fail_next(
        lambda request: "/tables" in request.path, Answer.of_json(200, {"tables": rows})
    )
    found = list(connect().scan_tables(("unity", "default")))
    assert [record.path[-1] for record in found] == ["good", "x7"]
    assert found[1] == TableRecord.unreadable(("unity", "default", "x7"))


def test_properties_cannot_change(connect: Connect) -> None:
    catalog = connect()
    made = catalog.create_table(record())
    with pytest.raises(UnsupportedOperationError, match="no call that changes a table"):
        catalog.alter_table(made.with_properties({"a": "b"}))


def test_dropping_never_asks_for_force(proxy: HttpProxy, connect: Connect) -> None:
    catalog = connect()
    catalog.create_table(record())
    catalog.drop_table(record())
    catalog.drop_namespace(("c", "s"))
    catalog.drop_namespace(("c",))
    assert not [request.path for request in proxy.requests if "force" in request.path]


# -- renaming ------------------------------------------------------------------------------------


@pytest.mark.parametrize("exists", [True, False])
def test_an_old_server_cannot_rename_a_table_or_a_missing_one(exists: bool) -> None:
    with UnityServer(OPEN_SOURCE_0_4) as server:
        server.add_catalog("c")
        server.add_schema("c", "s")
        if exists:
            server.add_table("c", "s", "t")
        config = load(UnityConfig, "unity", {"host": server.url})
        with (
            closing(UnityCatalog(config)) as catalog,
            pytest.raises(UnsupportedOperationError, match="older than Unity Catalog"),
        ):
            catalog.rename_table(record(), ("c", "s", "u"))


# -- creating against others ---------------------------------------------------------------------


def test_of_threads_that_create_one_name_exactly_one_does(
    server: UnityServer, connect: Connect
) -> None:
    server.state.race_window = 0.2  # two creators within it would both succeed
    catalogs = [connect() for _ in range(8)]
    together = threading.Barrier(len(catalogs))

    def create(number: int) -> bool:
        together.wait()
        try:
            catalogs[number].create_table(record(own=str(number)))
        except TableAlreadyExistsError:
            return False
        return True

    with ThreadPoolExecutor(len(catalogs)) as threads:
        won = list(threads.map(create, range(len(catalogs))))
    assert won.count(True) == 1
    assert connect().load_table(TABLE).properties[ID] == str(won.index(True))


def test_a_name_that_concurrent_clients_broke_is_reported_as_broken(
    server: UnityServer, connect: Connect
) -> None:
    with closing(_Rival(server, "t")) as rival, pytest.raises(InternalError, match="same name"):
        connect(host=rival.endpoint).create_table(record())


def test_a_name_that_another_client_got_is_taken(server: UnityServer, connect: Connect) -> None:
    with (
        closing(_Rival(server, "t", replaces=True)) as rival,
        pytest.raises(TableAlreadyExistsError),
    ):
        connect(host=rival.endpoint).create_table(record())


# -- namespaces ----------------------------------------------------------------------------------


def test_the_storage_root_of_a_namespace_cannot_change(connect: Connect) -> None:
    catalog = connect()
    with pytest.raises(InvalidInputError, match=r"schema\.storage-root"):
        catalog.alter_namespace(namespace("c", "s", **{"schema.storage-root": "s3://b/new"}))


def test_reading_a_schema_is_one_request(proxy: HttpProxy, connect: Connect) -> None:
    assert connect(root="").load_namespace(("c", "s")).location is None
    assert sum(proxy.counts.values()) == 1


# -- a pinned catalog ----------------------------------------------------------------------------


def test_under_a_pinned_catalog_names_are_two(connect: Connect) -> None:
    pinned = connect(catalog="c")
    made = pinned.create_table(TableRecord(("s", "t"), "file:///data/t", {ID: "1"}))
    assert made.path == ("s", "t")
    assert [found.path for found in pinned.scan_tables(("s",))] == [("s", "t")]
    assert list(pinned.list_namespaces(())) == ["s"]
    pinned.rename_table(made, ("s", "u"))
    assert connect().load_table(("c", "s", "u")).identity == made.identity
    assert pinned.load_namespace(("s",)).path == ("s",)


def test_a_missing_pinned_catalog_is_named(connect: Connect) -> None:
    with pytest.raises(NamespaceNotFoundError, match="not found: nowhere"):
        connect(catalog="nowhere").list_namespaces(())


# -- helpers -------------------------------------------------------------------------------------


def _raw(server: UnityServer) -> Client:
    return Client(load(UnityConfig, "unity", {"host": server.url}))


class _Rival:
    """A proxy behind which another client creates the same name, right after it was created."""

    def __init__(self, server: UnityServer, name: str, *, replaces: bool = False) -> None:
        self._proxy = HttpProxy(server.url)
        self._proxy.__enter__()
        self.endpoint = self._proxy.endpoint
        self._act(server, name, replaces)

    def close(self) -> None:
        self._proxy.__exit__(None, None, None)

    def _act(self, server: UnityServer, name: str, replaces: bool) -> None:
        def steps_in(request: Request) -> bool:
            if request.method == "GET" and request.path.endswith(f".{name}"):
                if replaces:
                    server.remove_table("c", "s", name)
                server.add_table("c", "s", name, properties={ID: "the rival's"})
            return False

        self._proxy.fail_next(steps_in, Fault.RESET)
