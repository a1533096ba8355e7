"""Heavy jobs that Spark runs: planned on the driver, executed by tasks, committed once."""

from .backfill import Backfilled, backfill
from .engine import SparkEngine
from .indexing import Indexed, create_index
from .maintenance import Cleaned, Compacted, clean_up, compact
from .views import Refreshed, create_materialized_view, refresh_materialized_view

__all__ = [
    "Backfilled",
    "Cleaned",
    "Compacted",
    "Indexed",
    "Refreshed",
    "SparkEngine",
    "backfill",
    "clean_up",
    "compact",
    "create_index",
    "create_materialized_view",
    "refresh_materialized_view",
]
