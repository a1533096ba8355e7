"""Loaders of torch, unmodified, whose workers are spawned or started by a fork server.

Lance is not fork-safe, as it warns: forked workers can crash.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import lance
import lance.torch.data
import pytest
import torch
from clients.catalogs import Database, rows
from torch.utils.data import DataLoader

pytestmark = [pytest.mark.clients, pytest.mark.spec("clients.md#torch")]

COUNT = 64
STARTS = ("spawn", "forkserver")


@pytest.fixture
def dataset(database: Database) -> Iterator[Any]:
    """A table of four fragments, opened by its name."""
    with database.backend.connect() as namespace:
        where: dict[str, Any] = {"namespace_client": namespace, "table_id": database.id("t")}
        yield lance.write_dataset(
            rows(COUNT).select(["id", "vector"]), **where, max_rows_per_file=COUNT // 4
        )


class Rows(torch.utils.data.Dataset[Any]):  # type: ignore[misc] # types of torch are skipped
    """Rows by their number, read from a dataset that is handed to each worker."""

    def __init__(self, dataset: Any) -> None:
        self._dataset = dataset

    def __len__(self) -> int:
        return COUNT

    def __getitem__(self, index: int) -> int:
        return int(self._dataset.take([index], columns=["id"])["id"][0].as_py())


class NamedRows(Rows):
    """The same, which each worker opens by the table's name with a namespace that it was sent."""

    def __init__(self, namespace: Any, table_id: list[str]) -> None:
        self._namespace = namespace
        self._table_id = table_id
        self._opened: Any = None

    @property
    def _dataset(self) -> Any:
        if self._opened is None:
            where = {"namespace_client": self._namespace, "table_id": self._table_id}
            self._opened = lance.dataset(**where)
        return self._opened

    def __getstate__(self) -> dict[str, Any]:
        return {**vars(self), "_opened": None}


def test_lances_dataset_gives_tensors(dataset: Any) -> None:
    batches = list(lance.torch.data.LanceDataset(dataset, batch_size=16, columns=["id", "vector"]))
    assert [batch["vector"].shape for batch in batches] == [(16, 8)] * 4
    assert torch.cat([batch["id"] for batch in batches]).tolist() == list(range(COUNT))


def test_lances_safe_loader_reads_by_location(dataset: Any) -> None:
    loaders: Any = lance.torch.data
    safe = loaders.SafeLanceDataset(dataset.uri)
    loader = loaders.get_safe_loader(safe, batch_size=16, num_workers=2)
    assert sorted(i for batch in loader for i in batch["id"].tolist()) == list(range(COUNT))


@pytest.mark.parametrize("start", STARTS)
def test_workers_read_a_dataset_that_was_opened_by_name(dataset: Any, start: str) -> None:
    loader = DataLoader(Rows(dataset), batch_size=16, num_workers=2, multiprocessing_context=start)
    assert sorted(i for batch in loader for i in batch.tolist()) == list(range(COUNT))


@pytest.mark.parametrize("start", STARTS)
def test_workers_open_a_table_by_its_name(database: Database, dataset: Any, start: str) -> None:
    assert dataset.count_rows() == COUNT
    with database.backend.connect(**{"pickle.secrets": "true"}) as namespace:
        named = NamedRows(namespace, database.id("t"))
        loader = DataLoader(named, batch_size=16, num_workers=2, multiprocessing_context=start)
        assert sorted(i for batch in loader for i in batch.tolist()) == list(range(COUNT))
