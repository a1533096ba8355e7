"""Cases: pylance end to end, writing and reading through the namespace object."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import lance
import pyarrow as pa
import pytest

from .build import SCHEMA, rows
from .case_namespace import CaseNamespace
from .cases import Cases, needs


class BrokenReaderError(RuntimeError):
    """Raised by a reader of the kit in the middle of its rows."""


class PylanceCases(Cases):
    """``lance.write_dataset`` and ``lance.dataset`` with ``namespace_client``."""

    def test_pylance_creates_appends_overwrites_and_reads_each_version(
        self, ns: CaseNamespace
    ) -> None:
        _write(ns, rows(range(2)), "create")
        assert _read(ns) == [0, 1]
        assert (ns.names(), ns.count(ns.table())) == (["t"], 2)
        _write(ns, rows(range(2, 5)), "append")
        assert _read(ns) == [0, 1, 2, 3, 4]
        _write(ns, rows(range(7, 9)), "overwrite")
        assert _read(ns) == [7, 8]
        assert ns.names() == ["t"]
        wanted = [[0, 1], [0, 1, 2, 3, 4], [7, 8]]
        assert [_read(ns, version=version) for version in (1, 2, 3)] == wanted

    def test_pylance_appends_to_a_table_made_by_create_table(self, ns: CaseNamespace) -> None:
        ns.with_rows(ids=range(3))
        _write(ns, rows(range(3, 5)), "append")
        assert _read(ns) == [0, 1, 2, 3, 4]

    @needs("declare_again")
    def test_a_failed_first_write_can_be_tried_again(self, ns: CaseNamespace) -> None:
        with pytest.raises((BrokenReaderError, OSError, RuntimeError, ValueError)):
            _write(ns, _broken_reader(), "create")
        _write(ns, rows(range(4)), "create")
        assert _read(ns) == [0, 1, 2, 3]
        assert ns.names() == ["t"]

    def test_a_failed_append_changes_nothing(self, ns: CaseNamespace) -> None:
        _write(ns, rows(range(2)), "create")
        with pytest.raises((BrokenReaderError, OSError, RuntimeError, ValueError)):
            _write(ns, _broken_reader(), "append")
        assert _read(ns) == [0, 1]

    def test_pylance_reads_and_writes_through_a_second_client(self, ns: CaseNamespace) -> None:
        _write(ns, rows(range(2)), "create")
        second: Any = ns.target.connect()
        lance.write_dataset(
            rows(range(2, 5)), namespace_client=second, table_id=ns.table(), mode="append"
        )
        assert _read(ns) == [0, 1, 2, 3, 4]
        if hasattr(second, "close"):
            second.close()

    def test_create_after_deregister_through_pylance_keeps_both_data(
        self, ns: CaseNamespace
    ) -> None:
        _write(ns, rows(range(2)), "create")
        before = ns.location(ns.table())
        ns.deregister_table(ns.table())
        _write(ns, rows(range(7, 9)), "create")
        assert _read(ns) == [7, 8]
        assert ns.storage.ids(before) == [0, 1]


def _write(ns: CaseNamespace, content: Any, mode: str) -> None:
    dataset = lance.write_dataset(
        content, namespace_client=ns.client, table_id=ns.table(), mode=mode
    )
    ns.locations.add(dataset.uri)


def _read(ns: CaseNamespace, version: int | None = None) -> list[int]:
    dataset = lance.dataset(namespace_client=ns.client, table_id=ns.table(), version=version)
    return sorted(dataset.to_table()["id"].to_pylist())


def _broken_reader() -> pa.RecordBatchReader:
    def batches() -> Iterator[pa.RecordBatch]:
        yield rows(range(100)).to_batches()[0]
        raise BrokenReaderError("the reader fails in the middle")

    return pa.RecordBatchReader.from_batches(SCHEMA, batches())
