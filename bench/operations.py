"""What the bridge costs on top of pylance, for the operations inside a table.

Starts a metastore, and does each operation through the namespace and with the same call of pylance
on a dataset that is opened by its path, in turns within one run. What is left after pylance's time
and the time of one raw call to the catalog is our own. The calls on the wire are counted by a
proxy. Times are of this machine. Misses of a bar are reported and do no more; a wrong answer, or
tables that are not alike in the end, makes the exit code 1.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))
sys.path.insert(0, str(Path(__file__).parents[1]))

from lance_namespace import ListTablesRequest

from bench import pairs_report, table_versions
from bench.fixture import NAMESPACE
from bench.hive_fixture import Hive, hive
from bench.pairs import Rounds
from bench.table_steps import ROWS
from lance_bridge_hive.embedded import RELEASES

_WARM_UP = 2


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure and print; return 1 where an answer was wrong, else 0."""
    options = argparse.ArgumentParser(description=(__doc__ or "").split("\n\n", 1)[0])
    options.add_argument("--rounds", type=int, default=40, help="of all operations")
    options.add_argument("--only", help="those whose name has this in it are reported")
    options.add_argument(
        "--version", choices=list(RELEASES), default="2.3", help="of the metastore"
    )
    options.add_argument("--output", choices=["text", "json"], default="text")
    given = options.parse_args(arguments)
    if given.rounds < 1:
        options.error("at least 1 round is needed")
    print("starting the catalog …", file=sys.stderr, flush=True)
    # The raw client at its fastest: what it takes is taken off our time.
    with hive(given.version, tables=2, namespaces=2, connections=1, accelerated=True) as catalog:
        print(f"measuring on {catalog.title} …", file=sys.stderr, flush=True)
        found = _measure(catalog, given.rounds, given.only or "")
    text = json.dumps(found, indent=2) if given.output == "json" else pairs_report.as_text(found)
    print(text)
    return 1 if found["wrong_answers"] or found["unlike_tables"] else 0


def _measure(catalog: Hive, rounds: int, only: str) -> dict[str, Any]:
    steps = table_versions.steps()
    client = catalog.raw()
    namespace = catalog.connect()
    turns = Rounds(steps, client, catalog.fixture.root)
    turns.measure(namespace, _WARM_UP)
    pairs = turns.measure(namespace, rounds)
    with catalog.wire() as wire:
        counted = catalog.connect(wire.address)
        # The first call on a connection asks the server who it is.
        counted.list_tables(ListTablesRequest(id=[NAMESPACE]))
        turns.count(counted, wire, pairs)
        counted.close()
    client.close()
    namespace.close()
    about = {
        "catalog": catalog.title,
        "rows": ROWS,
        "rounds": rounds,
        "raw_client": catalog.calls.client,
        "load_average": round(os.getloadavg()[0], 1),
    }
    chosen = [step for step in steps if only in step.name]
    return pairs_report.collect(about, chosen, pairs, turns.unlike)


if __name__ == "__main__":
    sys.exit(main())
