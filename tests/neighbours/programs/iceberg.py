"""PyIceberg: makes a table (``write``), drops it (``drop``), or reads a database (``read``)."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from typing import Any

import pyarrow as pa
from pyiceberg.catalog import load_catalog

ROWS = pa.table({"id": [1, 2], "name": ["a", "b"]})
given = json.load(sys.stdin)
database, root, properties = given["database"], given["root"], given["catalog"]
catalog = load_catalog("neighbour", **properties)
ICEBERG_TABLE, LANCE_TABLE = f"{database}.iceberg", f"{database}.ours"


def write() -> None:
    """Make a table; on a metastore without rows, as those of tests have no table of locks."""
    table = catalog.create_table(ICEBERG_TABLE, ROWS.schema, f"{root}/iceberg")
    if properties["type"] == "glue":
        table.append(ROWS)


def drop() -> None:
    """Drop it."""
    catalog.drop_table(ICEBERG_TABLE)


def read() -> dict[str, Any]:
    """List a database, read its Iceberg table, and try to use the Lance table."""
    return {
        "names": sorted(name for _, name in catalog.list_tables(database)),
        "rows": catalog.load_table(ICEBERG_TABLE).scan().to_arrow().to_pydict(),
        "exists": catalog.table_exists(LANCE_TABLE),
        "load": error_of(lambda: catalog.load_table(LANCE_TABLE)),
        "purge": error_of(lambda: catalog.purge_table(LANCE_TABLE)),
        "rename": error_of(lambda: catalog.rename_table(LANCE_TABLE, f"{database}.renamed")),
    }


def error_of(call: Callable[[], object]) -> str:
    """Return the error of a call, empty if there is none."""
    try:
        call()
    except Exception as error:  # noqa: BLE001 - which one it is decides the test
        return f"{type(error).__name__}: {error}"
    return ""


print(json.dumps({"write": write, "drop": drop, "read": read}[sys.argv[1]]()))
