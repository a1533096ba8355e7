"""Cases: pylance end to end, writing and reading through the namespace object."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import lance
import pyarrow as pa
import pytest

from .build import SCHEMA, rows
from .cases import Cases, needs
from .space import Space


class BrokenReaderError(RuntimeError):
    """Raised by a reader of the kit in the middle of its rows."""


class PylanceCases(Cases):
    """``lance.write_dataset`` and ``lance.dataset`` with ``namespace_client``."""

    def test_pylance_creates_a_table_and_reads_it_back(self, space: Space) -> None:
        _write(space, rows(range(4)), "create")
        assert space.names() == ["t"]
        assert _read(space) == [0, 1, 2, 3]
        assert space.api.count(space.table()) == 4

    def test_pylance_appends_to_a_table(self, space: Space) -> None:
        _write(space, rows(range(2)), "create")
        _write(space, rows(range(2, 5)), "append")
        assert _read(space) == [0, 1, 2, 3, 4]

    def test_pylance_overwrites_a_table(self, space: Space) -> None:
        _write(space, rows(range(2)), "create")
        _write(space, rows(range(7, 9)), "overwrite")
        assert _read(space) == [7, 8]
        assert space.names() == ["t"]

    def test_pylance_reads_old_versions(self, space: Space) -> None:
        _write(space, rows(range(2)), "create")
        _write(space, rows(range(2, 5)), "append")
        _write(space, rows([9]), "overwrite")
        assert [_read(space, version=version) for version in (1, 2, 3)] == [
            [0, 1],
            [0, 1, 2, 3, 4],
            [9],
        ]
        assert _read(space) == [9]

    def test_pylance_appends_to_a_table_made_by_create_table(self, space: Space) -> None:
        space.with_rows(ids=range(3))
        _write(space, rows(range(3, 5)), "append")
        assert _read(space) == [0, 1, 2, 3, 4]

    def test_pylance_finds_neighbours_of_a_vector(self, space: Space) -> None:
        vectors = pa.array([[float(i), 0.0] for i in range(20)], pa.list_(pa.float32(), 2))
        _write(space, pa.table({"id": list(range(20)), "vector": vectors}), "create")
        dataset = lance.dataset(namespace_client=space.api.namespace, table_id=space.table())
        found = dataset.to_table(nearest={"column": "vector", "q": [7.1, 0.0], "k": 2})
        assert sorted(found["id"].to_pylist()) == [7, 8]

    @needs("declare_again")
    def test_a_failed_first_write_can_be_tried_again(self, space: Space) -> None:
        with pytest.raises((BrokenReaderError, OSError, RuntimeError, ValueError)):
            _write(space, _broken_reader(), "create")
        _write(space, rows(range(4)), "create")
        assert _read(space) == [0, 1, 2, 3]
        assert space.names() == ["t"]

    def test_a_failed_append_changes_nothing(self, space: Space) -> None:
        _write(space, rows(range(2)), "create")
        with pytest.raises((BrokenReaderError, OSError, RuntimeError, ValueError)):
            _write(space, _broken_reader(), "append")
        assert _read(space) == [0, 1]

    def test_pylance_reads_and_writes_through_a_second_client(self, space: Space) -> None:
        _write(space, rows(range(2)), "create")
        second: Any = space.target.connect()
        lance.write_dataset(
            rows(range(2, 5)), namespace_client=second, table_id=space.table(), mode="append"
        )
        assert _read(space) == [0, 1, 2, 3, 4]
        if hasattr(second, "close"):
            second.close()

    def test_create_after_deregister_through_pylance_keeps_both_data(self, space: Space) -> None:
        _write(space, rows(range(2)), "create")
        before = space.location(space.table())
        space.api.deregister_table(space.table())
        _write(space, rows(range(7, 9)), "create")
        assert _read(space) == [7, 8]
        assert space.storage.ids(before) == [0, 1]


def _write(space: Space, content: Any, mode: str) -> None:
    dataset = lance.write_dataset(
        content, namespace_client=space.api.namespace, table_id=space.table(), mode=mode
    )
    space.api.locations.add(dataset.uri)


def _read(space: Space, version: int | None = None) -> list[int]:
    dataset = lance.dataset(
        namespace_client=space.api.namespace, table_id=space.table(), version=version
    )
    return sorted(dataset.to_table()["id"].to_pylist())


def _broken_reader() -> pa.RecordBatchReader:
    def batches() -> Iterator[pa.RecordBatch]:
        yield rows(range(100)).to_batches()[0]
        raise BrokenReaderError("the reader fails in the middle")

    return pa.RecordBatchReader.from_batches(SCHEMA, batches())
