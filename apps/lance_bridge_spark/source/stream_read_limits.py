"""Streams with admission control and the trigger `availableNow`, for Spark 4.2 and later."""

from __future__ import annotations

from typing import Any

from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxFiles,
    ReadMaxRows,
    ReadMinRows,
    SupportsTriggerAvailableNow,
)

from .streams import LanceStreamReader, Limit, Position
from .worker_calls import spark_call


class RateLimitedReader(LanceStreamReader, SupportsTriggerAvailableNow):
    """Reads no more per batch than Spark's read limit allows."""

    _last: int | None = None
    """The last version to read."""

    def latestOffset(  # type: ignore[override]  # Spark has both forms
        self, start: dict[str, Any], limit: ReadLimit
    ) -> dict[str, Any]:
        with spark_call():
            end = self._stream.next(Position.of(start), self._limit(limit), self._last)
            return end.offset()

    def getDefaultReadLimit(self) -> ReadLimit:
        own = self._stream.limit
        if own.rows is not None:
            return ReadMaxRows(own.rows)
        if own.fragments is not None:
            return ReadMaxFiles(own.fragments)
        return ReadAllAvailable()

    def prepareForTriggerAvailableNow(self) -> None:
        with spark_call():
            _, dataset = self._stream.open()
            self._last = int(dataset.version)

    def reportLatestOffset(self) -> dict[str, Any] | None:
        return None

    def _limit(self, limit: ReadLimit) -> Limit:
        if isinstance(limit, ReadMaxRows):
            return Limit(rows=limit.max_rows, fragments=self._stream.limit.fragments)
        if isinstance(limit, ReadMaxFiles):
            return Limit(fragments=limit.max_files)
        if isinstance(limit, ReadMinRows):
            return Limit(least_rows=limit.min_rows)
        if isinstance(limit, ReadAllAvailable):
            return Limit()
        return self._stream.limit
