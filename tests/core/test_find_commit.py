"""The search for the version that a transaction made."""

from __future__ import annotations

from pathlib import Path

import lance
import pyarrow as pa
import pytest
from lance_namespace.errors import ServiceUnavailableError

from lance_bridge.lance_datasets import find_commit


@pytest.fixture
def dataset(tmp_path: Path) -> lance.LanceDataset:
    """A dataset of three versions."""
    place = str(tmp_path / "t.lance")
    for value in range(3):
        made = lance.write_dataset(pa.table({"a": [value]}), place, mode="append")
    return made


def id_of(dataset: lance.LanceDataset, version: int) -> str:
    transaction = dataset.read_transaction(version)
    assert transaction is not None
    return str(transaction.uuid)


def test_the_version_of_a_transaction_is_found_after_the_one_it_read(
    dataset: lance.LanceDataset,
) -> None:
    wanted = id_of(dataset, 2)
    assert find_commit(dataset, lambda each: each.uuid == wanted, 1) == 2
    assert find_commit(dataset, lambda each: each.uuid == wanted, 2) is None
    assert find_commit(dataset.checkout_version(1), lambda each: each.uuid == wanted, 0) == 2


def test_a_version_that_cannot_be_read_may_be_the_one(dataset: lance.LanceDataset) -> None:
    wanted = id_of(dataset, 3)
    manifests = sorted(Path(dataset.uri, "_versions").glob("*.manifest"))  # the latest first
    manifests[1].unlink()
    with pytest.raises(ServiceUnavailableError, match="could not be read"):
        find_commit(dataset, lambda each: each.uuid == wanted, 1)
