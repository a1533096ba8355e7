"""What it costs to convert Parquet into a table of Lance, against Spark's own copy of the Parquet.

Writes 10 million rows as Parquet, starts a Hive Metastore and Spark on two cores, and in each round
converts them into a new table: planned, carried out, recorded. In turns with it, in the same
session, Spark reads the same files and writes them as Parquet. What verifying costs is told for
itself, and how much memory the processes took. Times are of this machine: compare ratios. A wrong
answer, or a conversion at less than 0.8 of the speed of the copy, makes the exit code 1.
"""

from __future__ import annotations

import argparse
import itertools
import json
import shutil
import statistics
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))
sys.path.insert(0, str(Path(__file__).parents[1]))

from lance_namespace import DropNamespaceRequest, DropTableRequest

from bench import processes, spark_settings
from bench.spark_data import DIMENSION, write_source
from lance_bridge.migrate import (
    Ends,
    Level,
    Migrations,
    RunOptions,
    State,
    address_of,
    execute,
    kind_named,
    make_plan,
    verify,
)
from lance_bridge_hive import HiveNamespace
from lance_bridge_hive.embedded import Metastore

_BAR = 0.8
"""Our speed must be at least so much of the copy's."""
_DATABASE, _TABLE = "converted", "t"


@dataclass
class Round:
    """One conversion, in seconds; ``is_right`` where all rows are there and nothing differs."""

    plan: float = 0.0
    run: float = 0.0
    counts: float = 0.0
    checksums: float = 0.0
    is_right: bool = False
    sizes: dict[str, int] = field(default_factory=dict)

    @property
    def whole(self) -> float:
        """Planned, carried out, and verified as is the default."""
        return self.plan + self.run + self.counts


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure and print; return 1 where an answer was wrong or the bar is missed, else 0."""
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--rows", type=int, default=10_000_000)
    options.add_argument("--rounds", type=int, default=3, help="beside one to warm up")
    options.add_argument("--memory", default="3g", help="of Spark's driver, which does the work")
    given = options.parse_args(arguments)
    directory = Path(tempfile.mkdtemp(prefix="lance-bridge-migrate-"))
    try:
        write_source(directory / "source", given.rows)
        with Metastore() as metastore:
            place = spark_settings.Place(directory, metastore.uri, given.memory)
            with spark_settings.session(place) as spark:
                return _measure(Subject(spark, place, given.rows), given.rounds)
    finally:
        shutil.rmtree(directory, ignore_errors=True)


@dataclass(frozen=True)
class Subject:
    """What is measured."""

    spark: Any
    place: spark_settings.Place
    rows: int

    def copy(self) -> float:
        """Copy the Parquet with Spark; return the seconds."""
        target = self.place.directory / "copied"
        begun = time.perf_counter()
        self.spark.read.parquet(self.place.source).write.parquet(str(target))
        seconds = time.perf_counter() - begun
        shutil.rmtree(target)
        return seconds

    def convert(self, *, find_vectors: bool) -> Round:
        """Convert the Parquet by the user's own path through the library, and drop the table."""
        source = {"path": self.place.source, "format": "parquet", "table": _TABLE}
        options = {"paths": [source], "namespace": [_DATABASE], "find_vectors": find_vectors}
        root = str(self.place.directory / "lance")
        kind = kind_named("convert")
        from lance_bridge.migrate.spark.session import (  # noqa: PLC0415 - Spark is running by now
            address_of_session,
        )

        found = Round()
        with HiveNamespace(uri=self.place.metastore, root=root) as namespace:
            ends = Ends(
                self.spark, namespace, address_of_session(self.spark), address_of(namespace)
            )
            at = [time.perf_counter()]
            migration = Migrations(self.place.directory / "state").add(
                make_plan(kind, ends, options)
            )
            at.append(time.perf_counter())
            record = execute(kind, ends, migration, RunOptions(verify=Level.NONE))
            at.append(time.perf_counter())
            states = [record.state]
            for level in (Level.COUNTS, Level.CHECKSUMS):
                states.append(verify(kind, ends, migration, level).state)
                at.append(time.perf_counter())
            found.plan, found.run, found.counts, found.checksums = (
                after - before for before, after in itertools.pairwise(at)
            )
            (state,) = (each for each in record.items.values() if each.item.target[1:])
            found.is_right = set(states) == {State.DONE} and self._is_whole(
                namespace, find_vectors=find_vectors
            )
            found.sizes = {
                key: state.facts[key]
                for key in ("bytes_before", "bytes_after")
                if state.facts.get(key)
            }
            namespace.drop_table(DropTableRequest(id=[_DATABASE, _TABLE]))
            namespace.drop_namespace(DropNamespaceRequest(id=[_DATABASE]))
        return found

    def _is_whole(self, namespace: HiveNamespace, *, find_vectors: bool) -> bool:
        import lance  # noqa: PLC0415 - after Spark has forked its daemon

        dataset = lance.dataset(namespace_client=namespace, table_id=[_DATABASE, _TABLE])
        vector = dataset.schema.field("vector").type
        lengths = getattr(vector, "list_size", None)
        return bool(
            dataset.count_rows() == self.rows and lengths == (DIMENSION if find_vectors else None)
        )


def _measure(subject: Subject, rounds: int) -> int:
    copies: list[float] = []
    plain: list[Round] = []
    vectors: list[Round] = []
    for number in range(rounds + 1):
        if number % 2:
            copies.append(subject.copy())
        plain.append(subject.convert(find_vectors=False))
        vectors.append(subject.convert(find_vectors=True))
        if not number % 2:
            copies.append(subject.copy())
    is_right = all(each.is_right for each in plain + vectors)
    return report(subject.rows, copies[1:], plain[1:], vectors[1:], is_right=is_right)


def report(
    rows: int,
    copies: Sequence[float],
    plain: Sequence[Round],
    vectors: Sequence[Round],
    *,
    is_right: bool,
) -> int:
    """Print the figures; return the exit code."""
    copy = statistics.median(copies)
    lines = [f"{rows} rows, Parquet to Parquet by Spark: {copy:.2f} s"]
    speeds = []
    for name, found in (("lists", plain), ("vectors", vectors)):
        run = statistics.median(each.run for each in found)
        whole = statistics.median(each.whole for each in found)
        checksums = statistics.median(each.checksums for each in found)
        plan = statistics.median(each.plan for each in found)
        speeds.append(copy / run)
        lines.append(
            f"Parquet to Lance, {name}: {run:.2f} s, {copy / run:.2f} of its speed (bar {_BAR}); "
            f"with plan ({plan:.2f} s) and counts {whole:.2f} s; checksums {checksums:.2f} s more"
        )
    lines.append(f"peak memory of a process, MB: {json.dumps(processes.peaks_below())}")
    lines.append(f"rounds: {json.dumps([asdict(each) for each in [*plain, *vectors]])}")
    lines.append("every answer was right" if is_right else "AN ANSWER WAS WRONG")
    sys.stdout.write("\n".join(lines) + "\n")
    return 0 if is_right and min(speeds) >= _BAR else 1


if __name__ == "__main__":
    sys.exit(main())
