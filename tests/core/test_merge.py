"""MergeInsertIntoTable: rows, keys, conditions, timeouts, other writers; and an oracle."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import lance
import lance_namespace as api
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis_profiles import examples
from lance_namespace import errors

from lance_bridge.dataset.update_delete_merge import Merge, split_batches

from .memory_catalog import TABLE, MemoryNamespace, MemoryServer
from .table_data import dataset, ipc, make, place, rows, unchanged

pytestmark = [pytest.mark.quick, pytest.mark.spec("operations.md#mergeinsertintotable")]

SCHEMA = pa.schema([("k", pa.int64()), ("j", pa.string()), ("w", pa.int64())])
OLD = pa.table({"k": [1, 2, None], "j": ["a", "b", "c"], "w": [1, 2, 3]}, schema=SCHEMA)
NEW = pa.table({"k": [2, 7], "j": ["B", "z"], "w": [20, 70]}, schema=SCHEMA)
UPSERT = {"when_matched_update_all": True, "when_not_matched_insert_all": True}


def merge(namespace: MemoryNamespace, data: Any, **more: Any) -> api.MergeInsertIntoTableResponse:
    """Merge into ``TABLE``, by ``k`` where nothing else is said."""
    data = ipc(data) if isinstance(data, pa.Table) else data
    request = api.MergeInsertIntoTableRequest(id=TABLE, **{"on": ["k"], **more})
    return namespace.merge_insert_into_table(request, data)


def counts(answer: api.MergeInsertIntoTableResponse) -> tuple[int | None, ...]:
    """Return how many rows were updated, inserted and deleted."""
    return answer.num_updated_rows, answer.num_inserted_rows, answer.num_deleted_rows


@pytest.fixture
def filled(namespace: MemoryNamespace) -> MemoryNamespace:
    make(namespace, OLD)
    return namespace


@pytest.fixture
def indexed(filled: MemoryNamespace, server: MemoryServer) -> MemoryNamespace:
    dataset(server).create_scalar_index("k", "BTREE")
    return filled


# -- rows with fewer columns -----------------------------------------------------------------------


def test_columns_that_are_left_out_keep_their_values_or_are_null(filled: MemoryNamespace) -> None:
    answer = merge(filled, pa.table({"w": [20, 70], "k": [2, 7]}), **UPSERT)
    assert counts(answer) == (1, 1, 0)
    assert {"k": 2, "j": "b", "w": 20} in rows(filled)
    assert {"k": 7, "j": None, "w": 70} in rows(filled)


STRICT = pa.schema([("k", pa.int64()), pa.field("j", pa.string(), nullable=False)])


def test_a_column_that_must_not_be_null_may_be_left_out_of_an_update_only(
    namespace: MemoryNamespace,
) -> None:
    make(namespace, pa.table({"k": [1], "j": ["a"]}, schema=STRICT))
    given = pa.table({"k": [1, 5]})
    with unchanged(namespace, errors.TableSchemaValidationError, "j"):
        merge(namespace, given, **UPSERT)
    assert counts(merge(namespace, given, when_matched_update_all=True)) == (1, 0, 0)
    with unchanged(namespace, errors.TableSchemaValidationError, "'j'.*null"):
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
    indexed: MemoryNamespace, source: pa.Table, named: str, use_index: bool
) -> None:
    with unchanged(indexed, errors.TableSchemaValidationError, named):
        merge(indexed, source, use_index=use_index, **UPSERT)
    with unchanged(indexed, errors.TableSchemaValidationError, named):
        merge(indexed, source, when_matched_update_all_filt="source.k > 0")


# -- keys ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("key", ["k.", ".k", "`k", "``"])
def test_a_key_that_is_no_path_is_invalid_input(filled: MemoryNamespace, key: str) -> None:
    with unchanged(filled, errors.InvalidInputError, "path"):
        merge(filled, NEW, on=[key], **UPSERT)


def test_a_key_may_be_quoted(filled: MemoryNamespace) -> None:
    assert counts(merge(filled, NEW, on=["`k`"], **UPSERT)) == (1, 1, 0)


def test_a_nested_key_is_unsupported_by_name(namespace: MemoryNamespace) -> None:
    """Should Lance learn it, this fails: then it is to be allowed."""
    make(namespace, pa.table({"s": [{"x": 1}], "w": [1]}))
    with unchanged(namespace, errors.UnsupportedOperationError, "s.x"):
        merge(namespace, pa.table({"s": [{"x": 1}], "w": [2]}), on=["s.x"], **UPSERT)


def test_not_a_number_matches_itself_and_zeros_differ_by_sign(namespace: MemoryNamespace) -> None:
    make(namespace, pa.table({"k": [float("nan"), 0.0], "w": [1, 2]}))
    answer = merge(namespace, pa.table({"k": [float("nan"), -0.0], "w": [10, 20]}), **UPSERT)
    assert counts(answer) == (1, 1, 0)
    assert sorted(row["w"] for row in rows(namespace)) == [2, 10, 20]


@pytest.mark.usefixtures("indexed")
def test_an_index_on_the_key_is_used_where_the_request_says_so(server: MemoryServer) -> None:
    """Lance has a plan to show only for a merge that reads no index."""
    without = Merge(["k"], update_matched=True).builder(dataset(server))
    assert "on=[k]" in without.explain_plan(SCHEMA)
    using = Merge(["k"], update_matched=True, use_index=True).builder(dataset(server))
    with pytest.raises(OSError, match="scalar-index"):
        using.explain_plan(SCHEMA)


@pytest.mark.parametrize("in_memory", [True, False])
def test_new_rows_whose_key_is_null_are_not_lost_by_way_of_an_index(
    indexed: MemoryNamespace, in_memory: bool
) -> None:
    given = pa.table({"k": [7, None], "j": ["x", "y"], "w": [1, 1]}, schema=SCHEMA)
    with unchanged(indexed, errors.InvalidInputError, "null.*use_index"):
        merge(indexed, given if in_memory else given.to_reader(), use_index=True, **UPSERT)
    assert counts(merge(indexed, given, **UPSERT)) == (0, 2, 0)
    lost = dataset(indexed).merge_insert("k").when_not_matched_insert_all().execute(given)
    assert lost["num_inserted_rows"] == 0  # should Lance keep them: allow it


# -- requests that cannot be -----------------------------------------------------------------------


def test_a_merge_without_key_or_action_is_invalid_input(filled: MemoryNamespace) -> None:
    with unchanged(filled, errors.InvalidInputError, "`on`"):
        merge(filled, NEW, on=None, **UPSERT)
    with unchanged(filled, errors.InvalidInputError, "asks for no action"):
        merge(filled, NEW)


@pytest.mark.parametrize("flag", ["when_matched_update_all", "when_not_matched_by_source_delete"])
@pytest.mark.parametrize(
    ("condition", "error"),
    [
        ("{w} > 0) or (true", errors.InvalidInputError),
        ("1/({w} - {w}) > 0", errors.InvalidInputError),
        ("cast('x' as int) = {w}", errors.InvalidInputError),
        ("cast({j} as int) = 1", errors.InvalidInputError),
        ("source.nope = 1", errors.TableColumnNotFoundError),
        ("_distance > 1", errors.TableColumnNotFoundError),
    ],
)
def test_a_bad_condition_changes_nothing(
    filled: MemoryNamespace, flag: str, condition: str, error: type[errors.LanceNamespaceError]
) -> None:
    side = "source." if flag == "when_matched_update_all" else ""
    text = condition.replace("{w}", f"{side}w").replace("{j}", f"{side}j")
    for use_index in (False, True):
        with unchanged(filled, error):
            merge(filled, NEW, use_index=use_index, **{flag: True, f"{flag}_filt": text})


@pytest.mark.parametrize("use_index", [False, True])
@pytest.mark.parametrize("condition", ["source.w > 5 -- why", "(source.w > 5) or target.k = 1"])
def test_a_condition_may_be_any_one_expression(
    indexed: MemoryNamespace, condition: str, use_index: bool
) -> None:
    answer = merge(indexed, NEW, when_matched_update_all_filt=condition, use_index=use_index)
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
def test_a_timeout_may_be_any_duration(filled: MemoryNamespace, timeout: str) -> None:
    assert counts(merge(filled, NEW, timeout=timeout, **UPSERT)) == (1, 1, 0)


@pytest.mark.parametrize("timeout", ["", "5", "x", "0s", "-1s", "1s ", "1 s", "9" * 30 + "d"])
def test_a_timeout_that_is_no_duration_is_invalid_input(
    filled: MemoryNamespace, timeout: str
) -> None:
    with unchanged(filled, errors.InvalidInputError, "timeout"):
        merge(filled, NEW, timeout=timeout, **UPSERT)


def test_rows_that_do_not_arrive_in_time_change_nothing(filled: MemoryNamespace) -> None:
    def slow() -> Iterator[pa.RecordBatch]:
        [batch] = NEW.to_batches()
        while True:
            yield batch.slice(0, 0)

    with unchanged(filled, errors.ServiceUnavailableError, "timeout"):
        merge(filled, slow(), timeout="50ms", **UPSERT)


# -- writers at the same time ----------------------------------------------------------------------


@pytest.mark.parametrize("in_memory", [True, False])
def test_a_merge_is_repeated_on_what_others_changed_meanwhile(
    filled: MemoryNamespace, in_memory: bool
) -> None:
    changes = iter(["w = 100", "w = 200"])

    def between() -> Iterator[pa.RecordBatch]:
        yield from NEW.to_batches()
        change = next(changes, None)
        if change is not None:
            column, value = change.split(" = ")
            dataset(filled).update({column: value}, where="k = 2")

    class Batches(list[pa.RecordBatch]):
        def __iter__(self) -> Iterator[pa.RecordBatch]:
            return between()

    data = Batches(NEW.to_batches()) if in_memory else between()
    answer = merge(filled, data, **UPSERT)
    assert counts(answer) == (1, 1, 0)
    assert NEW.to_pylist()[0] in rows(filled)
    assert answer.version == dataset(filled).version


def test_a_merge_into_what_was_overwritten_meanwhile_is_a_concurrent_modification(
    filled: MemoryNamespace,
) -> None:
    def overwritten() -> Iterator[pa.RecordBatch]:
        yield from NEW.to_batches()
        lance.write_dataset(pa.table({"other": [1]}), place(filled), mode="overwrite")

    with pytest.raises(errors.ConcurrentModificationError, match="Orders"):
        merge(filled, overwritten(), **UPSERT)
    assert rows(filled) == [{"other": 1}]


# -- declared tables and branches ------------------------------------------------------------------


def test_a_merge_into_a_declared_table_makes_its_first_version(namespace: MemoryNamespace) -> None:
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
    assert dataset(namespace).to_table() == NEW


def test_a_merge_into_a_declared_table_names_a_type_that_lance_cannot_store(
    namespace: MemoryNamespace,
) -> None:
    namespace.declare_table(api.DeclareTableRequest(id=TABLE))
    views = pa.table({"k": [1], "v": pa.array([["a"]], pa.list_view(pa.string()))})
    with pytest.raises(errors.InvalidInputError, match="cannot store column 'v'"):
        merge(namespace, views, when_not_matched_insert_all=True)


def test_a_branch_is_merged_into_and_main_is_not(filled: MemoryNamespace) -> None:
    dataset(filled).create_branch("dev")
    answer = merge(filled, NEW, branch="dev", **UPSERT)
    assert (*counts(answer), answer.version) == (1, 1, 0, dataset(filled, "dev").version)
    assert len(rows(filled, "dev")) == 4
    assert dataset(filled).to_table() == OLD
    with unchanged(filled, errors.TableBranchNotFoundError, "nope"):
        merge(filled, NEW, branch="nope", **UPSERT)


# -- every combination of flags, against an oracle -------------------------------------------------

UPDATE_IF, DELETE_IF = "source.w > target.w", "w > 1"

Row = tuple[Any, ...]


@dataclass(frozen=True)
class Case:
    """A merge: rows on both sides, and its flags."""

    table: list[Row]
    source: list[Row]
    on: tuple[int, ...]
    update: str | bool
    insert: bool
    delete: str | bool

    def request(self) -> dict[str, Any]:
        return {
            "on": [SCHEMA.names[i] for i in self.on],
            "when_matched_update_all": self.update is True,
            "when_matched_update_all_filt": self.update if isinstance(self.update, str) else None,
            "when_not_matched_insert_all": self.insert,
            "when_not_matched_by_source_delete": self.delete is True,
            "when_not_matched_by_source_delete_filt": (
                self.delete if isinstance(self.delete, str) else None
            ),
        }

    def matches(self, ours: Row, given: Row) -> bool:
        """A null is equal to nothing, not even to null."""
        return all(ours[i] is not None and ours[i] == given[i] for i in self.on)

    def expected(self) -> tuple[list[Row], tuple[int, int, int]] | None:
        """Return the rows after it and the counts, or None where it is ambiguous."""
        after: list[Row] = []
        updated = deleted = 0
        for row in self.table:
            found = [each for each in self.source if self.matches(row, each)]
            news = [each for each in found if self.takes(row, each)]
            if len(news) > 1:
                return None
            updated += len(news)
            gone = not found and self.loses(row)
            deleted += gone
            after += news or ([] if gone else [row])
        fresh = [s for s in self.source if not any(self.matches(row, s) for row in self.table)]
        if not self.insert:
            fresh = []
        return [*after, *fresh], (updated, len(fresh), deleted)

    def would_lose_rows_by_index(self) -> bool:
        """Lance reads the index on ``k`` for that key alone, and where nothing is deleted."""
        nulls = any(each[0] is None for each in self.source)
        return bool(nulls and self.table and self.insert and not self.delete and self.on == (0,))

    def takes(self, row: Row, given: Row) -> bool:
        return given[2] > row[2] if self.update == UPDATE_IF else bool(self.update)

    def loses(self, row: Row) -> bool:
        return bool(row[2] > 1) if self.delete == DELETE_IF else bool(self.delete)


def tables(max_size: int) -> st.SearchStrategy[list[Row]]:
    row = st.tuples(
        st.sampled_from([None, 0, 1, 2, 3]), st.sampled_from([None, "", "x"]), st.integers(0, 3)
    )
    return st.lists(row, max_size=max_size)


CASES = st.builds(
    Case,
    tables(8),
    tables(6),
    on=st.sampled_from([(0,), (1,), (0, 1), (1, 0)]),
    update=st.sampled_from([False, True, UPDATE_IF]),
    insert=st.booleans(),
    delete=st.sampled_from([False, True, DELETE_IF]),
).filter(lambda case: bool(case.update or case.insert or case.delete))


def table_of(found: list[Row]) -> pa.Table:
    columns = [[row[i] for row in found] for i in range(len(SCHEMA))]
    return pa.table(columns, schema=SCHEMA)


def tuples(client: MemoryNamespace) -> list[Row]:
    return sorted((tuple(row.values()) for row in dataset(client).to_table().to_pylist()), key=repr)


@examples(40, share_fixtures=True)
@given(case=CASES, indexed=st.booleans(), in_memory=st.booleans())
def test_a_merge_does_what_the_oracle_says(
    namespace: MemoryNamespace, case: Case, indexed: bool, in_memory: bool
) -> None:
    if not namespace.server.tables:
        make(namespace, OLD)
    before = lance.write_dataset(table_of(case.table), place(namespace), mode="overwrite")
    if indexed and case.table:
        before.create_scalar_index("k", "BTREE")
    source = table_of(case.source)
    data = ipc(source) if in_memory else source.to_reader(max_chunksize=2)
    if indexed and case.would_lose_rows_by_index():
        with pytest.raises(errors.InvalidInputError, match="use_index"):
            merge(namespace, data, use_index=True, **case.request())
        assert tuples(namespace) == sorted(case.table, key=repr)
        return
    expected = case.expected()
    if expected is None:
        with pytest.raises(errors.InvalidInputError, match="Ambiguous"):
            merge(namespace, data, use_index=indexed, **case.request())
        assert tuples(namespace) == sorted(case.table, key=repr)
        return
    answer = merge(namespace, data, use_index=indexed, **case.request())
    assert tuples(namespace) == sorted(expected[0], key=repr)
    assert counts(answer) == expected[1]
    assert answer.version == dataset(namespace).version
