"""Sessions of Spark to measure in: their settings, their CPU time, and turns with Parquet."""

from __future__ import annotations

import os
import statistics
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from pyspark.sql import SparkSession

from bench.runner import Bar, Figures, Operation, Timed, operation_row, take_turns
from lance_bridge_spark import settings

CATALOG = "prod"
_TICKS = os.sysconf("SC_CLK_TCK")


@dataclass(frozen=True)
class Setup:
    """A directory, the metastore in it, and how much memory Spark may have."""

    directory: Path
    metastore: str
    memory: str

    @property
    def source(self) -> str:
        """Where the rows are that tables are written from."""
        return str(self.directory / "source")

    @property
    def parquet(self) -> str:
        """Where Spark's own Parquet is that is read."""
        return str(self.directory / "parquet")

    @contextmanager
    def session(self, cores: int = 2) -> Iterator[SparkSession]:
        """Yield a session on some cores that has the catalog by its settings alone."""
        os.environ["PYSPARK_PYTHON"] = os.environ["PYSPARK_DRIVER_PYTHON"] = sys.executable
        os.environ["SPARK_LOCAL_IP"] = "127.0.0.1"
        root = Path(__file__).parents[1]
        paths = [str(root / name) for name in ("core", "adapters", "apps", "tests", ".")]
        os.environ["PYTHONPATH"] = os.pathsep.join(paths)
        given = {
            "spark.master": f"local[{cores}]",
            "spark.ui.enabled": "false",
            "spark.ui.showConsoleProgress": "false",
            "spark.driver.memory": self.memory,
            "spark.sql.shuffle.partitions": str(cores),
            "spark.local.dir": str(self.directory),
            "spark.sql.warehouse.dir": str(self.directory / "spark-warehouse"),
        }
        prod = {"impl": "hive", "uri": self.metastore}
        conf: dict[str, Any] = {**settings({CATALOG: prod}, given)}
        spark = SparkSession.builder.config(map=conf).getOrCreate()
        try:
            yield spark
        finally:
            spark.stop()


@dataclass(frozen=True)
class ProcessTree:
    """This process and the tree below another one."""

    root: int

    @classmethod
    def of(cls, spark: Any) -> ProcessTree:
        """Return the tree of a session: a metastore that runs beside it is no part of it."""
        return cls(spark._jvm.java.lang.ProcessHandle.current().pid())

    def seconds(self) -> float:
        """Return the CPU seconds so far; a process that has ended counts with its parent."""
        children: dict[int, list[int]] = {}
        ticks: dict[int, int] = {}
        for each in Path("/proc").glob("[0-9]*"):
            try:
                status = (each / "stat").read_text(encoding="utf-8", errors="replace")
            except (FileNotFoundError, ProcessLookupError):
                continue
            fields = status.rpartition(")")[2].split()
            children.setdefault(int(fields[1]), []).append(int(each.name))
            # Of itself and of the children that it has waited for, as user and for the system.
            ticks[int(each.name)] = sum(map(int, fields[11:15]))
        below, total = [self.root], 0
        while below:
            process = below.pop()
            total += ticks.get(process, 0)
            below += children.get(process, [])
        return total / _TICKS + time.process_time()


def measure_operations(
    operations: Sequence[Operation], rounds: int, rehearsals: int = 1
) -> list[dict[str, Any]]:
    """Do all operations in turns; return a row for each, with the ratio of its CPU times."""
    figures = take_turns(operations, rounds, rehearsals=rehearsals)
    return [
        operation_row(each, figures[each.name], cpu_ratio=_cpu_ratio(figures[each.name]))
        for each in operations
    ]


def _cpu_ratio(found: Figures) -> float:
    ours, parquet = (statistics.median(found.parts[f"{way}_cpu_s"]) for way in found.seconds)
    return round(ours / max(parquet, 0.001), 3)


@dataclass(frozen=True)
class Statements:
    """Makes operations that do a statement of one session on a table and on Parquet."""

    spark: SparkSession
    tables: Sequence[str]

    def sql(self, text: str) -> list[Any]:
        """Return all rows of a statement."""
        return self.spark.sql(text).collect()

    def make(
        self,
        name: str,
        do: Callable[[str, int], Any],
        ratio: float | None = None,
        *,
        cpu: float | None = None,
        seconds: float | None = None,
        is_same: Callable[[Any, Any], bool] | None = None,
        tables: Sequence[str] | None = None,
        times: int = 1,
        before: Callable[[], None] = lambda: None,
    ) -> Operation:
        """Return a statement; ``do`` gets the table and a number that differs between turns.

        Args:
            ratio: The bar for times of Parquet's, wall and CPU.
            cpu: The bar for seconds of CPU.
            seconds: The bar for seconds.
            tables: Ours and the one of Parquet, in place of those of all statements.
            times: How often a turn does it on ours.
            before: What a turn does first; it is not measured.
        """
        tree, same = ProcessTree.of(self.spark), is_same or are_equal

        def run(way: str, table: str, times: int, turn: int) -> Timed:
            before()
            started, cpu_before = time.perf_counter(), tree.seconds()
            for number in range(times):
                answer = do(table, turn * times + number)
            cpu, seconds = tree.seconds() - cpu_before, time.perf_counter() - started
            if times > 1:
                answer = do(table, turn)
            return Timed(seconds / times, answer, {f"{way}_cpu_s": cpu / times})

        ours, parquet = tables or self.tables
        ways = {
            "ours": partial(run, "ours", ours, times),
            "parquet": partial(run, "parquet", parquet, 1),
        }
        bars = [Bar(key, "<=", ratio) for key in ("ratio", "cpu_ratio") if ratio is not None]
        bars += [Bar("ours_cpu_s", "<=", cpu)] if cpu is not None else []
        bars += [Bar("ours_s", "<=", seconds)] if seconds is not None else []
        return Operation(name, ways, lambda a, _: same(a["ours"], a["parquet"]), bars, unit="s")


def are_equal(ours: Any, theirs: Any) -> bool:
    """Return whether rows are the same; sums of floats differ by the order of their terms."""
    if isinstance(ours, float) and isinstance(theirs, float):
        return abs(ours - theirs) <= 1e-6 * max(abs(ours), abs(theirs), 1.0)
    if isinstance(ours, (list, tuple)):
        return len(ours) == len(theirs) and all(map(are_equal, ours, theirs))
    return bool(ours == theirs)
