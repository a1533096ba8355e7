"""The data source `lance` for Spark: tables of Lance by name or by location, without the JVM."""

from .datasource import LanceSource, with_catalogs
from .pyfiles import cache_zip_importers_in_worker

cache_zip_importers_in_worker()

__all__ = ["LanceSource", "with_catalogs"]
