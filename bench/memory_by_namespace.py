"""One measurement of memory: an operation of the namespace."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1]))

from lance_namespace import (
    CreateTableRequest,
    InsertIntoTableRequest,
    MergeInsertIntoTableRequest,
    QueryTableRequest,
)
from lance_namespace_urllib3_client.models import QueryTableRequestVector

import lance_bridge
from bench import memory_process


def ways(given: argparse.Namespace) -> Mapping[str, memory_process.Do]:
    """Return the operations by name."""
    namespace: Any = lance_bridge.connect("hive", {"uri": given.uri})
    table = given.table.split(".")

    def create(data: Any) -> int:
        namespace.create_table(CreateTableRequest(id=table), data)
        return 0

    def insert(data: Any) -> int:
        request = InsertIntoTableRequest(id=table)
        return int(namespace.insert_into_table(request, data).num_inserted_rows)

    def merge(data: Any) -> int:
        request = MergeInsertIntoTableRequest(
            id=table, on=["id"], when_matched_update_all=True, when_not_matched_insert_all=True
        )
        done = namespace.merge_insert_into_table(request, data)
        return int(done.num_inserted_rows + done.num_updated_rows)

    def query(_: Any) -> int:
        empty = QueryTableRequestVector(single_vector=[])
        request = QueryTableRequest(id=table, k=0, vector=empty)
        return sum(batch.num_rows for batch in namespace.query_table_reader(request))

    return {"create": create, "insert": insert, "merge": merge, "query": query}


if __name__ == "__main__":
    memory_process.main(ways)
