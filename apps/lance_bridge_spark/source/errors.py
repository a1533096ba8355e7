"""Translation of the errors of catalogs and Lance to PySpark's exceptions.

Spark shows only the message of an exception that a Python data source raises. So the message begins
with a condition, like Spark's own messages, which names the Lance error.
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
    """Return a Lance error as a PySpark exception."""
    error_type = LanceValueError if isinstance(error, _ASKED_WRONG) else LanceError
    return error_type(f"[{condition(error)}] {error}")


def condition(error: LanceNamespaceError) -> str:
    """Return the name of an error in the style of Spark's conditions: LANCE_TABLE_NOT_FOUND."""
    name = type(error).__name__.removesuffix("Error")
    return "LANCE_" + re.sub(r"(?<!^)(?=[A-Z])", "_", name).upper()


def error_fields(error: Exception) -> dict[str, Any]:
    """Return an error in the Java part's format: ``{error: {code, message}}``."""
    # The data source wraps the namespace's errors in PySpark's exceptions.
    cause = error.__cause__ if isinstance(error, PySparkException) else None
    found = cause if isinstance(cause, LanceNamespaceError) else error
    if not isinstance(found, LanceNamespaceError):
        found = InternalError(f"{type(found).__name__}: {first_line(found)}")
    return {"error": {"code": int(found.code), "message": str(found)}}
