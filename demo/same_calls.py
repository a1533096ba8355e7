"""The calls that are the same on every catalog. The demo prints this function as it is."""

from __future__ import annotations

from collections.abc import Iterator

import lance
import pyarrow as pa
from lance_namespace import (
    CreateNamespaceRequest,
    DeregisterTableRequest,
    DescribeTableRequest,
    DropNamespaceRequest,
    DropTableRequest,
    ListNamespacesRequest,
    ListTablesRequest,
    RegisterTableRequest,
    RenameTableRequest,
)
from lance_namespace.errors import UnsupportedOperationError

import lance_bridge

NEAR = pa.table({"name": ["Mercury", "Venus", "Earth", "Mars"], "moons": [0, 0, 1, 2]})
FAR = pa.table({"name": ["Jupiter", "Saturn"], "moons": [97, 274]})


def same_calls(name: str) -> Iterator[tuple[str, object]]:
    """Make the calls on a catalog, and yield each result with its name."""
    ns = lance_bridge.connect(name)
    sky, worlds, planets = ["sky"], ["sky", "worlds"], ["sky", "planets"]

    def tables() -> list[str]:
        return ns.list_tables(ListTablesRequest(id=sky)).tables

    ns.create_namespace(CreateNamespaceRequest(id=sky))
    yield "has the namespace", "sky" in ns.list_namespaces(ListNamespacesRequest(id=[])).namespaces
    lance.write_dataset(NEAR, namespace_client=ns, table_id=worlds)
    yield "tables after the write", tables()
    location = str(ns.describe_table(DescribeTableRequest(id=worlds)).location)
    yield "location", location
    dataset = lance.dataset(namespace_client=ns, table_id=worlds)
    yield "rows with moons", dataset.to_table(filter="moons > 0")["name"].to_pylist()
    dataset = lance.write_dataset(FAR, namespace_client=ns, table_id=worlds, mode="append")
    yield "rows after the append", dataset.count_rows()
    ns.rename_table(RenameTableRequest(id=worlds, new_table_name="planets"))
    yield "tables after the rename", tables()
    moved = ns.describe_table(DescribeTableRequest(id=planets)).location
    yield "location stays", moved == location
    ns.deregister_table(DeregisterTableRequest(id=planets))
    yield "tables after deregistering", tables()
    again = RegisterTableRequest(id=planets, location=location)
    ns.register_table(again)
    dataset = lance.dataset(namespace_client=ns, table_id=planets)
    yield "rows after registering", dataset.count_rows()
    try:
        again.mode, again.properties = "Overwrite", {"owner": "astronomers"}
        ns.register_table(again)
        found = ns.describe_table(DescribeTableRequest(id=planets)).properties or {}
        yield "changed property", found.get("owner")
    except UnsupportedOperationError as error:
        yield "changed property", error
    ns.drop_table(DropTableRequest(id=planets))
    yield "tables after the drop", tables()
    ns.drop_namespace(DropNamespaceRequest(id=sky))
    left = ns.list_namespaces(ListNamespacesRequest(id=[])).namespaces
    yield "has the namespace still", "sky" in left
