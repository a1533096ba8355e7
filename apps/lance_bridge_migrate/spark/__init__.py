"""Reading and writing with Spark."""

from lance_bridge.extras import require

require("spark", "pyspark")
