"""Computed columns: declared with an expression, filled by a backfill, guarded in between."""

from __future__ import annotations

import json
from typing import Any

import lance
import lance_namespace as api
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from lance_namespace import errors

from lance_bridge.dataset.expressions import columns_in

from .evolving import (
    ROWS,
    add,
    alter,
    backfill,
    build_index,
    create_table,
    dataset,
    drop,
    rows,
    set_field_metadata,
    values,
)
from .memory_catalog import MemoryNamespace

pytestmark = [pytest.mark.quick, pytest.mark.spec("operations.md#altertablebackfillcolumns")]

ENGINE_OPTIONS = {
    "concurrency": 1,
    "intra_applier_concurrency": 1,
    "min_checkpoint_size": 1,
    "max_checkpoint_size": 1,
    "batch_checkpoint_flush_interval_seconds": 1.0,
    "read_version": 1,
    "task_size": 1,
    "num_frags": 1,
    "checkpoint_size": 1,
    "commit_granularity": 1,
    "cluster": "c",
    "manifest": "m",
}


@pytest.fixture
def ns(namespace: MemoryNamespace) -> MemoryNamespace:
    create_table(namespace)
    add(namespace, {"name": "twice", "computed": "id * 2"})
    return namespace


def test_a_computed_column_is_null_and_keeps_its_expression(ns: MemoryNamespace) -> None:
    field = dataset(ns).schema.field("twice")
    assert (field.type, field.nullable) == (pa.int64(), True)
    metadata = {k.decode(): v.decode() for k, v in field.metadata.items()}
    assert json.loads(metadata.pop("computed_column.inputs")) == ["id"]
    assert metadata == {
        "computed_column": "true",
        "computed_column.kind": "sql",
        "computed_column.expression": "id * 2",
    }
    assert values(ns, "twice") == [None] * ROWS


def test_where_fills_those_rows_and_leaves_the_others(ns: MemoryNamespace) -> None:
    backfill(ns, "twice", where="id < 5")
    backfill(ns, "twice", where="id >= 3 and id < 8")
    assert values(ns, "twice") == [i * 2 if i < 8 else None for i in range(ROWS)]
    assert backfill(ns, "twice", where="id < 0")


def test_where_leaves_rows_null_whose_expression_never_is(namespace: MemoryNamespace) -> None:
    ids = pa.schema([pa.field("id", pa.int64(), nullable=False)])
    create_table(namespace, pa.table({"id": [1, 2, 3]}, schema=ids))
    add(namespace, {"name": "double", "computed": "id * 2"})
    backfill(namespace, "double", where="id < 3")
    assert values(namespace, "double") == [2, 4, None]


def test_rows_that_come_later_wait_for_the_next_backfill(ns: MemoryNamespace) -> None:
    backfill(ns, "twice")
    uri = dataset(ns).uri
    lance.dataset(uri).delete("id = 7")
    late = rows(2).set_column(0, "id", pa.array([1000, 1001], pa.int64()))
    lance.write_dataset(late, uri, mode="append")
    assert values(ns, "twice")[-2:] == [None, None]
    backfill(ns, "twice", where="twice is null")
    assert values(ns, "twice")[-2:] == [2000, 2002]
    assert len(values(ns, "twice")) == ROWS + 1


def test_indices_stay_right(ns: MemoryNamespace) -> None:
    build_index(ns, "id", "BTREE")
    build_index(ns, "twice", "BTREE")
    backfill(ns, "twice")
    found = dataset(ns)
    covered = {index.name: index.num_rows_indexed for index in found.describe_indices()}
    assert covered["id_idx"] == ROWS
    assert found.to_table(filter="twice = 14")["id"].to_pylist() == [7]
    assert found.to_table(filter="id = 7")["twice"].to_pylist() == [14]


def test_a_constant_and_a_quoted_name_can_be_computed(ns: MemoryNamespace) -> None:
    add(ns, {"name": "one", "computed": "1"}, {"name": "length", "computed": "length(`text`)"})
    backfill(ns, "one")
    backfill(ns, "length")
    assert values(ns, "one") == [1] * ROWS
    assert values(ns, "length") == [len("word0 and more")] * ROWS


@pytest.mark.parametrize("name", sorted(ENGINE_OPTIONS))
def test_options_of_a_compute_engine_are_unsupported_by_name(
    ns: MemoryNamespace, name: str
) -> None:
    with pytest.raises(errors.UnsupportedOperationError, match=f"^{name} "):
        backfill(ns, "twice", **{name: ENGINE_OPTIONS[name]})
    assert dataset(ns).version == 2


def test_every_field_of_the_request_is_honoured_or_an_engine_s_option() -> None:
    honoured = {"identity", "context", "id", "branch", "column", "where"}
    fields = set(api.AlterTableBackfillColumnsRequest.model_fields)
    assert fields == honoured | set(ENGINE_OPTIONS)


def test_only_computed_columns_are_filled(ns: MemoryNamespace) -> None:
    with pytest.raises(errors.InvalidInputError, match="'text' is not computed"):
        backfill(ns, "text")
    with pytest.raises(errors.TableColumnNotFoundError, match="nope"):
        backfill(ns, "nope")
    dataset(ns).update_field_metadata({"twice": {"computed_column.kind": "function"}})
    with pytest.raises(errors.UnsupportedOperationError, match="by 'function'"):
        backfill(ns, "twice")


@pytest.mark.parametrize("where", ["1 / (id - 5) > 0", "CAST(text AS int) = 7"])
def test_a_where_that_fails_on_a_row_fills_nothing(ns: MemoryNamespace, where: str) -> None:
    with pytest.raises(errors.InvalidInputError, match="'twice' was not filled"):
        backfill(ns, "twice", where=where)
    assert dataset(ns).version == 2


def test_an_expression_that_fails_on_a_row_fills_nothing(ns: MemoryNamespace) -> None:
    add(ns, {"name": "bad", "computed": "10 / (id - 5)"})
    with pytest.raises(errors.InvalidInputError, match="Divide by zero"):
        backfill(ns, "bad")
    assert values(ns, "bad") == [None] * ROWS


def test_an_expression_that_has_another_type_now_fills_nothing(ns: MemoryNamespace) -> None:
    add(ns, {"name": "same", "computed": "id"})
    retyped: Any = {"path": "id", "data_type": pa.int32()}
    dataset(ns).alter_columns(retyped)
    with pytest.raises(errors.InvalidInputError, match="has type int32, which is not the column"):
        backfill(ns, "same")
    assert values(ns, "same") == [None] * ROWS


@pytest.mark.spec("operations.md#altertablealtercolumns", "operations.md#altertabledropcolumns")
def test_what_a_computed_column_is_computed_from_stays(ns: MemoryNamespace) -> None:
    for change in (
        lambda: alter(ns, {"path": "id", "rename": "number"}),
        lambda: alter(ns, {"path": "id", "data_type": {"type": "int32"}}),
        lambda: drop(ns, "id"),
    ):
        with pytest.raises(errors.InvalidInputError, match="drop that column first"):
            change()
    assert alter(ns, {"path": "id", "nullable": False}).version == 3
    assert drop(ns, "id", "twice").version == 4


@pytest.mark.spec("operations.md#altertablealtercolumns", "operations.md#updatefieldmetadata")
def test_how_a_column_is_computed_cannot_be_edited(ns: MemoryNamespace) -> None:
    for entry in (
        {"metadata": {"computed_column.expression": "id * 3"}},
        {"metadata": {"computed_column": None}},
        {"metadata": {}, "replace": True},
    ):
        with pytest.raises(errors.InvalidInputError, match="computed"):
            set_field_metadata(ns, {"path": "twice", **entry})
    with pytest.raises(errors.InvalidInputError, match="is computed"):
        alter(ns, {"path": "twice", "data_type": {"type": "int32"}})
    assert set_field_metadata(ns, {"path": "twice", "metadata": {"unit": "mm"}}).version == 3


@pytest.mark.spec("operations.md#altertablealtercolumns")
def test_a_computed_column_is_renamed_and_what_it_reads_stays(ns: MemoryNamespace) -> None:
    swap = ({"path": "id", "rename": "odd"}, {"path": "odd", "rename": "id"})
    with pytest.raises(errors.InvalidInputError, match="'id' is read by computed column 'twice'"):
        alter(ns, *swap, {"path": "twice", "rename": "double"})
    assert dataset(ns).version == 2
    assert alter(ns, {"path": "twice", "rename": "double"}).version == 3
    backfill(ns, "double")
    assert values(ns, "double") == [i * 2 for i in range(ROWS)]


@pytest.mark.spec("operations.md#altertablealtercolumns")
@pytest.mark.parametrize("change", [{"rename": "z"}, {"data_type": {"type": "int32"}}], ids=str)
def test_a_field_of_a_computed_struct_keeps_its_name_and_type(
    ns: MemoryNamespace, change: dict[str, Any]
) -> None:
    add(ns, {"name": "pair", "computed": "named_struct('x', id, 'y', id)"})
    with pytest.raises(errors.InvalidInputError, match="'pair' is computed"):
        alter(ns, {"path": "pair.x", **change})
    assert dataset(ns).version == 3
    alter(ns, {"path": "pair", "rename": "both"})
    backfill(ns, "both")
    assert values(ns, "both")[1] == {"x": 1, "y": 1}


@pytest.mark.spec("operations.md#altertableaddcolumns")
def test_expressions_and_computed_columns_take_two_requests(ns: MemoryNamespace) -> None:
    with pytest.raises(errors.UnsupportedOperationError, match="two requests"):
        add(ns, {"name": "a", "expression": "id"}, {"name": "b", "computed": "id"})
    assert dataset(ns).version == 2


def test_a_backfill_after_a_conflicting_commit_is_a_concurrent_modification(
    ns: MemoryNamespace, monkeypatch: pytest.MonkeyPatch
) -> None:
    behind, uri = lance.dataset, dataset(ns).uri
    lance.dataset(uri).delete("id = 7")
    monkeypatch.setattr(lance, "dataset", lambda *_, **__: behind(uri, version=2))
    with pytest.raises(errors.ConcurrentModificationError):
        backfill(ns, "twice")


@given(st.sets(st.sampled_from(["id", "text", "we ird", "c`d", "ük"]), min_size=1))
def test_the_columns_that_an_expression_reads_are_found(names: set[str]) -> None:
    quoted = ["`" + name.replace("`", "``") + "`" for name in sorted(names)]
    expression = f"concat({', '.join(quoted)}, 'other') -- other"
    everything = ["id", "text", "we ird", "c`d", "ük", "other", "concat"]
    assert columns_in(expression, everything) == sorted(names)
