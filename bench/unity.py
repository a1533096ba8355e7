"""What the bridge costs on Unity Catalog, against databricks-sdk alone.

Starts the project's own double of the open-source server, since no Unity server can be had as a
package, with 300 tables (150 of them Lance's) and 300 schemas, and measures as ``bench/hive.py``
does. The double does less than a server with a database behind it: what is ours shows the more.
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
from bench.unity_fixture import Unity, unity


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure and print; return 1 where an answer was wrong, else 0."""
    options = benchmark.parser(__doc__, tables=300, rounds=40, each=100)
    return benchmark.main(options, arguments, _start)


def _start(given: argparse.Namespace) -> AbstractContextManager[Unity]:
    return unity(given.tables, given.databases)


if __name__ == "__main__":
    sys.exit(main())
