"""MergeInsertIntoTable: rows, keys, conditions, timeouts and other writers; and what is refused."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import lance
import lance_namespace as api
import pyarrow as pa
import pytest
from lance_namespace import errors

from lance_bridge.dataset.merge import Merge, split_batches

from .building import TABLE
from .memory_catalog import MemoryNamespace, MemoryServer
from .merging import OLD, SCHEMA, counts, merge
from .writing import dataset, make, place, rows, unchanged

pytestmark = [pytest.mark.quick, pytest.mark.spec("operations.md#mergeinsertintotable")]

NEW = pa.table({"k": [2, 7], "j": ["B", "z"], "w": [20, 70]}, schema=SCHEMA)
UPSERT = {"when_matched_update_all": True, "when_not_matched_insert_all": True}


# -- rows with fewer columns -----------------------------------------------------------------------


def test_columns_that_are_left_out_keep_their_values_or_are_null(
    namespace: MemoryNamespace, server: MemoryServer
) -> None:
    make(namespace, OLD)
    answer = merge(namespace, pa.table({"w": [20, 70], "k": [2, 7]}), **UPSERT)
    assert counts(answer) == (1, 1, 0)
    assert {"k": 2, "j": "b", "w": 20} in rows(server)
    assert {"k": 7, "j": None, "w": 70} in rows(server)


STRICT = pa.schema([("k", pa.int64()), pa.field("j", pa.string(), nullable=False)])


def test_a_column_that_must_not_be_null_may_be_left_out_of_an_update_only(
    namespace: MemoryNamespace, server: MemoryServer
) -> None:
    make(namespace, pa.table({"k": [1], "j": ["a"]}, schema=STRICT))
    given = pa.table({"k": [1, 5]})
    with unchanged(server, errors.TableSchemaValidationError, "j"):
        merge(namespace, given, **UPSERT)
    assert counts(merge(namespace, given, when_matched_update_all=True)) == (1, 0, 0)
    with unchanged(server, errors.TableSchemaValidationError, "'j'.*null"):
        merge(namespace, pa.table({"k": [5], "j": pa.array([None], pa.string())}), **UPSERT)


@pytest.mark.parametrize("use_index", [False, True])
@pytest.mark.parametrize(
    ("source", "named"),
    [
        (pa.table({"k": ["2"], "j": ["B"], "w": [1]}), "k"),
        (pa.table({"k": [2], "j": ["B"], "w": ["x"]}), "w"),
        (pa.table({"k": pa.array([2], pa.int32())}), "int32"),
        (pa.table({"k": [2], "more": [1]}), "more"),
        (pa.table({"j": ["B"]}), "'k'"),
    ],
    ids=["key of other type", "other type", "narrower key", "unknown column", "no key"],
)
def test_rows_that_do_not_fit_the_schema_are_refused(
    namespace: MemoryNamespace,
    server: MemoryServer,
    source: pa.Table,
    named: str,
    use_index: bool,
) -> None:
    make(namespace, OLD)
    dataset(server).create_scalar_index("k", "BTREE")
    with unchanged(server, errors.TableSchemaValidationError, named):
        merge(namespace, source, use_index=use_index, **UPSERT)
    with unchanged(server, errors.TableSchemaValidationError, named):
        merge(namespace, source, when_matched_update_all_filt="source.k > 0")


# -- keys ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("key", ["k.", ".k", "`k", "``"])
def test_a_key_that_is_no_path_is_invalid_input(
    namespace: MemoryNamespace, server: MemoryServer, key: str
) -> None:
    make(namespace, OLD)
    with unchanged(server, errors.InvalidInputError, "path"):
        merge(namespace, NEW, on=[key], **UPSERT)


def test_a_key_may_be_quoted(namespace: MemoryNamespace) -> None:
    make(namespace, OLD)
    assert counts(merge(namespace, NEW, on=["`k`"], **UPSERT)) == (1, 1, 0)


def test_a_nested_key_is_unsupported_by_name(
    namespace: MemoryNamespace, server: MemoryServer
) -> None:
    """Should Lance learn it, this fails: then it is to be allowed."""
    make(namespace, pa.table({"s": [{"x": 1}], "w": [1]}))
    with unchanged(server, errors.UnsupportedOperationError, "s.x"):
        merge(namespace, pa.table({"s": [{"x": 1}], "w": [2]}), on=["s.x"], **UPSERT)


def test_not_a_number_matches_itself_and_zeros_differ_by_sign(
    namespace: MemoryNamespace, server: MemoryServer
) -> None:
    make(namespace, pa.table({"k": [float("nan"), 0.0], "w": [1, 2]}))
    answer = merge(namespace, pa.table({"k": [float("nan"), -0.0], "w": [10, 20]}), **UPSERT)
    assert counts(answer) == (1, 1, 0)
    assert sorted(row["w"] for row in rows(server)) == [2, 10, 20]


def test_an_index_on_the_key_is_used_where_the_request_says_so(
    namespace: MemoryNamespace, server: MemoryServer
) -> None:
    """Lance has a plan to show only for a merge that reads no index."""
    make(namespace, OLD)
    dataset(server).create_scalar_index("k", "BTREE")
    without = Merge(["k"], update_matched=True).builder(dataset(server))
    assert "on=[k]" in without.explain_plan(SCHEMA)
    using = Merge(["k"], update_matched=True, use_index=True).builder(dataset(server))
    with pytest.raises(OSError, match="scalar-index"):
        using.explain_plan(SCHEMA)


@pytest.mark.parametrize("in_memory", [True, False])
def test_new_rows_whose_key_is_null_are_not_lost_by_way_of_an_index(
    namespace: MemoryNamespace, server: MemoryServer, in_memory: bool
) -> None:
    make(namespace, OLD)
    dataset(server).create_scalar_index("k", "BTREE")
    given = pa.table({"k": [7, None], "j": ["x", "y"], "w": [1, 1]}, schema=SCHEMA)
    with unchanged(server, errors.InvalidInputError, "null.*use_index"):
        merge(namespace, given if in_memory else given.to_reader(), use_index=True, **UPSERT)
    assert counts(merge(namespace, given, **UPSERT)) == (0, 2, 0)
    lost = dataset(server).merge_insert("k").when_not_matched_insert_all().execute(given)
    assert lost["num_inserted_rows"] == 0  # should Lance keep them: allow it


# -- requests that cannot be -----------------------------------------------------------------------


def test_a_merge_without_key_or_action_is_invalid_input(
    namespace: MemoryNamespace, server: MemoryServer
) -> None:
    make(namespace, OLD)
    with unchanged(server, errors.InvalidInputError, "`on`"):
        merge(namespace, NEW, on=None, **UPSERT)
    with unchanged(server, errors.InvalidInputError, "asks for no action"):
        merge(namespace, NEW)


@pytest.mark.parametrize("flag", ["when_matched_update_all", "when_not_matched_by_source_delete"])
@pytest.mark.parametrize(
    "condition",
    [
        "{w} > 0) or (true",
        "1/({w} - {w}) > 0",
        "cast('x' as int) = {w}",
        "cast({j} as int) = 1",
    ],
)
def test_a_bad_condition_is_invalid_input_and_changes_nothing(
    namespace: MemoryNamespace, server: MemoryServer, flag: str, condition: str
) -> None:
    make(namespace, OLD)
    side = "source." if flag == "when_matched_update_all" else ""
    text = condition.replace("{w}", f"{side}w").replace("{j}", f"{side}j")
    for use_index in (False, True):
        with unchanged(server, errors.InvalidInputError):
            merge(namespace, NEW, use_index=use_index, **{flag: True, f"{flag}_filt": text})


@pytest.mark.parametrize("flag", ["when_matched_update_all", "when_not_matched_by_source_delete"])
@pytest.mark.parametrize("condition", ["source.nope = 1", "_distance > 1"])
def test_a_condition_on_a_missing_column_is_column_not_found(
    namespace: MemoryNamespace, server: MemoryServer, flag: str, condition: str
) -> None:
    make(namespace, OLD)
    for use_index in (False, True):
        with unchanged(server, errors.TableColumnNotFoundError, "there is no column "):
            merge(namespace, NEW, use_index=use_index, **{flag: True, f"{flag}_filt": condition})


@pytest.mark.parametrize("use_index", [False, True])
@pytest.mark.parametrize("condition", ["source.w > 5 -- why", "(source.w > 5) or target.k = 1"])
def test_a_condition_may_be_any_one_expression(
    namespace: MemoryNamespace, server: MemoryServer, condition: str, use_index: bool
) -> None:
    make(namespace, OLD)
    dataset(server).create_scalar_index("k", "BTREE")
    answer = merge(namespace, NEW, when_matched_update_all_filt=condition, use_index=use_index)
    assert counts(answer) == (1, 0, 0)


def test_large_batches_are_handed_over_in_parts_of_a_megabyte() -> None:
    wide = pa.table({"k": list(range(5000)), "text": ["x" * 1000] * 5000}).combine_chunks()
    parts = list(split_batches(wide.to_reader()))
    assert pa.Table.from_batches(parts) == wide
    assert 5 <= len(parts) <= 6
    assert max(part.nbytes for part in parts) <= 2**20
    assert [part.num_rows for part in split_batches(wide.slice(0, 0).to_reader())] in ([], [0])


# -- timeout ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("timeout", ["30s", "5m", "1h30m", "1.5s", "900ms", "1d"])
def test_a_timeout_may_be_any_duration(namespace: MemoryNamespace, timeout: str) -> None:
    make(namespace, OLD)
    assert counts(merge(namespace, NEW, timeout=timeout, **UPSERT)) == (1, 1, 0)


@pytest.mark.parametrize("timeout", ["", "5", "x", "0s", "-1s", "1s ", "1 s", "9" * 30 + "d"])
def test_a_timeout_that_is_no_duration_is_invalid_input(
    namespace: MemoryNamespace, server: MemoryServer, timeout: str
) -> None:
    make(namespace, OLD)
    with unchanged(server, errors.InvalidInputError, "timeout"):
        merge(namespace, NEW, timeout=timeout, **UPSERT)


def test_rows_that_do_not_arrive_in_time_change_nothing(
    namespace: MemoryNamespace, server: MemoryServer
) -> None:
    make(namespace, OLD)

    def slow() -> Iterator[pa.RecordBatch]:
        [batch] = NEW.to_batches()
        while True:
            yield batch.slice(0, 0)

    with unchanged(server, errors.ServiceUnavailableError, "timeout"):
        merge(namespace, slow(), timeout="50ms", **UPSERT)


# -- writers at the same time ----------------------------------------------------------------------


@pytest.mark.parametrize("in_memory", [True, False])
def test_a_merge_is_repeated_on_what_others_changed_meanwhile(
    namespace: MemoryNamespace, server: MemoryServer, in_memory: bool
) -> None:
    make(namespace, OLD)
    changes = iter(["w = 100", "w = 200"])

    def between() -> Iterator[pa.RecordBatch]:
        yield from NEW.to_batches()
        change = next(changes, None)
        if change is not None:
            column, value = change.split(" = ")
            dataset(server).update({column: value}, where="k = 2")

    class Batches(list[pa.RecordBatch]):
        def __iter__(self) -> Iterator[pa.RecordBatch]:
            return between()

    data = Batches(NEW.to_batches()) if in_memory else between()
    answer = merge(namespace, data, **UPSERT)
    assert counts(answer) == (1, 1, 0)
    assert NEW.to_pylist()[0] in rows(server)
    assert answer.version == dataset(server).version


def test_a_merge_into_what_was_overwritten_meanwhile_is_a_concurrent_modification(
    namespace: MemoryNamespace, server: MemoryServer
) -> None:
    make(namespace, OLD)

    def overwritten() -> Iterator[pa.RecordBatch]:
        yield from NEW.to_batches()
        lance.write_dataset(pa.table({"other": [1]}), place(server), mode="overwrite")

    with pytest.raises(errors.ConcurrentModificationError, match="Orders"):
        merge(namespace, overwritten(), **UPSERT)
    assert rows(server) == [{"other": 1}]


# -- declared tables and branches ------------------------------------------------------------------


def test_a_merge_into_a_declared_table_makes_its_first_version(
    namespace: MemoryNamespace, server: MemoryServer
) -> None:
    namespace.declare_table(api.DeclareTableRequest(id=TABLE))
    bad: list[tuple[dict[str, Any], type[errors.LanceNamespaceError]]] = [
        ({"on": ["nope"], **UPSERT}, errors.TableColumnNotFoundError),
        ({"when_matched_update_all_filt": "nope = 1"}, errors.TableColumnNotFoundError),
        ({}, errors.InvalidInputError),
    ]
    for request, error in bad:
        with pytest.raises(error):
            merge(namespace, NEW, **request)
    answer = merge(namespace, NEW, when_matched_update_all=True)
    assert (*counts(answer), answer.version) == (0, 2, 0, 1)
    assert dataset(server).to_table() == NEW


def test_a_merge_into_a_declared_table_names_a_type_that_lance_cannot_store(
    namespace: MemoryNamespace,
) -> None:
    namespace.declare_table(api.DeclareTableRequest(id=TABLE))
    views = pa.table({"k": [1], "v": pa.array([["a"]], pa.list_view(pa.string()))})
    with pytest.raises(errors.InvalidInputError, match="cannot store column 'v'"):
        merge(namespace, views, when_not_matched_insert_all=True)


def test_a_branch_is_merged_into_and_main_is_not(
    namespace: MemoryNamespace, server: MemoryServer
) -> None:
    make(namespace, OLD)
    dataset(server).create_branch("dev")
    answer = merge(namespace, NEW, branch="dev", **UPSERT)
    assert (*counts(answer), answer.version) == (1, 1, 0, dataset(server, "dev").version)
    assert len(rows(server, "dev")) == 4
    assert dataset(server).to_table() == OLD
    with unchanged(server, errors.TableBranchNotFoundError, "nope"):
        merge(namespace, NEW, branch="nope", **UPSERT)
