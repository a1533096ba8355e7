"""Loaders of torch, whose workers are spawned or started by a fork server, and daft-lance.

Both are unmodified. Also the lines to paste of `specs/clients.md`, on a real metastore.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import daft
import daft_lance
import lance
import lance.torch.data
import lance_namespace as api
import pytest
import ray
import torch
from clients.catalogs import Backend, Database, rows
from torch.utils.data import DataLoader

pytestmark = [
    pytest.mark.clients,
    pytest.mark.spec(
        "clients.md#torch",
        "clients.md#daft-lance",
        "clients.md#which-writers-commit-through-the-catalog",
    ),
]

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


def write(database: Database, first: int = 0, **options: Any) -> None:
    daft_lance.write_lance(daft.from_arrow(rows(20, first)), **database.by_name(), **options)


def test_a_frame_is_written_and_read(database: Database) -> None:
    write(database)
    write(database, 20, mode="append")
    frame = daft_lance.read_lance(**database.by_name())
    found = frame.where(daft.col("id") >= 35).select("id").sort("id").to_pydict()
    assert found == {"id": [35, 36, 37, 38, 39]}
    write(database, mode="overwrite")
    assert database.open().count_rows() == 20


def test_indices_are_built_and_files_compacted(database: Database) -> None:
    write(database)
    write(database, 20, mode="append")
    daft_lance.create_scalar_index(**database.by_name(), column="id", index_type="BTREE")
    assert len(database.open().describe_indices()) == 1
    daft_lance.compact_files(**database.by_name())
    assert len(database.open().get_fragments()) == 1


def test_commits_to_a_managed_table_go_through_the_catalog(managed: Database) -> None:
    write(managed)
    write(managed, 20, mode="append")
    assert managed.open().count_rows() == 40
    with managed.backend.connect() as namespace:
        assert namespace.list_out_of_band_versions(managed.id("t")).versions == ()


SPEC = Path(__file__).parents[3] / "specs" / "clients.md"
NAMESPACES = ("films", "geneva_system")


@pytest.fixture
def namespaces(hive: Backend) -> Iterator[None]:
    """The namespace `films`; dropped afterwards with what geneva makes beside it."""
    with hive.connect() as namespace:
        namespace.create_namespace(api.CreateNamespaceRequest(id=["films"]))
        yield
        for name in NAMESPACES:
            for table in namespace.list_tables(api.ListTablesRequest(id=[name])).tables:
                namespace.deregister_table(api.DeregisterTableRequest(id=[name, table]))
            namespace.drop_namespace(api.DropNamespaceRequest(id=[name]))
    ray.shutdown()


@pytest.mark.usefixtures("namespaces")
def test_the_lines_to_paste_run_in_their_order(hive: Backend) -> None:
    text = SPEC.read_text(encoding="utf-8").partition("\n## pylance\n")[2]
    snippets = re.findall(r"```python\n(.*?)```", text, re.DOTALL)
    assert len(snippets) == 8
    ray.init(num_cpus=2, include_dashboard=False, log_to_driver=False)
    for snippet in snippets:
        exec(snippet.replace("thrift://metastore:9083", hive.properties["uri"]), {})
