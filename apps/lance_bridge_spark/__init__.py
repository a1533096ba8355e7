"""Lance tables of a catalog in Spark: by name in SQL, as DataFrames and streams, and in jobs.

    import lance_bridge_spark

    lance_bridge_spark.register(spark)
    spark.sql("SELECT * FROM prod.sales.articles").show()

Everything on Spark's side is Python: the data source `lance`, a catalog for SQL that is a thin Java
shim over it, functions for what neither supports, and jobs that maintain tables with Spark's
executors. No native Lance code runs in the JVM. ``specs/spark.md`` describes each of them.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from lance_bridge.extras import require

require("spark", "pyspark")

if TYPE_CHECKING:
    from .environment import set_java_home
    from .functions.change import Changed
    from .functions.dml import Delete, Insert, Update, delete, merge_into, update
    from .functions.filters import Condition, col
    from .functions.read_write import count, read, restore, take, version_at, versions, write
    from .functions.search import full_text, nearest, nearest_batch
    from .jobs.backfill import backfill
    from .jobs.indexing import create_index
    from .jobs.maintenance import clean_up, compact
    from .jobs.views import create_materialized_view, refresh_materialized_view
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

_MODULES = {
    "environment": ("set_java_home",),
    "functions.change": ("Changed",),
    "functions.dml": ("Delete", "Insert", "Update", "delete", "merge_into", "update"),
    "functions.filters": ("Condition", "col"),
    "functions.read_write": ("count", "read", "restore", "take", "version_at", "versions", "write"),
    "functions.search": ("full_text", "nearest", "nearest_batch"),
    "jobs.backfill": ("backfill",),
    "jobs.indexing": ("create_index",),
    "jobs.maintenance": ("clean_up", "compact"),
    "jobs.views": ("create_materialized_view", "refresh_materialized_view"),
    "registration": ("register", "settings"),
}


def __getattr__(name: str) -> Any:
    """Import a public name on first use: workers that only read a table need none of them."""
    module = next((module for module, names in _MODULES.items() if name in names), None)
    if module is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f".{module}", __name__), name)


def __dir__() -> list[str]:
    return sorted(__all__)
