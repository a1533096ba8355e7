"""What one measurement of memory is, in a process of its own: `memory.py` runs it.

Prints one JSON object: how far the memory of the process grew while it did one operation, what it
had before (and with it what was handed in), and the seconds and rows of the operation.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from bench.memory_rows import SOURCES, handed_in

Do = Callable[[Any], int]
"""Does an operation with what is handed in; returns how many rows it has told of."""
_RESET_PEAK = "5"


def main(ways: Callable[[argparse.Namespace], Mapping[str, Do]]) -> None:
    """Do one of the ways that there are by name, as the command line says; print what it took."""
    options = argparse.ArgumentParser(description=(__doc__ or "").split("\n\n", 1)[0])
    options.add_argument("operation")
    options.add_argument("--source", choices=SOURCES, default="file")
    options.add_argument("--uri", required=True, help="of the metastore")
    options.add_argument("--table", required=True, help="as namespace.table")
    options.add_argument("--location", required=True, help="of the table")
    options.add_argument("--data", type=Path, required=True, help="an Arrow IPC stream")
    options.add_argument("--batches", type=int, required=True, help="in the data")
    given = options.parse_args()
    do = ways(given)[given.operation]
    with handed_in(given.source, given.data, given.batches) as data:
        print(json.dumps(_measured(lambda: do(data))))


def _measured(do: Callable[[], int]) -> dict[str, float]:
    Path("/proc/self/clear_refs").write_text(_RESET_PEAK, encoding="ascii")
    before = _memory("VmRSS")
    started = time.perf_counter()
    rows = do()
    seconds = time.perf_counter() - started
    grown = _memory("VmHWM") - before
    return {"before_mb": before, "grown_mb": grown, "seconds": seconds, "rows": rows}


def _memory(key: str) -> float:
    """Return what Linux tells of the memory of this process, in MB (10^6 bytes)."""
    status = Path("/proc/self/status").read_text(encoding="ascii")
    (line,) = (each for each in status.splitlines() if each.startswith(f"{key}:"))
    return int(line.split()[1]) * 1024 / 1e6
