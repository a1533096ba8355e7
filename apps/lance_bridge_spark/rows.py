"""Rows of Lance tables in Spark, for packages that read, write and change tables with Spark.

They are written by tasks of `write_rows` and committed by a `Job` or a `Commit`; a `Merge` changes
them as `merge_into` does. `address_in` and `find_table` find tables; `build_index` indexes them.
"""

from .addresses import TableAddress
from .functions.change import TransactionSpec, apply_change
from .functions.dml import Clauses, Delete, Insert, Merge, Update
from .functions.read_write import Snapshot
from .jobs.engine import address_in
from .jobs.indexing import build_index, index_request
from .jobs.tasks import RESULTS_DDL, spark_failures, unpack, write_rows
from .lookup import find_table
from .source.conversion import ToLance, to_spark
from .source.options import APPEND, Write, WriteOptions, load
from .source.writer import Commit, Job, Target, Written, fragments_of

__all__ = [
    "APPEND", "RESULTS_DDL", "Clauses", "Commit", "Delete", "Insert", "Job", "Merge", "Snapshot",
    "TableAddress", "Target", "ToLance", "TransactionSpec", "Update", "Write", "WriteOptions",
    "Written", "address_in", "apply_change", "build_index", "find_table", "fragments_of",
    "index_request", "load", "spark_failures", "to_spark", "unpack", "write_rows",
]  # fmt: skip
