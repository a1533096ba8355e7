"""A second reader of a conversion's source, which shares no parser with Spark.

Spark cannot show what it does not read: verification that reads the source through Spark again
finds it equal. The second reader is pyarrow for Parquet and ORC, parsers of its own for CSV and the
headers of Avro, and Python's json for JSON and the metadata of Delta and Iceberg.
"""
