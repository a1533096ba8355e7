"""Tables that are not Lance's, on the catalog page."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import lance_namespace as api
import pytest
from core.memory_catalog import SERVERS
from server.policies import cedar, clients, declare, memory_namespace
from server.ui.browsers import HtmlPage

from lance_bridge.catalog import TableRecord
from lance_bridge_federated import FederatedNamespace
from lance_bridge_server.ui.foreign_schema import columns_in

pytestmark = [pytest.mark.quick, pytest.mark.spec("server.md#the-catalog-page")]

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
POLICIES = """
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
        "orders": {"spark.sql.sources.schema": json.dumps(SPARK), "owner.password": "s3cret-word"},
        "events": {"current-schema": json.dumps(ICEBERG)},
        "pay": {},
    }.items():
        path = ("sales", name)
        tables[path] = TableRecord(path, f"s3://lake/{name}", properties, "EXTERNAL_TABLE")
    catalogs = FederatedNamespace({"prod": prod})
    with clients(catalogs, cedar(directory, POLICIES)) as client_of:
        yield client_of


def _get(client_of: Any, path: str, user: str = "ann") -> HtmlPage:
    response = client_of(user)("GET", path)
    assert response.status_code == 200, response.text
    return HtmlPage.of(response.text)


@pytest.mark.spec("docs/how-to/browse-a-catalog.md#use-it-elsewhere")
def test_they_are_listed_beside_lance_tables(client_of: Any) -> None:
    namespace = _get(client_of, "/ui/namespace/prod/sales")
    assert "orders" not in namespace.links
    others = _get(client_of, namespace.links["Tables of other formats"])
    assert {"orders", "events", "pay"} <= set(others.links)
    assert "articles" not in others.links


def test_one_has_its_schema_type_and_location(client_of: Any) -> None:
    page = _get(client_of, "/ui/other/prod/sales/orders")
    assert {"id", "long", "lines", "list of struct", "sku", "map of string to double"} <= set(
        page.cells
    )
    assert "EXTERNAL_TABLE" in page.text
    assert "s3://lake/orders" in page.text
    assert "list of string" in _get(client_of, "/ui/other/prod/sales/events").cells


def test_no_secret_of_one_is_shown(client_of: Any) -> None:
    page = _get(client_of, "/ui/other/prod/sales/orders")
    assert "owner.password" in page.cells
    assert "s3cret-word" not in page.text


def test_hidden_ones_are_as_missing_ones(client_of: Any) -> None:
    assert "pay" not in _get(client_of, "/ui/others/prod/sales", "bob").links
    statuses = [
        client_of("bob")("GET", f"/ui/other/prod/sales/{name}").status_code
        for name in ("pay", "absent")
    ]
    assert statuses == [404, 404]


def test_many_come_in_pages(tmp_path: Path) -> None:
    namespace = memory_namespace(tmp_path)
    namespace.create_namespace(api.CreateNamespaceRequest(id=["db"]))
    for index in range(120):
        path = ("db", f"t{index:03}")
        SERVERS[str(tmp_path)].tables[path] = TableRecord(path, entry_type="TABLE")
    with clients(namespace, cedar(tmp_path, POLICIES)) as client_of:
        first = _get(client_of, "/ui/others/db")
        second = _get(client_of, first.links["Next page"])
    names = [{each for each in page.links if each.startswith("t")} for page in (first, second)]
    assert [len(each) for each in names] == [100, 20]
    assert not names[0] & names[1]


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
