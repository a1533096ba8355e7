"""Calls of Spark's Python workers: their errors, their functions, and the caches of imports.

Spark shows only the message of an exception that a Python data source raises. So the message begins
with a condition, like Spark's own messages, which names the Lance error.
"""

from __future__ import annotations

import gc
import os
import pickle
import re
import sys
import zipimport
from collections.abc import Iterator, MutableMapping
from contextlib import contextmanager
from functools import cache, partial
from typing import Any

import pyarrow as pa
from lance_namespace.errors import (
    ErrorCode,
    InternalError,
    InvalidInputError,
    LanceNamespaceError,
    ServiceUnavailableError,
    TableSchemaValidationError,
    UnsupportedOperationError,
    from_error_code,
)
from pyspark.errors import PySparkException, PySparkRuntimeError, PySparkValueError
from pyspark.sql.datasource import DataSourceArrowWriter, DataSourceReader
from pyspark.sql.types import BinaryType, StructField, StructType

from lance_bridge.errors import first_line

# -- errors ----------------------------------------------------------------------------------------


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
    return _condition_of(int(error.code))


@cache
def _condition_of(code: int) -> str:
    name = type(from_error_code(code, "")).__name__.removesuffix("Error")
    return "LANCE_" + re.sub(r"(?<!^)(?=[A-Z])", "_", name).upper()


_IN_TEXT = re.compile(r"Lance(?:Value)?Error: \[(LANCE_[A-Z_]+)\] ([^\n]+)")
"""An error that `spark_error` made. The Java part has the same expression, in `LanceException`."""
_WORKER_ENDED = "Python worker exited unexpectedly"
"""What Spark says of a worker that was killed."""


def error_of_task(text: str) -> LanceNamespaceError | None:
    """Return the error of a task in the text of Spark's own error, or None if it is another one.

    Spark sends an error of a Python worker to the driver as text. A worker that ended without one
    is ServiceUnavailable (17).
    """
    found = _IN_TEXT.search(text)
    if found is not None:
        code = next((each for each in ErrorCode if _condition_of(each) == found[1]), None)
        return from_error_code(ErrorCode.INTERNAL if code is None else code, found[2])
    if _WORKER_ENDED in text:
        return ServiceUnavailableError(
            "a Python worker ended, perhaps for lack of memory: give executors more "
            "(spark.executor.memoryOverhead), or use more and smaller tasks"
        )
    return None


def error_fields(error: Exception) -> dict[str, Any]:
    """Return an error in the Java part's format: ``{error: {code, message}}``."""
    # The data source wraps the namespace's errors in PySpark's exceptions.
    cause = error.__cause__ if isinstance(error, PySparkException) else None
    found = cause if isinstance(cause, LanceNamespaceError) else error
    if not isinstance(found, LanceNamespaceError):
        found = InternalError(f"{type(found).__name__}: {first_line(found)}")
    return {"error": {"code": int(found.code), "message": str(found)}}


# -- calls -----------------------------------------------------------------------------------------


@contextmanager
def spark_call() -> Iterator[None]:
    """Wrap one call from Spark: translate Lance errors to Spark's, and keep later calls fast.

    Raises:
        LanceValueError: For codes 0, 13 and 20.
        LanceError: For all others, and if there is no memory left.
    """
    try:
        yield
    except LanceNamespaceError as error:
        _hide_traceback()
        raise spark_error(error) from error
    except MemoryError as error:
        _hide_traceback()
        raise spark_error(ServiceUnavailableError(_NO_MEMORY)) from error
    _freeze_imports()


_NO_MEMORY = (
    "Python has no memory left: give executors more (spark.executor.memoryOverhead, or "
    "spark.executor.pyspark.memory if it is set), or use more and smaller tasks"
)
_HIDES_TRACEBACK = "SPARK_HIDE_TRACEBACK"
"""The variable with which a worker of PySpark sends the text of an error without its traceback."""


def _hide_traceback() -> None:
    """Have a worker of Spark send the error that is about to be raised without its traceback.

    The error says what is wrong. A worker exits when it has sent an error, so this hides no other.
    """
    if _MODULE_OF_WORKERS in sys.modules:
        os.environ[_HIDES_TRACEBACK] = "1"


@cache
def _freeze_imports() -> None:
    """Exclude everything a worker has imported from its garbage collections, once.

    PySpark's daemon collects garbage after each call in a reused worker. With the modules of
    pylance, pyarrow and the catalogs' clients that took 100 ms, most of a short call.
    """
    spec = getattr(sys.modules["__main__"], "__spec__", None)
    if spec is not None and spec.name == "pyspark.daemon":
        gc.collect()
        gc.freeze()


# -- functions of tasks ----------------------------------------------------------------------------

_MESSAGE = "message"


def pickled_reader(reader: DataSourceReader, schema: StructType) -> bytes:
    """Return the function that reads a partition, pickled for Spark's workers."""
    return pickle.dumps((partial(_read, reader), schema))


def pickled_writer(writer: DataSourceArrowWriter) -> bytes:
    """Return the function that writes the rows of a task, pickled for Spark's workers."""
    result = StructType([StructField(_MESSAGE, BinaryType())])
    return pickle.dumps((partial(_write, writer), result))


def partition_batch(pickled: bytes) -> pa.RecordBatch:
    """Return a pickled partition as an argument for the function of `pickled_reader`."""
    return pa.record_batch([pa.array([pickled], pa.binary())], names=["partition"])


def _read(reader: DataSourceReader, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    partition = None
    for batch in batches:
        partition = pickle.loads(batch.column(0)[0].as_py())
    return reader.read(partition)  # type: ignore[arg-type] # Spark gives one partition, never none


def _write(
    writer: DataSourceArrowWriter, batches: Iterator[pa.RecordBatch]
) -> Iterator[pa.RecordBatch]:
    message = pickle.dumps(writer.write(batches))
    yield pa.record_batch([pa.array([message], pa.binary())], names=[_MESSAGE])


# -- zip archives on the path ----------------------------------------------------------------------
#
# Spark puts its own jar on the path of workers and invalidates their import caches: PySpark 4.1
# before each call (a task, or a call to a data source), and later versions if the path grows. Up to
# Python 3.12 this reads the names of some thousand files again, which takes ten times as long as
# the call.

_READS_AT_ONCE = sys.version_info < (3, 13)
_MODULE_OF_WORKERS = "pyspark.worker_util"


class CachedZipImporter(zipimport.zipimporter):
    """An importer that reads the names in an archive again only if the file has changed."""

    def __init__(self, path: str) -> None:
        super().__init__(path)
        self._state = self._file_state()

    def invalidate_caches(self) -> None:
        """Read the names again if the file has changed."""
        now = self._file_state()
        if now != self._state:
            self._state = now
            super().invalidate_caches()

    def _file_state(self) -> tuple[int, int] | None:
        try:
            found = os.stat(self.archive)
        except OSError:
            return None
        return found.st_mtime_ns, found.st_size


def cache_zip_importers(finders: MutableMapping[str, Any]) -> None:
    """Replace each zip importer with a `CachedZipImporter`.

    Args:
        finders: Finders by path, such as ``sys.path_importer_cache``.
    """
    for path, finder in list(finders.items()):
        if type(finder) is zipimport.zipimporter:
            finders[path] = CachedZipImporter(path)


def cache_zip_importers_in_worker() -> None:
    """Replace the zip importers if this process is a Spark worker and its Python needs it."""
    if _READS_AT_ONCE and _MODULE_OF_WORKERS in sys.modules:
        cache_zip_importers(sys.path_importer_cache)
