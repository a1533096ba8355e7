"""A second reader of a conversion's source, which shares no parser with Spark.

Spark cannot show what it does not read: verification that reads the source through Spark again
finds it equal. The second reader is pyarrow for Parquet, ORC and CSV, and Python's json for JSON.
"""
