"""Read and write tables with Spark."""

from lance_bridge.extras import require

require("spark", "pyspark")
