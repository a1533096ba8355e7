"""Running the tasks of a job on Spark's executors: one row of a DataFrame is one task.

It uses no RDD, so that it also works on Spark Connect. A task returns an error that a retry would
not fix as a value, because Spark would retry a task that raises.
"""

from __future__ import annotations

import importlib.util
import pickle
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeVar

import lance
import pyarrow as pa
from lance_namespace.errors import (
    ConcurrentModificationError,
    LanceNamespaceError,
    ServiceUnavailableError,
    TableColumnNotFoundError,
    from_error_code,
)
from py4j.protocol import Py4JJavaError
from pyspark.errors import AnalysisException, PySparkException

from lance_bridge.errors import (
    LANCE_ERRORS,
    OutcomeUnknownError,
    first_line,
    invalid,
    is_refusal,
)
from lance_bridge.transaction_versions import find_commit, transaction_at

from ..source.worker_calls import error_of_task, spark_call

if TYPE_CHECKING:
    from ..source.writer import Target
    from ..spark_tables import SparkTable

# -- tasks -----------------------------------------------------------------------------------------

TaskT = TypeVar("TaskT")
ResultT = TypeVar("ResultT")

RESULTS = pa.schema([pa.field("task", pa.int64()), pa.field("result", pa.binary())])
RESULTS_DDL = "task bigint, result binary"

_NO_SUCH_COLUMN = "42703"
_REQUEST_ERRORS = ("22", "42")
"""Classes of SQL states for errors of an expression, or of the rows it is evaluated on."""


@dataclass(frozen=True)
class Refused:
    """The error of a task that a retry would not fix."""

    error: LanceNamespaceError


@dataclass(frozen=True)
class Work:
    """The function that executors apply to rows of task numbers."""

    tasks: Sequence[bytes]
    work: Callable[[Any], Any]

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            for number in batch.column(0).to_pylist():
                yield result_row(number, run_task(self.work, pickle.loads(self.tasks[number])))


def run_task(work: Callable[[TaskT], ResultT], task: TaskT) -> ResultT | Refused:
    """Run a task. Return an error that a retry would not fix, and raise all others.

    Raises:
        LanceError: The storage or Lance failed.
    """
    with spark_call():
        try:
            return work(task)
        except ServiceUnavailableError:
            raise
        except LanceNamespaceError as error:
            return Refused(error)
        except LANCE_ERRORS as error:
            if not is_refusal(error):
                raise
            return Refused(invalid(first_line(error)))


def result_row(number: int, result: Any) -> pa.RecordBatch:
    """Return a task's result as a row."""
    return pa.RecordBatch.from_pydict(
        {"task": [number], "result": [pickle.dumps(result)]}, schema=RESULTS
    )


def run(
    spark: Any,
    tasks: Sequence[TaskT],
    work: Callable[[TaskT], ResultT],
    what: str,
    parallelism: int | None = None,
) -> list[ResultT]:
    """Run tasks on executors, and return their results in the order of the tasks.

    Args:
        work: A function that can be pickled.
        what: What failed, for messages.
        parallelism: How many tasks may run concurrently; unlimited by default.

    Raises:
        LanceNamespaceError: The error of a task.
        ServiceUnavailableError: (17) a task failed in all of Spark's attempts.
    """
    if not tasks:
        return []
    pickled = [pickle.dumps(task) for task in tasks]
    frame = numbers(spark, len(tasks), parallelism).mapInArrow(Work(pickled, work), RESULTS_DDL)
    found = collect(frame, what)
    return [found[number] for number in range(len(tasks))]


def numbers(spark: Any, count: int, parallelism: int | None = None) -> Any:
    """Return a DataFrame of task numbers, one per partition up to ``parallelism`` partitions."""
    return spark.range(0, count, 1, max(1, min(count, parallelism or count)))


def collect(frame: Any, what: str) -> dict[int, Any]:
    """Return the results of tasks by their numbers. Raise the error that a task returned."""
    with spark_failures(what):
        rows = frame.collect()
    found: dict[int, Any] = {}
    for row in rows:
        result = unpack(row)
        if row["task"] in found:
            raise invalid(f"{what}: Spark gave the rows of a fragment to several tasks")
        found[row["task"]] = result
    return found


def unpack(row: Any) -> Any:
    """Return the result of a task. Raise the error that it returned."""
    result = pickle.loads(row["result"])
    if isinstance(result, Refused):
        raise result.error
    return result


def write_rows(target: Target, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Write the rows of a task, and return the result of `Target.write`."""
    yield result_row(0, run_task(target.write, batches))


@contextmanager
def task_failures(what: str) -> Iterator[None]:
    """Raise the Lance error of a task, of which Spark passes on the text, and no other failure.

    Raises:
        LanceNamespaceError: The error of a task, with ``what`` before its message.
        ServiceUnavailableError: (17) a Python worker ended.
    """
    try:
        yield
    except (PySparkException, Py4JJavaError) as error:
        found = error_of_task(_text_of(error))
        if found is None:
            raise
        raise from_error_code(int(found.code), f"{what}: {found}") from error


@contextmanager
def spark_failures(what: str) -> Iterator[None]:
    """Translate Spark's failures: those of tasks, of an expression or its rows, and all others.

    Raises:
        LanceNamespaceError: What `task_failures` raises.
        TableColumnNotFoundError: (12)
        InvalidInputError: (13)
        ServiceUnavailableError: (17)
    """
    try:
        with task_failures(what):
            yield
    except (PySparkException, Py4JJavaError) as error:
        state = (error.getSqlState() if isinstance(error, PySparkException) else None) or ""
        message = f"{what}: {_summarize(_text_of(error))}"
        if state == _NO_SUCH_COLUMN:
            raise TableColumnNotFoundError(message) from error
        if isinstance(error, AnalysisException) or state.startswith(_REQUEST_ERRORS):
            raise invalid(message) from error
        raise ServiceUnavailableError(message) from error


def _text_of(error: PySparkException | Py4JJavaError) -> str:
    """Return the text of Spark's own error; PySpark has no class for some of them."""
    if isinstance(error, PySparkException):
        return str(error)
    return str(error.java_exception.toString())


def _summarize(text: str) -> str:
    """Return the main line of a Spark error; for a Python task, the last error of its traceback."""
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    trace = [line for line in lines if not line.startswith(("at ", "File ", "JVM", "..."))]
    if any(line.startswith("Traceback") for line in lines):
        own = [line for line in trace if ": " in line and "Error" in line.split(": ", 1)[0]]
        return first_line((own or trace)[-1].removeprefix("OSError: "))
    return (trace or ["Spark gave no reason"])[0][:300]


class Phases:
    """The phases of a job. Displays nothing without a terminal or without rich."""

    def __init__(self, bar: Any = None, task: Any = None) -> None:
        self._bar = bar
        self._task = task
        self._begun = False

    def begin(self, what: str) -> None:
        """Begin the next phase, and end the previous one."""
        if self._bar is not None:
            self._bar.update(self._task, description=what, advance=1 if self._begun else 0)
        self._begun = True

    def end(self) -> None:
        """End the last phase."""
        if self._bar is not None and self._begun:
            self._bar.update(self._task, advance=1)


@contextmanager
def phases(job: str, count: int, *, stream: Any = None) -> Iterator[Phases]:
    """Show a progress bar of ``count`` phases while a job runs.

    Args:
        job: The label of the bar, such as ``compact prod.db.t``.
        stream: Where to show the bar; standard error by default.
    """
    stream = sys.stderr if stream is None else stream
    if not stream.isatty() or importlib.util.find_spec("rich") is None:
        yield Phases()
        return
    from rich.console import Console  # noqa: PLC0415 - rich is optional
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn  # noqa: PLC0415

    columns = (TextColumn(job, markup=False), BarColumn(), MofNCompleteColumn())
    phase = TextColumn("{task.description}", markup=False)
    with Progress(*columns, phase, console=Console(file=stream)) as bar:
        progress = Phases(bar, bar.add_task("", total=count))
        yield progress
        progress.end()


# -- commits ---------------------------------------------------------------------------------------

_ATTEMPTS = 3
"""How often a commit is sent if the storage or the catalog fails."""

IsOwn = Callable[[Any], bool]
"""Returns whether a version's transaction is the job's own."""


def commit(
    table: SparkTable, dataset: lance.LanceDataset, transaction: lance.Transaction, what: str
) -> int:
    """Commit a transaction through the manager of the table's versions, and return the version.

    Args:
        what: What did not happen, for the middle of an error message.

    Raises:
        ConcurrentModificationError: (14) a concurrent change conflicts with it.
        ServiceUnavailableError: (17)
    """

    def send() -> lance.LanceDataset:
        options = table.storage_options(write=True)
        return lance.LanceDataset.commit(dataset, transaction, storage_options=options)

    return send_once(table, dataset, send, lambda other: other.uuid == transaction.uuid, what)


def send_once(
    table: SparkTable,
    dataset: lance.LanceDataset,
    send: Callable[[], lance.LanceDataset],
    is_own: IsOwn,
    what: str,
) -> int:
    """Send a commit until it is known to have succeeded or failed, and return its version.

    A reply can be lost after the commit took effect. So a failed commit is searched for in the
    versions after the one that was read, and sent again only if it is missing.

    Args:
        send: Sends it, and returns the dataset at the version that it made.
    """
    since = int(dataset.version)
    for attempt in range(_ATTEMPTS):
        try:
            with table.committing(dataset, what):
                sent = send()
        except (ConcurrentModificationError, ServiceUnavailableError) as error:
            found = _find_commit(dataset, is_own, since, error)
            if found is None:
                last = attempt == _ATTEMPTS - 1
                if last or not isinstance(error, ServiceUnavailableError):
                    raise
                continue
            transaction = transaction_at(dataset, found)
            table.note_commit(since, found, transaction.uuid if transaction is not None else "")
            return found
        version = int(sent.version)
        table.note_commit(since, version, sent)
        return version
    raise AssertionError("the last attempt raises")


def _find_commit(
    dataset: lance.LanceDataset, is_own: IsOwn, since: int, error: LanceNamespaceError
) -> int | None:
    try:
        return find_commit(dataset, is_own, since)
    except LanceNamespaceError as unread:
        raise OutcomeUnknownError(
            f"{error}. Whether it was committed is not known: {unread}"
        ) from unread
