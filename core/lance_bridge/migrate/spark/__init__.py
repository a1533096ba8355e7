"""What kinds of migrations share that read or write with Spark."""

from ...extras import require

require("spark", "pyspark")
