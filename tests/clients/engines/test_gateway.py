"""lance-ray and daft-lance through the gateway, which they reach with ``namespace_impl="rest"``."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import daft
import daft_lance
import lance_ray
import pytest
import ray
from clients.catalogs import Database, rows
from server.serving import serving

from lance_bridge_server.app import create_app
from lance_bridge_server.gateway import Gateway

pytestmark = [pytest.mark.engines, pytest.mark.timeout(600), pytest.mark.spec("server.md#clients")]


@pytest.fixture
def table(database: Database) -> Iterator[dict[str, Any]]:
    """The arguments that say which table, for a gateway to each catalog."""
    with database.backend.connect() as namespace, serving(create_app(Gateway(namespace))) as url:
        yield {
            "namespace_impl": "rest",
            "namespace_properties": {"uri": url},
            "table_id": database.id("t"),
        }


@pytest.mark.usefixtures("ray_cluster")
def test_ray_writes_and_reads_a_table(table: dict[str, Any]) -> None:
    lance_ray.write_lance(ray.data.from_arrow([rows(10), rows(10, 10)]), **table)
    lance_ray.write_lance(ray.data.from_arrow(rows(10, 20)), mode="append", **table)
    found = lance_ray.read_lance(**table, columns=["id"], filter="id >= 5")
    assert sorted(row["id"] for row in found.take_all()) == list(range(5, 30))


def test_daft_writes_and_reads_a_table(table: dict[str, Any]) -> None:
    daft_lance.write_lance(daft.from_arrow(rows(10)), **table)
    daft_lance.write_lance(daft.from_arrow(rows(10, 10)), mode="append", **table)
    found = daft_lance.read_lance(**table).where(daft.col("id") >= 5).select("id").sort("id")
    assert found.to_pydict() == {"id": list(range(5, 20))}
