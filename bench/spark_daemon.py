"""Spark's daemon of Python workers with everything imported already: workers are forks of it."""

from __future__ import annotations

import pyspark.daemon

# What a worker of a read imports. Lance starts its threads with the first call, not here.
import lance_bridge.spark.source  # noqa: F401 - importing it is the point

if __name__ == "__main__":
    pyspark.daemon.manager()
