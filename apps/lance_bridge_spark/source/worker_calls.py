"""The context of every call from Spark to the data source in a Python worker."""

from __future__ import annotations

import gc
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache

from lance_namespace.errors import LanceNamespaceError

from .errors import spark_error


@contextmanager
def spark_call() -> Iterator[None]:
    """Wrap one call from Spark: translate Lance errors to Spark's, and keep later calls fast.

    Raises:
        LanceValueError: For codes 0, 13 and 20.
        LanceError: For all others.
    """
    try:
        yield
    except LanceNamespaceError as error:
        raise spark_error(error) from error
    _freeze_imports()


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
