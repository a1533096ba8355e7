"""What Lance tables cost in Spark, beside Spark's own Parquet with the same rows.

Starts a Hive Metastore and Spark on two cores, writes the rows as Lance tables through the SQL
catalog and as Parquet files, and does the same statements on both, in turns within one session.
Then index building and compaction on one core and on two, and the levers: what larger batches and
workers that have imported everything before would bring. Times are of this machine. Misses of a
bar are reported and do no more; a wrong answer makes the exit code 1.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))
sys.path.insert(0, str(Path(__file__).parents[1]))

from bench import spark_jobs, spark_levers, spark_report, spark_rounds, spark_settings
from bench.spark_data import write_source
from lance_bridge_hive.embedded import Metastore

PARTS = ("rounds", "jobs", "levers")


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure and print; return 1 where an answer was wrong, else 0."""
    options = argparse.ArgumentParser(description=(__doc__ or "").split("\n\n", 1)[0])
    options.add_argument("--rows", type=int, default=10_000_000)
    options.add_argument("--rounds", type=int, default=5, help="of all statements")
    options.add_argument("--memory", default="3g", help="of Spark's driver, which does the work")
    options.add_argument("--part", action="append", choices=PARTS, help="only these, not all")
    options.add_argument("--keep", type=Path, help="a directory for the tables, which stay there")
    options.add_argument("--output", choices=["text", "json"], default="text")
    given = options.parse_args(arguments)
    if given.rows < 1000 or given.rounds < 1:
        options.error("at least 1000 rows and 1 round are needed")
    directory = given.keep or Path(tempfile.mkdtemp(prefix="lance-bridge-spark-"))
    try:
        found = _measure(directory.absolute(), given)
    finally:
        if not given.keep:
            shutil.rmtree(directory, ignore_errors=True)
    text = json.dumps(found, indent=2) if given.output == "json" else spark_report.as_text(found)
    print(text)
    return 1 if found["wrong_answers"] else 0


def _measure(directory: Path, given: argparse.Namespace) -> dict[str, Any]:
    parts = given.part or PARTS
    source = directory / "source"
    _tell("writing the rows …")
    if not source.exists():
        write_source(source, given.rows)
    found: dict[str, Any] = {
        "rows": given.rows,
        "megabytes": spark_report.megabytes(source),
        "rounds": given.rounds,
        "load_average": round(os.getloadavg()[0], 1),
    }
    with Metastore("2.3", directory / "hms", warehouse=directory / "warehouse") as metastore:
        place = spark_settings.Place(directory, metastore.uri, given.memory)
        found["statements"] = spark_rounds.measure(place, given.rows, given.rounds, _tell)
        if "jobs" in parts:
            found["jobs"] = spark_jobs.measure(place, given.rows, _tell)
        if "levers" in parts:
            found["levers"] = spark_levers.measure(place, given.rounds, _tell)
    return spark_report.summed_up(found)


def _tell(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


if __name__ == "__main__":
    sys.exit(main())
