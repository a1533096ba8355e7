"""AWS SDK for pandas: makes tables in a database of Glue (``write``), or reads all (``read``)."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from typing import Any

import awswrangler as wr
import pandas as pd

READERS = {"parquet": wr.s3.read_parquet_table, "orc": wr.s3.read_orc_table}


def write(database: str, root: str) -> None:
    """Make a table of Parquet, one of ORC and one of CSV."""
    rows = pd.DataFrame({"id": [1, 2], "name": ["a", "b"]})
    options = {"dataset": True, "database": database}
    wr.s3.to_parquet(rows, f"{root}/parquet", table="parquet", **options)
    wr.s3.to_orc(rows, f"{root}/orc", table="orc", **options)
    wr.s3.to_csv(rows, f"{root}/csv", table="csv", index=False, **options)


def read(database: str, **_: str) -> dict[str, Any]:
    """List a database, describe each table, and read each as Parquet and as ORC."""
    names = sorted(each["Name"] for each in wr.catalog.get_tables(database=database))
    return {
        "names": names,
        "shown": sorted(wr.catalog.tables(database=database)["Table"]),
        "types": {name: wr.catalog.get_table_types(database, name) for name in names},
        "rows": {
            name: {way: rows_of(reader, database, name) for way, reader in READERS.items()}
            for name in names
        },
    }


def rows_of(reader: Callable[..., pd.DataFrame], database: str, table: str) -> Any:
    """Return the rows of a table by column, or the error."""
    try:
        return reader(database=database, table=table).to_dict("list")
    except Exception as error:  # noqa: BLE001 - pyarrow's, by format
        return f"{type(error).__name__}: {error}"


given = json.load(sys.stdin)
actions: dict[str, Callable[..., Any]] = {"write": write, "read": read}
print(json.dumps(actions[sys.argv[1]](**given)))
