"""What kinds of migrations share that read or write with Spark."""

from lance_bridge.extras import require

require("spark", "pyspark")
