"""geneva, unmodified: tables on each catalog, and a column that Ray's workers fill."""

from __future__ import annotations

import os
import uuid
from typing import Any

import geneva
import lance_namespace as api
import pyarrow as pa
import pytest
import ray
from clients.catalogs import Database

pytestmark = [pytest.mark.clients, pytest.mark.spec("clients.md#geneva")]

ROWS = pa.table({"id": list(range(20))})


def connect(database: Database) -> tuple[Any, list[str]]:
    """Return a connection, and the namespace where it keeps its own tables."""
    system = [*database.path[:-1], f"geneva_{uuid.uuid4().hex[:12]}"]
    connection = geneva.connect(
        namespace_client_impl=database.backend.class_path,
        namespace_client_properties=database.properties,
        system_namespace=system,
    )
    return connection, system


def drop(database: Database, system: list[str]) -> None:
    with database.backend.connect() as namespace:
        for name in namespace.list_tables(api.ListTablesRequest(id=system)).tables:
            namespace.deregister_table(api.DeregisterTableRequest(id=[*system, name]))
        namespace.drop_namespace(api.DropNamespaceRequest(id=system))


def test_tables_are_created_opened_changed_and_listed(database: Database) -> None:
    connection, system = connect(database)
    table = connection.create_table("t", ROWS, namespace_path=database.path)
    table.add(ROWS)
    opened = connection.open_table("t", namespace_path=database.path)
    assert opened.count_rows() == 40
    opened.delete("id >= 10")
    assert opened.to_arrow().num_rows == 20
    assert list(connection.table_names(namespace_path=database.path)) == ["t"]
    connection.drop_table("t", namespace_path=database.path)
    with database.backend.connect() as namespace:
        assert namespace.list_tables(api.ListTablesRequest(id=database.path)).tables == []
    drop(database, system)


def test_a_column_is_filled_by_workers(on_hive: Database) -> None:
    @geneva.udf(data_type=pa.int64(), num_cpus=0.1)  # type: ignore[untyped-decorator] # skipped
    def twice(id: int) -> int:
        return id * 2

    os.environ["RAY_USAGE_STATS_ENABLED"] = "0"
    connection, system = connect(on_hive)
    table = connection.create_table("t", ROWS, namespace_path=on_hive.path)
    table.add_columns({"twice": twice})
    # More processors than there are: geneva waits until each of its actors has its own.
    ray.init(num_cpus=8, include_dashboard=False, log_to_driver=False)
    try:
        table.backfill("twice", concurrency=1)
    finally:
        ray.shutdown()
    table.checkout_latest()
    assert table.to_arrow()["twice"].to_pylist() == list(range(0, 40, 2))
    drop(on_hive, system)
