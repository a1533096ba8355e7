"""The errors of the catalogs and of Lance, as Spark's own kind: PySpark's exceptions.

Spark shows the text of what a Python data source raises, and no more. So the text begins with a
condition, as Spark's own messages do, which also names the error of Lance.
"""

from __future__ import annotations

import re
from typing import Any

from lance_namespace.errors import (
    InternalError,
    InvalidInputError,
    LanceNamespaceError,
    TableSchemaValidationError,
    UnsupportedOperationError,
)
from pyspark.errors import PySparkException, PySparkRuntimeError, PySparkValueError

from lance_bridge.errors import first_line


class LanceError(PySparkRuntimeError):
    """An operation on a catalog or a table failed."""


class LanceValueError(PySparkValueError):
    """An option, a column or a type is invalid or not supported."""


_ASKED_WRONG = (InvalidInputError, TableSchemaValidationError, UnsupportedOperationError)


def spark_error(error: LanceNamespaceError) -> PySparkException:
    """Return an error of Lance as one of PySpark's."""
    kind = LanceValueError if isinstance(error, _ASKED_WRONG) else LanceError
    return kind(f"[{condition(error)}] {error}")


def condition(error: LanceNamespaceError) -> str:
    """Return the name of an error as Spark's conditions are spelled: LANCE_TABLE_NOT_FOUND."""
    name = type(error).__name__.removesuffix("Error")
    return "LANCE_" + re.sub(r"(?<!^)(?=[A-Z])", "_", name).upper()


def error_fields(error: Exception) -> dict[str, Any]:
    """Return an error as the Java part takes it: ``{error: {code, message}}``."""
    # The data source makes PySpark's exceptions of those of the namespace.
    cause = error.__cause__ if isinstance(error, PySparkException) else None
    found = cause if isinstance(cause, LanceNamespaceError) else error
    if not isinstance(found, LanceNamespaceError):
        found = InternalError(f"{type(found).__name__}: {first_line(found)}")
    return {"error": {"code": int(found.code), "message": str(found)}}
