"""Memory that operations on many rows use: create, insert, merge and query.

Starts a Hive Metastore, and for each case a process, whose peak of resident memory is read from
Linux: how far it is above what the process had before the operation, with the rows that it passes
in. Beside ours is pylance's own call with the same rows. A merge is into a table that has every
other key already. A missed bar is reported only; a wrong number of rows is a wrong answer.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import lance
import numpy as np
import pyarrow as pa
from lance_namespace import QueryTableRequest

import lance_bridge
from bench.runner import Bar, at_least, make_report, make_row, request, show_progress
from lance_bridge_metastore import RELEASES, Metastore

BAR = Bar("grown_mb", "<", 500)
"""MB (10^6 bytes) that an operation may use beyond the rows that it gets."""
CASES = {
    f"{operation} {source}": (operation, source)
    for operation in ("create", "insert", "merge")
    for source in ("bytes", "file", "iterator")
}
CASES["query"] = ("query", "file")
"""The operation of each case, and how its rows are passed in."""
_TABLE = ["memory", "big"]
_BATCH_ROWS = 8192
_SCHEMA = pa.schema(
    [("id", pa.int64()), ("title", pa.string()), ("vector", pa.list_(pa.float32(), 128))]
)
_TITLE = "The quick brown fox jumps over the lazy dog, again and again, until it is late"
_ROW_BYTES = 8 + 4 + len(_TITLE) + 9 + 512


def add_options(parser: argparse.ArgumentParser, _: str) -> None:
    """Add the options of the suite."""
    parser.add_argument("--megabytes", type=at_least(1), default=2000, help="of rows")
    parser.add_argument("--case", action="append", choices=CASES, help="only these, not all")
    parser.add_argument("--version", choices=list(RELEASES), default="2.3", help="of Hive")


def measure(options: argparse.Namespace) -> dict[str, Any]:
    """Measure each case in a new process, by the namespace and by pylance."""
    show_progress("starting the catalog, writing the rows …")
    rows = []
    with tempfile.TemporaryDirectory(prefix="lance-bridge-memory-") as name:
        directory = Path(name)
        batches = max(2, options.megabytes * 1_000_000 // (_ROW_BYTES * _BATCH_ROWS))
        warehouse = directory / "warehouse"
        with Metastore(options.version, directory / "hms", warehouse=warehouse) as metastore:
            bench = Bench(directory, metastore.uri, batches)
            for case in options.case or CASES:
                show_progress(f"measuring {case} …")
                rows.append(bench.measure(case))
        facts = {
            "catalog": f"Hive Metastore {metastore.release.full_version}",
            "megabytes": round(bench.data.stat().st_size / 1e6),
            "rows": batches * _BATCH_ROWS,
        }
    return make_report(facts, {"cases": rows})


@dataclass(frozen=True)
class Work:
    """What a process does: its command line."""

    by: str
    """``namespace`` or ``pylance``."""
    operation: str
    source: str
    uri: str
    location: str
    data: str
    batches: int


class Bench:
    """The rows, the tables as they are before an operation, and the processes that do it."""

    def __init__(self, directory: Path, uri: str, batches: int) -> None:
        self._directory, self._uri, self._batches = directory, uri, batches
        self._location = directory / "warehouse" / f"{_TABLE[0]}.db" / f"{_TABLE[1]}.lance"
        self._namespace = lance_bridge.connect("hive", {"uri": uri})
        request(self._namespace, "create_namespace", id=_TABLE[:1])
        self.data = directory / "rows.arrows"
        with self.data.open("wb") as file, pa.ipc.new_stream(file, _SCHEMA) as writer:
            for batch in _make_batches(range(batches)):
                writer.write_batch(batch)

    def measure(self, case: str) -> dict[str, Any]:
        """Return the row of a case."""
        ours, is_right = self._run(case, "namespace")
        raw, raw_is_right = self._run(case, "pylance")
        values = {
            "case": case,
            "grown_mb": round(ours["grown_mb"]),
            "seconds": round(ours["seconds"], 2),
            "pylance_grown_mb": round(raw["grown_mb"]),
            "pylance_seconds": round(raw["seconds"], 2),
        }
        return make_row(values, [BAR], (not is_right) + (not raw_is_right))

    def _run(self, case: str, by: str) -> tuple[dict[str, float], bool]:
        """Do a case in a process; return what it printed, and whether all rows are there."""
        operation, source = CASES[case]
        rows = self._batches * _BATCH_ROWS
        rows_after = rows + (_BATCH_ROWS if operation == "insert" else 0)
        work = Work(
            by, operation, source, self._uri, str(self._location), str(self.data), self._batches
        )
        with self._table(operation, registered=by == "namespace"):
            done = subprocess.run(
                [sys.executable, "-m", "bench.memory", json.dumps(asdict(work))],
                cwd=Path(__file__).parents[1],
                stdout=subprocess.PIPE,
                check=True,
            )
            found: dict[str, float] = json.loads(done.stdout)
            is_whole = lance.dataset(str(self._location)).count_rows() == rows_after
        # What creates or inserts does not return the number of rows in both ways.
        return found, is_whole and (operation in ("create", "insert") or found["rows"] == rows)

    @contextmanager
    def _table(self, operation: str, *, registered: bool) -> Iterator[None]:
        """Provide the table as it must be before an operation, and remove it at the end."""
        if operation != "create":
            # Lance never changes a file that is written.
            prepared = self._prepare(operation)
            shutil.copytree(prepared, self._location, copy_function=os.link)
            if registered:
                location = str(self._location)
                request(self._namespace, "register_table", id=_TABLE, location=location)
        yield
        if registered:
            request(self._namespace, "deregister_table", id=_TABLE)
        shutil.rmtree(self._location)

    def _prepare(self, operation: str) -> Path:
        """Return a table as it is before an operation, which is written the first time."""
        path = self._directory / f"{operation}.lance"
        if not path.exists():
            numbers = range(self._batches, self._batches + 1)
            rows = _make_batches(numbers if operation == "insert" else range(self._batches))
            if operation == "merge":
                rows = (batch.take(list(range(0, _BATCH_ROWS, 2))) for batch in rows)
            lance.write_dataset(_as_reader(rows), str(path))
        return path


def _make_batches(numbers: Iterable[int]) -> Iterator[pa.RecordBatch]:
    """Yield the batches of those numbers; none is kept."""
    for number in numbers:
        ids = np.arange(number * _BATCH_ROWS, (number + 1) * _BATCH_ROWS)
        values = np.random.default_rng(number).random(_BATCH_ROWS * 128, dtype=np.float32)
        titles = pa.array([f"{_TITLE}{each:09}" for each in ids.tolist()])
        vectors = pa.FixedSizeListArray.from_arrays(pa.array(values), 128)
        yield pa.RecordBatch.from_arrays([pa.array(ids), titles, vectors], schema=_SCHEMA)


def _as_reader(data: Any) -> pa.RecordBatchReader:
    """Return rows in the form that pylance takes."""
    if isinstance(data, bytes) or hasattr(data, "read"):
        return pa.ipc.open_stream(data)
    return pa.RecordBatchReader.from_batches(_SCHEMA, data)


# -- in a new process -----------------------------------------------------------------------


def run_process(work: Work) -> None:
    """Do one operation, and print how the memory grew (MB), its seconds and its rows."""
    do = (_namespace_calls if work.by == "namespace" else _pylance_calls)(work)[work.operation]
    with _pass_in(work) as data:
        # So that the peak is that of the operation.
        Path("/proc/self/clear_refs").write_text("5", encoding="ascii")
        before = _memory_mb("VmRSS")
        started = time.perf_counter()
        rows = do(data)
        seconds = time.perf_counter() - started
        grown = _memory_mb("VmHWM") - before
    print(json.dumps({"grown_mb": grown, "seconds": seconds, "rows": rows}))


def _memory_mb(key: str) -> float:
    """Return a figure of this process's memory in MB (10^6 bytes), as Linux has it."""
    status = Path("/proc/self/status").read_text(encoding="ascii")
    (line,) = (each for each in status.splitlines() if each.startswith(f"{key}:"))
    return int(line.split()[1]) * 1024 / 1e6


@contextmanager
def _pass_in(work: Work) -> Iterator[Any]:
    """Yield the rows as bytes, as a file, or as an iterator that makes them again."""
    if work.source == "iterator":
        yield _make_batches(range(work.batches))
        return
    with Path(work.data).open("rb") as file:
        yield file if work.source == "file" else file.read()


def _namespace_calls(work: Work) -> dict[str, Callable[[Any], int]]:
    namespace: Any = lance_bridge.connect("hive", {"uri": work.uri})
    upsert = {"when_matched_update_all": True, "when_not_matched_insert_all": True}

    def create(data: Any) -> int:
        request(namespace, "create_table", data, id=_TABLE)
        return 0

    def insert(data: Any) -> int:
        return int(request(namespace, "insert_into_table", data, id=_TABLE).num_inserted_rows)

    def merge(data: Any) -> int:
        done = request(namespace, "merge_insert_into_table", data, id=_TABLE, on=["id"], **upsert)
        return int(done.num_inserted_rows + done.num_updated_rows)

    def query(_: Any) -> int:
        wanted = QueryTableRequest.from_dict(
            {"id": _TABLE, "k": 0, "vector": {"single_vector": []}}
        )
        return sum(batch.num_rows for batch in namespace.query_table_reader(wanted))

    return {"create": create, "insert": insert, "merge": merge, "query": query}


def _pylance_calls(work: Work) -> dict[str, Callable[[Any], int]]:
    def create(data: Any) -> int:
        lance.write_dataset(_as_reader(data), work.location)
        return 0

    def insert(data: Any) -> int:
        lance.dataset(work.location).insert(_as_reader(data))
        return 0

    def merge(data: Any) -> int:
        merge = lance.dataset(work.location).merge_insert("id").when_matched_update_all()
        done = merge.when_not_matched_insert_all().execute(_as_reader(data))
        return int(done["num_inserted_rows"] + done["num_updated_rows"])

    def query(_: Any) -> int:
        reader = lance.dataset(work.location).scanner().to_reader()
        return sum(batch.num_rows for batch in reader)

    return {"create": create, "insert": insert, "merge": merge, "query": query}


if __name__ == "__main__":
    run_process(Work(**json.loads(sys.argv[1])))
