"""Types of Lance tables in Spark, for packages that read or write tables with Spark."""

from .source.column_names import require_distinct
from .source.schema_compat import new_schema
from .source.stored_types import as_new
from .source.types import ROW_ID, batch_schema, nullable, read_type, spark_schema

__all__ = [
    "ROW_ID",
    "as_new",
    "batch_schema",
    "new_schema",
    "nullable",
    "read_type",
    "require_distinct",
    "spark_schema",
]
