"""Lance tables of a catalog in Spark: by name in SQL, as DataFrames and streams, and in jobs.

    import lance_bridge_spark

    lance_bridge_spark.register(spark)
    spark.sql("SELECT * FROM prod.sales.articles").show()

Everything on Spark's side is Python: the data source `lance`, a catalog for SQL that is a thin Java
shim over it, functions for what neither supports, and jobs that maintain tables with Spark's
executors. No native Lance code runs in the JVM. ``specs/spark.md`` describes each of them.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from lance_bridge.extras import require

require("spark", "pyspark")

if TYPE_CHECKING:
    from .environment import set_java_home
    from .functions import (
        Changed,
        Condition,
        Delete,
        Insert,
        Update,
        col,
        count,
        delete,
        full_text,
        merge_into,
        nearest,
        nearest_batch,
        read,
        restore,
        take,
        update,
        version_at,
        versions,
        write,
    )
    from .jobs import (
        clean_up,
        compact,
        create_index,
        create_materialized_view,
        refresh_materialized_view,
    )
    from .jobs.backfill import backfill
    from .registration import register, settings

__all__ = [
    "Changed",
    "Condition",
    "Delete",
    "Insert",
    "Update",
    "backfill",
    "clean_up",
    "col",
    "compact",
    "count",
    "create_index",
    "create_materialized_view",
    "delete",
    "full_text",
    "merge_into",
    "nearest",
    "nearest_batch",
    "read",
    "refresh_materialized_view",
    "register",
    "restore",
    "set_java_home",
    "settings",
    "take",
    "update",
    "version_at",
    "versions",
    "write",
]

_JOBS = frozenset(
    {
        "backfill",
        "clean_up",
        "compact",
        "create_index",
        "create_materialized_view",
        "refresh_materialized_view",
    }
)
_ELSEWHERE = {
    "register": "registration",
    "set_java_home": "environment",
    "settings": "registration",
}


def __getattr__(name: str) -> Any:
    """Import a public name on first use: workers that only read a table need none of them."""
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    module = "jobs" if name in _JOBS else _ELSEWHERE.get(name, "functions")
    return getattr(importlib.import_module(f".{module}", __name__), name)


def __dir__() -> list[str]:
    return sorted(__all__)
