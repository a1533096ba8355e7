"""Spark's daemon of Python workers with everything imported already: workers are forks of it.

Importing takes seconds of each worker, and a session that reads tables of Lance starts dozens.
"""

from __future__ import annotations

import gc

import pyspark.daemon

# Lance starts its threads with the first call, not here.
import lance_bridge_spark.source  # noqa: F401 - importing it is the point

# A worker collects garbage after each call: what is imported is left out, as with Spark's daemon.
gc.freeze()

if __name__ == "__main__":
    pyspark.daemon.manager()
