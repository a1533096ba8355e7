"""What the bridge costs on a Hive Metastore, against a raw client doing the least.

Starts a metastore with 1,000 tables (500 of them Lance's) and 300 databases, and measures every
operation beside the raw calls that come closest to it, in turns within one run; the calls on the
wire, counted by a proxy; and 8 threads on one namespace object. Times are of this machine: compare
ratios. Misses of a bar are reported and do no more; a wrong answer makes the exit code 1.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from contextlib import AbstractContextManager
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))
sys.path.insert(0, str(Path(__file__).parents[1]))

from bench import benchmark
from bench.hive_fixture import Hive, hive
from lance_bridge_hive.embedded import RELEASES


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure and print; return 1 where an answer was wrong, else 0."""
    options = benchmark.parser(__doc__, tables=1000, rounds=60, each=200)
    options.add_argument(
        "--version", choices=list(RELEASES), default="2.3", help="of the metastore"
    )
    options.add_argument(
        "--raw",
        choices=["hmsclient", "accelerated"],
        default="hmsclient",
        help="the raw client as it comes, or with Thrift's protocol in C",
    )
    return benchmark.main(options, arguments, _start)


def _start(given: argparse.Namespace) -> AbstractContextManager[Hive]:
    fast = given.raw == "accelerated"
    return hive(given.version, given.tables, given.databases, given.threads, accelerated=fast)


if __name__ == "__main__":
    sys.exit(main())
