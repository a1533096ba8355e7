"""Many callers at one name: what a metastore does then, and what the namespace makes of it."""

from __future__ import annotations

from pathlib import Path

import lance
import pyarrow as pa
import pytest
from lance_namespace import CreateTableRequest, DescribeTableRequest, RenameTableRequest
from lance_namespace.errors import (
    ConcurrentModificationError,
    TableAlreadyExistsError,
    TableNotFoundError,
)
from servers.hive_entries import race
from servers.metastores import Metastores

from lance_bridge.testing.build import ipc
from lance_bridge_hive import HiveNamespace

pytestmark = pytest.mark.server

THREADS = 8
ROUNDS = 4
COMPARE_AND_SET = ["2.3", "4.0", "4.1", "4.2"]
"""Releases that honour the condition of an alter; 3.1 takes no notice of it."""


def test_racing_creators_lose_no_data(namespace: HiveNamespace, database: str) -> None:
    """A metastore deletes the directory that a losing creator made, with what is in it by then."""
    for turn in range(ROUNDS):
        table_id = [database, f"t{turn}"]

        def create(number: int, table_id: list[str] = table_id) -> int:
            data = ipc(pa.table({"by": [number] * (number + 1)}))
            namespace.create_table(CreateTableRequest(id=table_id), data)
            return number

        answers = race(THREADS, create)
        winners = [answer for answer in answers if isinstance(answer, int)]
        losers = [answer for answer in answers if not isinstance(answer, int)]
        assert len(winners) == 1
        assert all(isinstance(error, TableAlreadyExistsError) for error in losers)
        found = lance.dataset(namespace_client=namespace, table_id=table_id)
        assert found.to_table()["by"].to_pylist() == [winners[0]] * (winners[0] + 1)


def test_losing_creators_leave_nothing_behind(namespace: HiveNamespace, database: str) -> None:
    table_id = [database, "t"]
    data = ipc(pa.table({"i": [1]}))
    race(THREADS, lambda _: namespace.create_table(CreateTableRequest(id=table_id), data))
    place = Path(namespace.describe_table(DescribeTableRequest(id=table_id)).location or "")
    assert [path.name for path in place.parent.iterdir()] == [place.name]


@pytest.mark.parametrize("version", COMPARE_AND_SET)
def test_one_of_many_renamers_is_told_that_it_renamed(
    metastores: Metastores, version: str, tmp_path: Path
) -> None:
    with HiveNamespace(uri=metastores.get(version).uri, root=str(tmp_path)) as namespace:
        for turn in range(ROUNDS):
            table_id = ["default", f"race_{turn}"]
            lance.write_dataset(pa.table({"i": [1]}), namespace_client=namespace, table_id=table_id)

            def rename(number: int, table_id: list[str] = table_id) -> int:
                name = f"{table_id[1]}_{number}"
                namespace.rename_table(RenameTableRequest(id=table_id, new_table_name=name))
                return number

            answers = race(THREADS, rename)
            winners = [answer for answer in answers if isinstance(answer, int)]
            losers = [answer for answer in answers if not isinstance(answer, int)]
            assert len(winners) == 1
            allowed = (TableNotFoundError, ConcurrentModificationError)
            assert all(isinstance(error, allowed) for error in losers), losers
            moved = ["default", f"{table_id[1]}_{winners[0]}"]
            assert lance.dataset(namespace_client=namespace, table_id=moved).count_rows() == 1
