"""The port for a compute engine, which does work of a namespace outside this process.

A process has one engine or none. `lance_bridge_spark.register` makes a Spark session that engine.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Protocol

import pyarrow as pa
from lance_namespace import LanceNamespace

from .catalog import Path, TableRecord
from .errors import unsupported

if TYPE_CHECKING:
    from .requests import Ref

HOW: Final = (
    "it needs a compute engine, and this process has none: lance_bridge_spark.register(spark) "
    "makes a Spark session that engine"
)


@dataclass(frozen=True)
class Backfill:
    """A request to fill a computed column.

    Attributes:
        expression: A Lance SQL expression.
        where: A Lance SQL predicate that selects rows; None for all.
        parallelism: The maximum number of concurrent tasks; None for the engine's default.
        batch_rows: Rows that a task computes at once; None for the engine's default.
    """

    column: str
    expression: str
    where: str | None = None
    parallelism: int | None = None
    batch_rows: int | None = None


@dataclass(frozen=True)
class ViewMade:
    """A created materialized view, and the job of its first refresh, if any."""

    version: int
    job_id: str | None = None


class Engine(Protocol):
    """Runs jobs over all rows of a table. A job is complete when its method returns."""

    def backfill(
        self, namespace: LanceNamespace, record: TableRecord, ref: Ref, request: Backfill
    ) -> str:
        """Fill a column in one commit, and return the identifier of its transaction.

        Raises:
            InvalidInputError: (13) the expression fails on a row.
            ConcurrentModificationError: (14)
            ServiceUnavailableError: (17)
        """

    def create_materialized_view(
        self,
        namespace: LanceNamespace,
        path: Path,
        query: str,
        schema: pa.Schema,
        *,
        with_data: bool,
    ) -> ViewMade:
        """Create a view of that schema, and compute its rows if ``with_data``.

        Raises:
            NamespaceNotFoundError: (1)
            TableNotFoundError: (4) a source does not exist.
            TableAlreadyExistsError: (5)
            InvalidInputError: (13) the query is malformed, or does not fit the schema.
            ServiceUnavailableError: (17)
        """

    def refresh_materialized_view(
        self,
        namespace: LanceNamespace,
        path: Path,
        *,
        source_version: int | None,
        max_rows_per_fragment: int | None,
    ) -> str:
        """Bring a view up to date, and return the identifier of the transaction that did it.

        Raises:
            TableNotFoundError: (4) the view or a source does not exist.
            TableVersionNotFoundError: (11) the source has no such version.
            InvalidInputError: (13) it is not a view.
            ConcurrentModificationError: (14)
            ServiceUnavailableError: (17)
        """


_engine: Engine | None = None


def use(engine: Engine | None) -> None:
    """Set the engine of the process, or None."""
    global _engine  # noqa: PLW0603 - the one engine of the process; an assignment is atomic
    _engine = engine


def current() -> Engine | None:
    """Return the engine of the process, or None."""
    return _engine


def require_engine(operation: str) -> Engine:
    """Return the engine that an operation needs.

    Raises:
        UnsupportedOperationError: (0) there is none; the message names the operation.
    """
    engine = current()
    if engine is None:
        raise unsupported(f"Not supported: {operation}: {HOW}")
    return engine
