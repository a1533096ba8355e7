"""The data source `lance` for Spark: Lance tables by name or location, in pure Python."""

from .datasource import LanceSource, with_catalogs
from .worker_calls import cache_zip_importers_in_worker

cache_zip_importers_in_worker()

__all__ = ["LanceSource", "with_catalogs"]
