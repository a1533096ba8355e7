"""Listings on the catalog page: of tables that are not Lance's, and those that take long."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import lance_namespace as api
import pytest
from core.memory_catalog import SERVERS
from lance_namespace.errors import ServiceUnavailableError
from server.gateways import cedar, clients, declare, memory_namespace
from server.ui.browsers import HtmlPage

from lance_bridge.catalog import CatalogColumn, TableRecord
from lance_bridge_federated import FederatedNamespace
from lance_bridge_server.ui import caches
from lance_bridge_server.ui.caches import TableNames
from lance_bridge_server.ui.foreign import columns_in

pytestmark = [pytest.mark.quick, pytest.mark.spec("server.md#the-catalog-page")]

# -- tables that are not Lance's -------------------------------------------------------------------


SPARK = {
    "type": "struct",
    "fields": [
        {"name": "id", "type": "long", "nullable": False},
        {
            "name": "lines",
            "type": {
                "type": "array",
                "elementType": {
                    "type": "struct",
                    "fields": [{"name": "sku", "type": "string", "nullable": True}],
                },
            },
            "nullable": True,
        },
        {"name": "sizes", "type": {"type": "map", "keyType": "string", "valueType": "double"}},
    ],
}
ICEBERG = {
    "type": "struct",
    "fields": [
        {"id": 1, "name": "id", "required": True, "type": "long"},
        {"id": 2, "name": "tags", "required": False, "type": {"type": "list", "element": "string"}},
    ],
}
FORMATS = {"articles": "Lance", "events": "Iceberg", "orders": "Parquet", "pay": "unknown"}
SEEING = """
permit(principal, action in Action::"see", resource);
forbid(principal == User::"bob", action, resource == Table::"prod.sales.pay");
"""


@pytest.fixture(scope="module")
def client_of(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    directory = tmp_path_factory.mktemp("foreign")
    prod = memory_namespace(directory)
    declare(prod, "sales.articles")
    tables = SERVERS[str(directory)].tables
    for name, properties in {
        "orders": {
            "spark.sql.sources.schema": json.dumps(SPARK),
            "spark.sql.sources.provider": "parquet",
            "owner.password": "s3cret-word",
        },
        "events": {"current-schema": json.dumps(ICEBERG), "table_type": "ICEBERG"},
        "pay": {},
    }.items():
        path = ("sales", name)
        tables[path] = TableRecord(path, f"s3://lake/{name}", properties, "EXTERNAL_TABLE")
    catalogs = FederatedNamespace({"prod": prod})
    with clients(catalogs, cedar(directory, SEEING)) as client_of:
        yield client_of


def _page(client_of: Any, path: str, user: str = "ann") -> HtmlPage:
    response = client_of(user)("GET", path)
    assert response.status_code == 200, response.text
    return HtmlPage.of(response.text)


@pytest.mark.spec("docs/how-to/browse-a-catalog.md#use-it-elsewhere")
def test_they_are_listed_beside_lance_tables(client_of: Any) -> None:
    namespace = _page(client_of, "/ui/namespace/prod/sales")
    assert namespace.links["orders"] == "/ui/other/prod/sales/orders"
    assert namespace.links["articles"] == "/ui/table/prod/sales/articles"
    formats = {name: namespace.cells[namespace.cells.index(name) + 1] for name in FORMATS}
    assert formats == FORMATS


def test_one_has_its_schema_type_and_location(client_of: Any) -> None:
    page = _page(client_of, "/ui/other/prod/sales/orders")
    assert {"id", "long", "lines", "list of struct", "sku", "map of string to double"} <= set(
        page.cells
    )
    assert "EXTERNAL_TABLE" in page.text
    assert "s3://lake/orders" in page.text
    assert "list of string" in _page(client_of, "/ui/other/prod/sales/events").cells


def test_one_without_a_schema_in_its_properties_has_the_columns_of_the_catalog(
    tmp_path: Path,
) -> None:
    namespace = memory_namespace(tmp_path)
    namespace.create_namespace(api.CreateNamespaceRequest(id=["db"]))
    server, path = SERVERS[str(tmp_path)], ("db", "days")
    server.tables[path] = TableRecord(path, entry_type="TABLE")
    server.columns[path] = [
        CatalogColumn("id", "bigint", nullable=False, comment="counted"),
        CatalogColumn("day", "date", is_partition=True),
    ]
    with clients(namespace, cedar(tmp_path, SEEING)) as client_of:
        cells = _page(client_of, "/ui/other/db/days").cells
    rows = [cells[at : at + 4] for at in range(4, len(cells), 4)][:2]
    assert rows == [["id", "bigint", "no", "counted"], ["day", "date partition", "yes", ""]]


def test_no_secret_of_one_is_shown(client_of: Any) -> None:
    page = _page(client_of, "/ui/other/prod/sales/orders")
    assert "owner.password" in page.cells
    assert "s3cret-word" not in page.text


def _matches(client_of: Any, word: str, *scopes: str, user: str = "ann") -> HtmlPage:
    response = client_of(user)("GET", "/ui/search", params={"q": word, "in": scopes or ["name"]})
    assert response.status_code == 200, response.text
    return HtmlPage.of(response.text)


@pytest.mark.spec("server.md#search-on-a-page")
def test_a_search_finds_them_with_their_formats(client_of: Any) -> None:
    page = _matches(client_of, "sales.")
    assert page.links["prod.sales.orders"] == "/ui/other/prod/sales/orders"
    assert page.links["prod.sales.articles"] == "/ui/table/prod/sales/articles"
    formats = {each: page.cells[page.cells.index(f"prod.sales.{each}") + 1] for each in FORMATS}
    assert formats == FORMATS
    assert "pay" not in _matches(client_of, "sales.", user="bob").text


@pytest.mark.spec("server.md#search-on-a-page")
def test_a_search_says_where_in_them_it_found_a_word(client_of: Any) -> None:
    page = _matches(client_of, "sku", "column", "property")
    at = page.cells.index("prod.sales.orders")
    assert page.cells[at : at + 4] == [
        "prod.sales.orders", "Parquet", "column", "lines.sku: string",
    ]  # fmt: skip
    found = _matches(client_of, "owner.password", "property").cells
    assert "owner.password=(not shown)" in found


@pytest.mark.spec("server.md#search-on-a-page")
def test_a_search_finds_no_secret(client_of: Any) -> None:
    assert "0 matches" in _matches(client_of, "s3cret", "name", "column", "property").text


def test_hidden_ones_are_as_missing_ones(client_of: Any) -> None:
    assert "pay" not in _page(client_of, "/ui/namespace/prod/sales", "bob").links
    statuses = [
        client_of("bob")("GET", f"/ui/other/prod/sales/{name}").status_code
        for name in ("pay", "absent")
    ]
    assert statuses == [404, 404]


@pytest.mark.parametrize(
    "properties",
    [
        {},
        {"spark.sql.sources.schema": "{"},
        {"spark.sql.sources.schema": "[]"},
        {"spark.sql.sources.schema": '{"fields": [1]}'},
        {"spark.sql.sources.schema.numParts": "99999999"},
        {"current-schema": "null"},
    ],
)
def test_a_schema_that_cannot_be_read_is_none(properties: Mapping[str, str]) -> None:
    assert columns_in(properties) == ([], set())


def test_a_schema_in_parts_is_put_together() -> None:
    text = json.dumps(SPARK)
    parts = {
        "spark.sql.sources.schema.numParts": "2",
        "spark.sql.sources.schema.part.0": text[:40],
        "spark.sql.sources.schema.part.1": text[40:],
    }
    columns, keys = columns_in(parts)
    assert [(each.name, each.depth) for each in columns] == [
        ("id", 0), ("lines", 0), ("sku", 1), ("sizes", 0),
    ]  # fmt: skip
    assert keys == set(parts)


# -- listings that take long, which pages share for a while ----------------------------------------


POLICIES = """
permit(principal, action in Action::"see", resource);
forbid(principal == User::"bob", action, resource == Table::"prod.db.t050");
"""


class Counted:
    """Counts the listings of a namespace's catalog, and may fail them."""

    def __init__(self, namespace: Any, patch: pytest.MonkeyPatch) -> None:
        self.count = 0
        self.error: Exception | None = None
        catalog = namespace.tables.connection.catalog
        self._list = catalog.list_tables
        self._lock = threading.Lock()
        patch.setattr(catalog, "list_tables", self.list_tables)

    def list_tables(self, *arguments: Any, **options: Any) -> Any:
        with self._lock:
            self.count += 1
        if self.error is not None:
            raise self.error
        return self._list(*arguments, **options)


@pytest.fixture
def namespace(tmp_path: Path) -> Any:
    namespace = memory_namespace(tmp_path)
    declare(namespace, *(f"db.t{i:03}" for i in range(100)))
    return namespace


@pytest.fixture
def counted(namespace: Any, monkeypatch: pytest.MonkeyPatch) -> Counted:
    """A catalog each of whose listings counts as long."""
    monkeypatch.setattr(caches, "_LONG_SECONDS", 0.0)
    return Counted(namespace, monkeypatch)


def _request(token: str | None = None, limit: int | None = 30) -> Any:
    return api.ListTablesRequest(id=["db"], limit=limit, page_token=token)


def test_pages_of_a_long_listing_are_of_one_call(namespace: Any, counted: Counted) -> None:
    names, found, token = TableNames(), [], None
    while True:
        page = names.list_tables(namespace, _request(token))
        found += page.tables
        token = page.page_token
        if not token:
            break
    assert found == [f"t{i:03}" for i in range(100)]
    assert counted.count == 1
    assert names.list_tables(namespace, _request(limit=None)).tables == found


def test_requests_at_the_same_time_list_once(namespace: Any, counted: Counted) -> None:
    names = TableNames()
    with ThreadPoolExecutor(8) as threads:
        list(threads.map(lambda _: names.list_tables(namespace, _request()), range(8)))
    assert counted.count == 1


def test_a_quick_listing_is_made_each_time(
    namespace: Any, counted: Counted, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(caches, "_LONG_SECONDS", 1e9)
    names = TableNames()
    names.list_tables(namespace, _request())
    declare(namespace, "db.a")
    assert names.list_tables(namespace, _request()).tables[0] == "a"
    assert counted.count == 2


def test_old_names_are_listed_in_the_background(
    namespace: Any, counted: Counted, monkeypatch: pytest.MonkeyPatch
) -> None:
    names = TableNames()
    names.list_tables(namespace, _request())
    declare(namespace, "db.a")
    assert names.list_tables(namespace, _request()).tables[0] == "t000"
    monkeypatch.setattr(caches, "_FRESH_SECONDS", 0.0)
    deadline = time.monotonic() + 60
    while names.list_tables(namespace, _request()).tables[0] != "a":
        assert time.monotonic() < deadline
    assert counted.count > 1


def test_names_are_complete_if_the_background_stops_caching_them(
    namespace: Any, counted: Counted, monkeypatch: pytest.MonkeyPatch
) -> None:
    names = TableNames()
    found = names.list_tables(namespace, _request(limit=None)).tables
    [kept] = names._kept[namespace].values()

    class Limit(float):
        """Lists the names in the background as soon as their age was compared with it."""

        def __ge__(self, age: float) -> bool:
            kept.list_again(namespace, ("db",))  # quick now, so they are not cached
            return float(self) >= age

    monkeypatch.setattr(caches, "_LONG_SECONDS", 1e9)
    monkeypatch.setattr(caches, "_MOST_SECONDS", Limit(600.0))
    assert names.list_tables(namespace, _request(limit=None)).tables == found
    assert len(found) == 100
    assert counted.count == 2


def test_a_listing_that_fails_in_the_background_is_not_shown_for_long(
    namespace: Any, counted: Counted, monkeypatch: pytest.MonkeyPatch
) -> None:
    names = TableNames()
    names.list_tables(namespace, _request())
    counted.error = ServiceUnavailableError("The metastore does not answer")
    monkeypatch.setattr(caches, "_FRESH_SECONDS", 0.0)
    deadline = time.monotonic() + 60
    with pytest.raises(ServiceUnavailableError):
        _list_until(names, namespace, deadline)


def _list_until(names: TableNames, namespace: Any, deadline: float) -> None:
    while time.monotonic() < deadline:
        names.list_tables(namespace, _request())


def test_names_that_are_kept_are_filtered_for_each_principal(
    namespace: Any, counted: Counted, tmp_path: Path
) -> None:
    catalogs = {"prod": namespace}
    with clients(FederatedNamespace(catalogs), cedar(tmp_path, POLICIES)) as client_of:
        seen = {
            user: HtmlPage.of(client_of(user)("GET", "/ui/namespace/prod/db").text).links
            for user in ("ann", "bob")
        }
        found = client_of("bob")("GET", "/ui/search", params={"q": "t05"})
    assert "t050" in seen["ann"]
    assert "t050" not in seen["bob"]
    assert "9 matches" in HtmlPage.of(found.text).text
    assert counted.count == 1
