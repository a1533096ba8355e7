"""The data source `lance` for Spark: tables of Lance by name or by location, without the JVM."""

from .datasource import LanceSource, with_catalogs

__all__ = ["LanceSource", "with_catalogs"]
