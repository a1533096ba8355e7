"""Memory that operations on many rows use: create, insert and merge.

Starts a Hive Metastore, and for each case a process, whose peak of resident memory is read from
Linux: how far it is above what the process had before the operation, with the rows that it passes
in. Beside ours is pylance's own call with the same rows. A merge is into a table that has every
other key already. A missed bar is reported only; a wrong number of rows is a wrong answer.
"""

from __future__ import annotations

import argparse
import os
import shutil
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import lance
import numpy as np
import pyarrow as pa

import lance_bridge
from bench.processes import in_new_process, memory_mb
from bench.runner import Operation, Row, Timed, at_least, measure_in_turns, request, show_progress
from lance_bridge_metastore import Metastore

_BARS = {"grown_mb": "< 500"}
"""MB (10^6 bytes) that an operation may use beyond the rows that it gets."""
_UPSERT = {"on": ["id"], "when_matched_update_all": True, "when_not_matched_insert_all": True}
_WRITES: dict[str, tuple[str, dict[str, Any]]] = {
    "create": ("create_table", {}),
    "insert": ("insert_into_table", {}),
    "merge": ("merge_insert_into_table", _UPSERT),
}
"""The namespace's method for each, and its fields."""
CASES = [f"{write} {source}" for write in _WRITES for source in ("bytes", "file", "iterator")]
"""The operation of each case, and how its rows are passed in."""
_TABLE = ["memory", "big"]
BATCH_ROWS = 8192
_SCHEMA = pa.schema(
    [("id", pa.int64()), ("title", pa.string()), ("vector", pa.list_(pa.float32(), 128))]
)
_TITLE = "The quick brown fox jumps over the lazy dog, again and again, until it is late"
ROW_BYTES = 8 + 4 + len(_TITLE) + 9 + 512


def add_options(parser: argparse.ArgumentParser, _: str) -> None:
    """Add the options of the suite."""
    parser.add_argument("--megabytes", type=at_least(1), default=2000, help="of rows")
    parser.add_argument("--case", choices=CASES, help="only this, not all")


def measure(options: argparse.Namespace) -> Row:
    """Measure each case in a new process, by the namespace and by pylance."""
    show_progress("starting the catalog, writing the rows …")
    with tempfile.TemporaryDirectory(prefix="lance-bridge-memory-") as name:
        directory = Path(name)
        batches = count_batches(options.megabytes)
        with Metastore("2.3", directory / "hms", warehouse=directory / "warehouse") as metastore:
            bench = Bench(directory, metastore.uri, batches)
            bench.fill()
            cases = [options.case] if options.case else CASES
            rows = measure_in_turns([bench.operation(case) for case in cases], 1, rehearsals=0)
    return {"rows": batches * BATCH_ROWS, "cases": rows}


def count_batches(megabytes: int) -> int:
    """Return how many batches are about so large, at least two."""
    return max(2, megabytes * 1_000_000 // (ROW_BYTES * BATCH_ROWS))


def make_batches(numbers: Iterable[int]) -> Iterator[pa.RecordBatch]:
    """Yield the batches of those numbers; none is kept."""
    for number in numbers:
        ids = np.arange(number * BATCH_ROWS, (number + 1) * BATCH_ROWS)
        values = np.random.default_rng(number).random(BATCH_ROWS * 128, dtype=np.float32)
        titles = pa.array([f"{_TITLE}{each:09}" for each in ids.tolist()])
        vectors = pa.FixedSizeListArray.from_arrays(pa.array(values), 128)
        yield pa.RecordBatch.from_arrays([pa.array(ids), titles, vectors], schema=_SCHEMA)


@dataclass(frozen=True)
class Bench:
    """The rows, and the tables as they are before an operation."""

    directory: Path
    uri: str
    batches: int

    @property
    def data(self) -> Path:
        """The file of all rows."""
        return self.directory / "rows.arrows"

    @property
    def location(self) -> Path:
        """Where the table is that an operation changes."""
        return self.directory / "warehouse" / f"{_TABLE[0]}.db" / f"{_TABLE[1]}.lance"

    def connect(self) -> Any:
        """Return a namespace on the catalog."""
        return lance_bridge.connect("hive", {"uri": self.uri})

    def fill(self) -> None:
        """Create the namespace of the table, and write the rows into a file."""
        request(self.connect(), "create_namespace", id=_TABLE[:1])
        with self.data.open("wb") as file, pa.ipc.new_stream(file, _SCHEMA) as writer:
            for batch in make_batches(range(self.batches)):
                writer.write_batch(batch)

    def operation(self, case: str) -> Operation:
        """Return a case, done by the namespace and by pylance."""
        write, source = case.split()
        ways = {by: partial(self._measure, by, write, source) for by in ("namespace", "pylance")}
        return Operation(case, ways, lambda found, _: all(found.values()), _BARS, unit="s")

    def _measure(self, by: str, write: str, source: str, _: int) -> Timed:
        """Write all rows in a new process; the answer is whether the table has them."""
        show_progress(f"measuring {write} {source} by {by} …")
        with self._table(write, registered=by == "namespace"):
            seconds, grown_mb = in_new_process(_do, self, by, write, source)
            found = lance.dataset(str(self.location)).count_rows()
        expected = (self.batches + (write == "insert")) * BATCH_ROWS
        prefix = "" if by == "namespace" else "pylance_"
        return Timed(seconds, found == expected, {f"{prefix}grown_mb": round(grown_mb)})

    @contextmanager
    def _table(self, write: str, *, registered: bool) -> Iterator[None]:
        """Provide the table as it must be before an operation, and remove it at the end."""
        namespace, location = self.connect(), str(self.location)
        if write != "create":
            # Lance never changes a file that is written.
            shutil.copytree(self._prepare(write), location, copy_function=os.link)
            if registered:
                request(namespace, "register_table", id=_TABLE, location=location)
        yield
        if registered:
            request(namespace, "deregister_table", id=_TABLE)
        shutil.rmtree(location)

    def _prepare(self, write: str) -> Path:
        """Return a table as it is before an operation, which is written the first time."""
        path = self.directory / f"{write}.lance"
        if not path.exists():
            rows = make_batches(range(self.batches))
            if write == "insert":
                rows = make_batches([self.batches])
            else:
                rows = (batch.take(list(range(0, BATCH_ROWS, 2))) for batch in rows)
            lance.write_dataset(_as_reader(rows), str(path))
        return path


# -- in a new process ------------------------------------------------------------------------------


def _do(bench: Bench, by: str, write: str, source: str) -> tuple[float, float]:
    """Write all rows; return the seconds, and how the memory grew (MB)."""
    if by == "namespace":
        method, fields = _WRITES[write]
        call: Callable[[Any], Any] = partial(request, bench.connect(), method, id=_TABLE, **fields)
    else:
        call = partial(_write_by_pylance, write, str(bench.location))
    with bench.data.open("rb") as file:
        data: Any = file.read() if source == "bytes" else file
        if source == "iterator":
            data = make_batches(range(bench.batches))
        # So that the peak is that of the operation.
        Path("/proc/self/clear_refs").write_text("5", encoding="ascii")
        before = memory_mb(os.getpid())
        started = time.perf_counter()
        call(data)
        seconds = time.perf_counter() - started
        return seconds, memory_mb(os.getpid(), peak=True) - before


def _write_by_pylance(write: str, path: str, data: Any) -> None:
    reader = _as_reader(data)
    if write == "create":
        lance.write_dataset(reader, path)
    elif write == "insert":
        lance.dataset(path).insert(reader)
    else:
        merge = lance.dataset(path).merge_insert("id").when_matched_update_all()
        merge.when_not_matched_insert_all().execute(reader)


def _as_reader(data: Any) -> pa.RecordBatchReader:
    """Return rows in the form that pylance takes."""
    if isinstance(data, bytes) or hasattr(data, "read"):
        return pa.ipc.open_stream(data)
    return pa.RecordBatchReader.from_batches(_SCHEMA, data)
