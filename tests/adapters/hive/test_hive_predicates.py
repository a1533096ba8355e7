"""Predicates of CountTableRows: one whole expression that holds for every row, or InvalidInput."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest
from lance_namespace import CountTableRowsRequest, CreateTableRequest, DescribeTableRequest
from lance_namespace.errors import ServiceUnavailableError

from lance_bridge_hive import HiveNamespace

pytestmark = pytest.mark.server

ROWS = pa.table({"i": [0, 1, 2], "s": ["a", "b;c", None]})


@pytest.fixture
def table(namespace: HiveNamespace, database: str) -> list[str]:
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, ROWS.schema) as writer:
        writer.write_table(ROWS)
    data = bytes(sink.getvalue().to_pybytes())
    namespace.create_table(CreateTableRequest(id=[database, "t"]), data)
    return [database, "t"]


@pytest.mark.parametrize(
    ("predicate", "count"),
    [
        ("s = 'b;c'", 1),
        ("s = 'it''s; x'", 0),
        ("i = 1 or i = 2", 2),
        ("i between 0 and 1", 2),
        ("(i = 1)", 1),
        ("i = 1 -- the second; or so", 1),
        ("i = 1 /* ; */", 1),
        ("regexp_match(s, 'b')", 1),
        ("true", 3),
    ],
)
def test_a_whole_predicate_counts(
    namespace: HiveNamespace, table: list[str], predicate: str, count: int
) -> None:
    request = CountTableRowsRequest(id=table, predicate=predicate)
    assert namespace.count_table_rows(request).count == count


def test_data_that_is_gone_is_not_the_predicates_fault(
    namespace: HiveNamespace, table: list[str]
) -> None:
    place = Path(namespace.describe_table(DescribeTableRequest(id=table)).location or "")
    for file in (place / "data").iterdir():
        file.unlink()
    with pytest.raises(ServiceUnavailableError, match="could not be counted"):
        namespace.count_table_rows(CountTableRowsRequest(id=table, predicate="i > 0"))
