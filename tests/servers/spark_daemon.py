"""Spark's daemon of Python workers with everything imported already: workers are forks of it.

Importing takes a second of each worker, and a session that reads tables of Lance starts dozens.
"""

from __future__ import annotations

import pyspark.daemon

# Lance starts its threads with the first call, not here.
import lance_bridge_spark.source  # noqa: F401 - importing it is the point

if __name__ == "__main__":
    pyspark.daemon.manager()
