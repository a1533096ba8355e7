"""Registers the data source `lance`: Spark imports every module of a name like this one's."""

from lance_bridge_spark.source import LanceSource


class DefaultSource(LanceSource):
    """What Spark looks for in such a module."""
