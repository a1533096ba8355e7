"""Statements at the same time, on one session: what each came to, in threads of their own."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from lance_namespace.errors import LanceNamespaceError
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession


def run_concurrently(
    spark: SparkSession, jobs: Sequence[Callable[[], Any]]
) -> list[Exception | None]:
    """Start all jobs together; return the error of each, None where it did what it should."""
    start = threading.Barrier(len(jobs))

    def do(job: Callable[[], Any]) -> Exception | None:
        _become_active(spark)
        start.wait(60)
        try:
            job()
        except (PySparkException, LanceNamespaceError) as error:
            return error
        return None

    with ThreadPoolExecutor(len(jobs)) as pool:
        return list(pool.map(do, jobs))


def _become_active(spark: SparkSession) -> None:
    """Make the session that of this thread in the JVM, where writers look for it."""
    jvm: Any = spark._jvm
    jvm.org.apache.spark.sql.classic.SparkSession.setActiveSession(spark._jsparkSession)
