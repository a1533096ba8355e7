"""One measurement of memory: a call of pylance, on a table by its path."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1]))

import lance

from bench import memory_process
from bench.memory_rows import as_reader


def ways(given: argparse.Namespace) -> Mapping[str, memory_process.Do]:
    """Return the same operations by name."""
    place = given.location

    def create(data: Any) -> int:
        lance.write_dataset(as_reader(data), place)
        return 0

    def insert(data: Any) -> int:
        lance.dataset(place).insert(as_reader(data))
        return 0

    def merge(data: Any) -> int:
        merge = lance.dataset(place).merge_insert("id").when_matched_update_all()
        done = merge.when_not_matched_insert_all().execute(as_reader(data))
        return int(done["num_inserted_rows"] + done["num_updated_rows"])

    def query(_: Any) -> int:
        return sum(batch.num_rows for batch in lance.dataset(place).scanner().to_reader())

    return {"create": create, "insert": insert, "merge": merge, "query": query}


if __name__ == "__main__":
    memory_process.main(ways)
