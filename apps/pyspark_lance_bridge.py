"""Registers the data source `lance`: Spark imports every module of a name like this one's.

It does so in each session that uses any data source of Python. So nothing is imported here that
only a session with tables of Lance needs.
"""

from __future__ import annotations

from typing import Any

from pyspark.sql.datasource import DataSource


class DefaultSource(DataSource):
    """What Spark looks for in such a module; an instance is a `lance_bridge_spark` one."""

    @classmethod
    def name(cls) -> str:
        """Return the name of the data source."""
        return "lance"

    def __new__(cls, options: dict[str, Any]) -> DataSource:  # type: ignore[misc] # not a subclass
        """Return the source, with the options of one use."""
        from lance_bridge_spark.source import LanceSource  # noqa: PLC0415 - see the top

        return LanceSource(options)
