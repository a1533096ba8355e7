"""Cases: rows are written and read by create_table, count_table_rows, and by pylance."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import lance
import pyarrow as pa
import pytest
from lance_namespace import ErrorCode

from .build import SCHEMA, ipc, ipc_without_batches, malformed_streams, rows
from .calls import refused
from .cases import CaseNamespace, Cases, needs, same_location

# -- create_table and count_table_rows -------------------------------------------------------------


ALREADY_EXISTS = ErrorCode.TABLE_ALREADY_EXISTS
NO_VERSION = ErrorCode.TABLE_VERSION_NOT_FOUND
INVALID = ErrorCode.INVALID_INPUT


class DataCases(Cases):
    """Tables with rows."""

    # -- create_table ----------------------------------------------------------------------------

    def test_create_table_writes_the_rows_and_says_where(self, ns: CaseNamespace) -> None:
        answer = ns.create_table(ns.table(), rows(range(4)))
        assert answer.version == 1
        assert same_location(answer.location or "", ns.location(ns.table()))
        assert ns.ids(ns.table()) == [0, 1, 2, 3]
        assert ns.names() == ["t"]

    @needs("table_properties")
    def test_create_table_keeps_table_properties(self, ns: CaseNamespace) -> None:
        ns.create_table(ns.table(), rows(range(3)), properties={"author": "Ines"})
        properties = ns.describe_table(ns.table()).properties or {}
        assert properties.get("author") == "Ines"

    def test_create_table_under_a_taken_name_is_table_already_exists(
        self, ns: CaseNamespace
    ) -> None:
        table_id = ns.with_rows("taken")
        for mode in (None, "Create", "create", "CREATE"):
            with refused(ALREADY_EXISTS, naming="taken"):
                ns.create_table(table_id, rows(range(9)), mode=mode)
        assert ns.ids(table_id) == [0, 1, 2]

    def test_create_table_exist_ok_keeps_the_existing_table(self, ns: CaseNamespace) -> None:
        table_id = ns.with_rows()
        before = ns.location(table_id)
        for mode in ("ExistOk", "exist_ok", "EXIST_OK", "existok"):
            answer = ns.create_table(table_id, rows(range(9)), mode=mode)
            assert same_location(answer.location or before, before)
        assert ns.ids(table_id) == [0, 1, 2]

    def test_create_table_overwrite_replaces_the_rows(self, ns: CaseNamespace) -> None:
        table_id = ns.with_rows()
        for count, mode in enumerate(("Overwrite", "overwrite", "OVERWRITE")):
            answer = ns.create_table(table_id, rows(range(9 - count)), mode=mode)
            assert same_location(answer.location or "", ns.location(table_id))
            assert ns.ids(table_id) == list(range(9 - count))
        assert ns.names() == ["t"]

    def test_create_table_overwrite_can_change_the_schema(self, ns: CaseNamespace) -> None:
        table_id = ns.with_rows()
        ns.create_table(table_id, pa.table({"id": ["x"]}), mode="Overwrite")
        answer = ns.describe_table(table_id, load_detailed_metadata=True)
        assert answer.var_schema is not None
        assert [field.type.type for field in answer.var_schema.fields] == ["utf8"]

    def test_every_create_table_mode_makes_a_missing_table(self, ns: CaseNamespace) -> None:
        for mode in ("ExistOk", "Overwrite"):
            ns.create_table(ns.table(mode.lower()), rows(range(3)), mode=mode)
            assert ns.ids(ns.table(mode.lower())) == [0, 1, 2]

    def test_create_table_with_an_unknown_mode_is_invalid_input(self, ns: CaseNamespace) -> None:
        table_id = ns.with_rows()
        for name in ("t", "fresh"):
            with refused(INVALID, naming="Append"):
                ns.create_table(ns.table(name), rows(range(9)), mode="Append")
        assert ns.names() == ["t"]
        assert ns.ids(table_id) == [0, 1, 2]

    def test_create_table_completes_a_declared_table_or_is_table_already_exists(
        self, ns: CaseNamespace
    ) -> None:
        declared = ns.declare_table(ns.table()).location or ""
        if not ns.features.create_completes:
            with refused(ALREADY_EXISTS, naming="t"):
                ns.create_table(ns.table(), rows(range(3)))
            return
        ns.create_table(ns.table(), rows(range(3)))
        assert same_location(ns.location(ns.table()), declared)
        assert ns.ids(ns.table()) == [0, 1, 2]

    def test_create_table_in_other_modes_completes_a_declared_table(
        self, ns: CaseNamespace
    ) -> None:
        for mode in ("ExistOk", "Overwrite"):
            ns.declare_table(ns.table(mode.lower()))
            ns.create_table(ns.table(mode.lower()), rows(range(3)), mode=mode)
            assert ns.ids(ns.table(mode.lower())) == [0, 1, 2]

    # -- streams ---------------------------------------------------------------------------------

    def test_a_failed_create_table_can_be_repeated(self, ns: CaseNamespace) -> None:
        for stream in malformed_streams():
            with refused(INVALID):
                ns.create_table(ns.table(), stream)
            assert ns.names() == []
        table_id = ns.with_rows()
        for stream in malformed_streams():
            with refused(INVALID):
                ns.create_table(table_id, stream, mode="Overwrite")
        assert ns.ids(table_id) == [0, 1, 2]

    def test_create_table_from_a_stream_without_rows_makes_an_empty_table(
        self, ns: CaseNamespace
    ) -> None:
        for name, stream in {"none": ipc_without_batches(), "empty": ipc(rows([]))}.items():
            ns.create_table(ns.table(name), stream)
            assert ns.count(ns.table(name)) == 0
            answer = ns.describe_table(ns.table(name), load_detailed_metadata=True)
            assert answer.var_schema is not None
            assert [field.name for field in answer.var_schema.fields] == SCHEMA.names

    # -- count_table_rows ------------------------------------------------------------------------

    def test_count_counts_the_rows_of_a_version(self, ns: CaseNamespace) -> None:
        table_id = ns.with_rows(ids=range(10))
        ns.storage.write(ns.location(table_id), rows(range(4)), mode="append")
        assert ns.count(table_id) == 14
        assert ns.count(table_id, version=1) == 10
        assert ns.count(table_id, predicate="id >= 4 AND word != 'word 5'") == 5
        with refused(NO_VERSION, naming="99"):
            ns.count(table_id, version=99)


# -- pylance ---------------------------------------------------------------------------------------


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
