"""What operations on many rows hold in memory: create, insert, merge and query.

Starts a metastore, and for each case a process of its own, whose peak of resident memory (RSS) is
read from Linux. What is reported is how far the peak is above what the process had before the
operation, with what was handed in already there. Beside ours stands pylance's own call with the
same rows. The merge is into a table that has every other key already. A miss of the bar is reported
and does no more; a wrong number of rows makes the exit code 1.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))
sys.path.insert(0, str(Path(__file__).parents[1]))

import lance
from lance_namespace import CreateNamespaceRequest, DeregisterTableRequest, RegisterTableRequest

import lance_bridge
from bench.memory_rows import BATCH_ROWS, SOURCES, as_reader, batch_count, batches, write
from lance_bridge_hive.embedded import RELEASES, Metastore

BAR = 500
"""MB (10^6 bytes) that an operation may hold beyond what was handed in."""
_NAMESPACE = "memory"
_TABLE = "big"
_SILENT = ("create", "insert")
"""Operations that do not tell of rows in both ways."""
_EVERY_OTHER = list(range(0, BATCH_ROWS, 2))
_ROW = "{:<8}{:<10}{:>10}{:>9}  {:<14}{:>11}{:>9}"


@dataclass(frozen=True)
class Case:
    """One operation, and how its rows are handed in; a query is handed none."""

    operation: str
    source: str | None = None

    def __str__(self) -> str:
        """Return what the report calls it."""
        return f"{self.operation} {self.source or ''}".strip()


CASES = [
    *(Case(name, source) for name in ("create", "insert", "merge") for source in SOURCES),
    Case("query"),
]


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure and print; return 1 where rows were missing, else 0."""
    options = argparse.ArgumentParser(description=(__doc__ or "").split("\n\n", 1)[0])
    options.add_argument("--megabytes", type=int, default=2000, help="that are handed in")
    names = [str(case) for case in CASES]
    options.add_argument("--case", action="append", choices=names, help="only these, not all")
    options.add_argument(
        "--version", choices=list(RELEASES), default="2.3", help="of the metastore"
    )
    options.add_argument("--output", choices=["text", "json"], default="text")
    given = options.parse_args(arguments)
    if given.megabytes < 1:
        options.error("at least 1 MB is needed")
    cases = [case for case in CASES if str(case) in (given.case or names)]
    with tempfile.TemporaryDirectory(prefix="lance-bridge-memory-") as name:
        found = _measure(Path(name), given.version, given.megabytes, cases)
    print(json.dumps(found, indent=2) if given.output == "json" else _as_text(found))
    return 1 if found["wrong_answers"] else 0


def _measure(directory: Path, version: str, megabytes: int, cases: list[Case]) -> dict[str, Any]:
    _tell("starting the catalog, writing the rows …")
    with Metastore(version, directory / "hms", warehouse=directory / "warehouse") as metastore:
        bench = Bench(metastore.uri, directory, batch_count(megabytes))
        found = []
        for case in cases:
            _tell(f"measuring {case} …")
            found.append(bench.measure(case))
    return {
        "catalog": f"Hive Metastore {metastore.release.full_version}",
        "megabytes": round(bench.data.stat().st_size / 1e6) if bench.data.exists() else megabytes,
        "rows": bench.rows,
        "cases": found,
        "missed": [
            f"{each['case']}: {each['grown_mb']} MB" for each in found if not each["passed"]
        ],
        "wrong_answers": sum(each["wrong"] for each in found),
        "load_average": round(os.getloadavg()[0], 1),
    }


def _script(by: str) -> Path:
    return Path(__file__).with_name(f"memory_by_{by}.py")


def _tell(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


class Bench:
    """The rows, the tables that are there before an operation, and the processes that do it."""

    def __init__(self, uri: str, directory: Path, count: int) -> None:
        self._uri = uri
        self._directory = directory
        self._count = count
        self._namespace = lance_bridge.connect("hive", {"uri": uri})
        self._namespace.create_namespace(CreateNamespaceRequest(id=[_NAMESPACE]))
        self.rows = count * BATCH_ROWS
        self.data = directory / "rows.arrows"
        write(self.data, range(count))

    def measure(self, case: Case) -> dict[str, Any]:
        """Measure a case by the namespace and by pylance."""
        ours, right = self._run(case, "namespace")
        raw, raw_right = self._run(case, "pylance")
        return {
            "case": str(case),
            "operation": case.operation,
            "source": case.source,
            "grown_mb": round(ours["grown_mb"]),
            "bar_mb": BAR,
            "passed": ours["grown_mb"] < BAR,
            "seconds": round(ours["seconds"], 2),
            "pylance_grown_mb": round(raw["grown_mb"]),
            "pylance_seconds": round(raw["seconds"], 2),
            "wrong": (not right) + (not raw_right),
        }

    def _run(self, case: Case, by: str) -> tuple[dict[str, float], bool]:
        with self._table(case, by) as (location, rows_after):
            done = subprocess.run(
                [
                    *(sys.executable, str(_script(by)), case.operation),
                    *("--source", case.source or "file", "--uri", self._uri),
                    *("--table", f"{_NAMESPACE}.{_TABLE}", "--location", str(location)),
                    *("--data", str(self.data), "--batches", str(self._count)),
                ],
                stdout=subprocess.PIPE,
                text=True,
                check=True,
            )
            found = json.loads(done.stdout)
            is_whole = lance.dataset(str(location)).count_rows() == rows_after
            return found, is_whole and (case.operation in _SILENT or found["rows"] == self.rows)

    @contextmanager
    def _table(self, case: Case, by: str) -> Iterator[tuple[Path, int]]:
        """Yield where the table of a case is, and how many rows it is to have in the end."""
        place = self._directory / "warehouse" / f"{_NAMESPACE}.db" / f"{_TABLE}.lance"
        is_there, is_named = case.operation != "create", by == "namespace"
        if is_there:
            # Lance never changes a file that is written.
            shutil.copytree(self._prepared(case.operation), place, copy_function=os.link)
        if is_there and is_named:
            request = RegisterTableRequest(id=[_NAMESPACE, _TABLE], location=str(place))
            self._namespace.register_table(request)
        yield place, self.rows + (BATCH_ROWS if case.operation == "insert" else 0)
        if is_named:
            self._namespace.deregister_table(DeregisterTableRequest(id=[_NAMESPACE, _TABLE]))
        shutil.rmtree(place)

    def _prepared(self, operation: str) -> Path:
        """Return a table as it is before an operation, made when first asked for."""
        place = self._directory / f"{operation}.lance"
        if not place.exists():
            one_more, all_rows = range(self._count, self._count + 1), range(self._count)
            numbers = one_more if operation == "insert" else all_rows
            rows = batches(numbers)
            if operation == "merge":
                rows = (batch.take(_EVERY_OTHER) for batch in rows)
            lance.write_dataset(as_reader(rows), str(place))
        return place


def _as_text(found: dict[str, Any]) -> str:
    missed = found["missed"]
    lines = [
        f"{found['catalog']}: memory of operations on {found['megabytes']} MB, {found['rows']} "
        f"rows; peak above what was handed in; load average: {found['load_average']}",
        "",
        _ROW.format("does", "from", "ours MB", "seconds", "bar", "pylance MB", "seconds"),
        *(_row(each) for each in found["cases"]),
        "",
        f"bars missed: {len(missed)}" + "".join(f"\n  {each}" for each in missed),
        f"wrong answers: {found['wrong_answers']}",
    ]
    return "\n".join(lines)


def _row(each: dict[str, Any]) -> str:
    return _ROW.format(
        each["operation"],
        each["source"] or "-",
        each["grown_mb"],
        f"{each['seconds']:.1f}",
        f"< {each['bar_mb']} {'pass' if each['passed'] else 'MISS'}",
        each["pylance_grown_mb"],
        f"{each['pylance_seconds']:.1f}",
    )


if __name__ == "__main__":
    sys.exit(main())
