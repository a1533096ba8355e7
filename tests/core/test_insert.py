"""InsertIntoTable: append, overwrite, the first rows of a declared table, and what is refused."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import lance
import lance_namespace as api
import pyarrow as pa
import pytest
from lance_namespace import errors

import lance_bridge.dataset.insert as module
from lance_bridge.dataset.rows import Rows

from .building import TABLE
from .memory_catalog import MemoryNamespace, MemoryServer
from .writing import dataset, directory, ipc, make, place, rows, unchanged

pytestmark = [pytest.mark.quick, pytest.mark.spec("operations.md#insertintotable")]

KEPT = pa.schema([pa.field("id", pa.int64(), nullable=False), ("word", pa.string())])
OLD = pa.table({"id": [1, 2], "word": ["a", None]}, schema=KEPT)
NEW = pa.table({"id": [3], "word": ["c"]}, schema=KEPT)


def insert(namespace: MemoryNamespace, data: Any, **more: Any) -> api.InsertIntoTableResponse:
    data = ipc(data) if isinstance(data, pa.Table) else data
    return namespace.insert_into_table(api.InsertIntoTableRequest(id=TABLE, **more), data)


# -- modes -----------------------------------------------------------------------------------------


def test_an_unknown_mode_is_invalid_input(namespace: MemoryNamespace, server: MemoryServer) -> None:
    make(namespace, OLD)
    with unchanged(server, errors.InvalidInputError, "Replace.*Append, Overwrite"):
        insert(namespace, NEW, mode="Replace")


def test_the_answer_is_that_of_pylances_directory_namespace(
    namespace: MemoryNamespace, tmp_path: Path
) -> None:
    theirs = directory(tmp_path / "theirs")
    make(namespace, OLD)
    theirs.create_table(api.CreateTableRequest(id=["t"]), ipc(OLD))
    for mode in ("append", "overwrite", "append"):
        ours = insert(namespace, NEW, mode=mode)
        request = api.InsertIntoTableRequest(id=["t"], mode=mode)
        expected = theirs.insert_into_table(request, ipc(NEW))
        assert ours.num_inserted_rows == expected.num_inserted_rows
        assert ours.version == expected.version


# -- schemas ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("mode", ["append", "overwrite"])
@pytest.mark.parametrize(
    ("given", "stored"),
    [
        (pa.table({"word": ["c"], "id": [3]}), {"id": 3, "word": "c"}),
        (pa.table({"id": [3]}), {"id": 3, "word": None}),
        (pa.table({"word": [None], "id": [3]}, schema=KEPT), {"id": 3, "word": None}),
    ],
    ids=["other order", "nullable column left out", "null"],
)
def test_columns_come_in_any_order_and_may_be_left_out_where_null_is_allowed(
    namespace: MemoryNamespace,
    server: MemoryServer,
    mode: str,
    given: pa.Table,
    stored: dict[str, Any],
) -> None:
    make(namespace, OLD)
    insert(namespace, given, mode=mode)
    assert stored in rows(server)
    assert dataset(server).schema == KEPT


@pytest.mark.spec("operations.md#mergeinsertintotable")
@pytest.mark.parametrize("mode", ["append", "overwrite"])
@pytest.mark.parametrize(
    ("given", "named"),
    [
        (pa.table({"id": ["3"], "word": ["c"]}), "id"),
        (pa.table({"id": pa.array([3], pa.int32()), "word": ["c"]}), "int32"),
        (pa.table({"id": [3], "word": ["c"], "more": [1]}), "more"),
        (pa.table({"word": ["c"]}), "id"),
        (pa.table({"ID": [3], "word": ["c"]}), "ID"),
        (pa.table({"id": [3, None]}), "id"),
    ],
    ids=["other type", "narrower type", "unknown column", "left out", "other case", "null"],
)
def test_rows_that_do_not_fit_the_schema_are_refused(
    namespace: MemoryNamespace, server: MemoryServer, mode: str, given: pa.Table, named: str
) -> None:
    make(namespace, OLD)
    with unchanged(server, errors.TableSchemaValidationError, named):
        insert(namespace, given, mode=mode)


@pytest.mark.parametrize("mode", ["append", "overwrite"])
def test_a_vector_of_another_dimension_does_not_fit(
    namespace: MemoryNamespace, server: MemoryServer, mode: str
) -> None:
    make(namespace, pa.table({"v": pa.array([[1.0, 2.0]], pa.list_(pa.float32(), 2))}))
    with unchanged(server, errors.TableSchemaValidationError, "fixed_size_list"):
        insert(
            namespace, pa.table({"v": pa.array([[1.0] * 3], pa.list_(pa.float32(), 3))}), mode=mode
        )


@pytest.mark.parametrize("mode", ["append", "overwrite"])
def test_fields_of_a_struct_may_be_left_out(
    namespace: MemoryNamespace, server: MemoryServer, mode: str
) -> None:
    make(namespace, pa.table({"s": [{"x": 1, "y": "a"}]}))
    insert(namespace, pa.table({"s": [{"y": "b"}, None]}), mode=mode)
    found = [row["s"] for row in rows(server)]
    assert {"x": None, "y": "b"} in found
    assert None in found


def test_a_null_in_a_nested_field_that_forbids_it_is_refused(
    namespace: MemoryNamespace, server: MemoryServer
) -> None:
    strict = pa.schema([("s", pa.struct([pa.field("x", pa.int64(), nullable=False)]))])
    make(namespace, pa.table({"s": [{"x": 1}]}, schema=strict))
    with unchanged(server, errors.TableSchemaValidationError, "'s'"):
        insert(namespace, pa.table({"s": [{"x": None}]}))


def test_overwrite_keeps_what_lance_keeps_of_the_table(
    namespace: MemoryNamespace, server: MemoryServer
) -> None:
    make(namespace, OLD.replace_schema_metadata({"owner": "Ines"}))
    dataset(server).update_config({"lance.auto_cleanup.interval": "7"})
    insert(namespace, NEW, mode="overwrite")
    assert dataset(server).schema.metadata == {b"owner": b"Ines"}
    assert dataset(server).config()["lance.auto_cleanup.interval"] == "7"


# -- declared tables -------------------------------------------------------------------------------


@pytest.mark.parametrize("mode", ["append", "overwrite"])
def test_the_first_rows_of_a_declared_table_make_its_first_version(
    namespace: MemoryNamespace, server: MemoryServer, mode: str
) -> None:
    namespace.declare_table(api.DeclareTableRequest(id=TABLE))
    answer = insert(namespace, NEW, mode=mode)
    assert (answer.num_inserted_rows, answer.version) == (1, 1)
    assert dataset(server).to_table() == NEW


def test_bad_rows_leave_a_declared_table_without_data(
    namespace: MemoryNamespace, server: MemoryServer
) -> None:
    namespace.declare_table(api.DeclareTableRequest(id=TABLE))
    for bad in (ipc(NEW)[:-9], iter([*NEW.to_batches(), "no batch"])):
        with pytest.raises(errors.InvalidInputError):
            insert(namespace, bad)
    with pytest.raises(errors.InvalidInputError, match="cannot store"):
        insert(namespace, pa.table({"a": pa.array([1], pa.decimal32(5, 2))}))
    described = namespace.describe_table(api.DescribeTableRequest(id=TABLE, check_declared=True))
    assert described.is_only_declared
    insert(namespace, NEW)
    assert dataset(server).to_table() == NEW


@pytest.mark.parametrize("again", [True, False], ids=["rows in memory", "rows read once"])
def test_where_another_writer_makes_the_first_version_no_rows_are_lost(
    namespace: MemoryNamespace,
    server: MemoryServer,
    monkeypatch: pytest.MonkeyPatch,
    again: bool,
) -> None:
    namespace.declare_table(api.DeclareTableRequest(id=TABLE))
    require_storable = Rows.require_storable

    def other_is_first(given: Rows) -> None:
        require_storable(given)
        if not os.path.exists(f"{place(server)}/_versions"):
            lance.write_dataset(OLD, place(server))

    monkeypatch.setattr(Rows, "require_storable", other_is_first)
    if again:
        assert insert(namespace, NEW).version == 2
        assert dataset(server).to_table() == pa.concat_tables([OLD, NEW])
    else:
        with pytest.raises(errors.ConcurrentModificationError, match="Orders"):
            insert(namespace, iter(NEW.to_batches()))
        assert dataset(server).to_table() == OLD


# -- writers at the same time ----------------------------------------------------------------------


def racing(namespace: MemoryNamespace, first: pa.Table, other: pa.Table) -> Any:
    """Yield batches; another client inserts before they end."""
    yield from first.to_batches()
    insert(namespace, other)


@pytest.mark.parametrize("version_read", [1, 2])
def test_an_append_that_took_long_is_moved_onto_the_latest_version(
    namespace: MemoryNamespace,
    server: MemoryServer,
    monkeypatch: pytest.MonkeyPatch,
    version_read: int,
) -> None:
    """Lance then reads no version in between."""
    monkeypatch.setattr(module, "_STALE_SECONDS", 0.0 if version_read == 2 else 60.0)
    make(namespace, OLD)
    insert(namespace, racing(namespace, NEW, NEW))
    transaction = dataset(server).read_transaction(3)
    assert transaction is not None
    assert transaction.read_version == version_read
    assert dataset(server).count_rows() == 4


@pytest.mark.parametrize("stale_seconds", [0.0, 60.0])
@pytest.mark.parametrize("other", [pa.table({"other": [1]}), OLD])
def test_an_append_to_what_was_overwritten_meanwhile_is_a_concurrent_modification(
    namespace: MemoryNamespace,
    server: MemoryServer,
    monkeypatch: pytest.MonkeyPatch,
    other: pa.Table,
    stale_seconds: float,
) -> None:
    monkeypatch.setattr(module, "_STALE_SECONDS", stale_seconds)
    make(namespace, OLD)

    def overwritten() -> Any:
        yield from NEW.to_batches()
        lance.write_dataset(other, place(server), mode="overwrite")

    with pytest.raises(errors.ConcurrentModificationError, match="Orders"):
        insert(namespace, overwritten())
    assert dataset(server).to_table() == other


# -- branches and tables ---------------------------------------------------------------------------


def test_a_failure_of_storage_is_service_unavailable_and_changes_nothing(
    namespace: MemoryNamespace, server: MemoryServer
) -> None:
    make(namespace, OLD)
    data, aside = os.path.join(place(server), "data"), os.path.join(place(server), "aside")

    def while_storage_fails() -> Any:
        os.rename(data, aside)
        with open(data, "w"):
            yield from NEW.to_batches()

    with pytest.raises(errors.ServiceUnavailableError, match="Orders"):
        insert(namespace, while_storage_fails())
    os.remove(data)
    os.rename(aside, data)
    assert (dataset(server).version, dataset(server).to_table()) == (1, OLD)
