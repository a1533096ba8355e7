"""The data source `lance` for Spark: tables of Lance by name or by location, without the JVM."""

from .archives import keep_known_in_worker
from .datasource import LanceSource, with_catalogs

keep_known_in_worker()

__all__ = ["LanceSource", "with_catalogs"]
