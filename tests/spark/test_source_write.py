"""Writing by options, in the process of the test: what happens to rows, files and commits."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import lance
import pyarrow as pa
import pytest
from lance.commit import CommitConflictError
from lance.fragment import FragmentMetadata
from lance_namespace.errors import ConcurrentModificationError, InvalidInputError

from lance_bridge_spark.addresses import TableAddress
from lance_bridge_spark.lookup import find_table
from lance_bridge_spark.source import conversion
from lance_bridge_spark.source.worker_calls import LanceError, LanceValueError
from lance_bridge_spark.source.writer import LanceWriter, commit_once, fragments_of

from .source_helpers import begun, ids_in, numbers, read, sent, source, struct_of, write

pytestmark = [
    pytest.mark.quick,
    pytest.mark.spec("spark.md#commits", "spark.md#save-modes", "spark.md#write-options"),
]


@pytest.fixture
def place(tmp_path: Path) -> str:
    """Where a table can be."""
    return str(tmp_path / "t.lance")


def ids_at(place: str) -> list[int]:
    return ids_in(lance.dataset(place).to_table())


def row_ids_at(place: str) -> dict[int, int]:
    """Return the row id of each id."""
    rows = lance.dataset(place).to_table(columns=["id"], with_row_id=True)
    return dict(zip(rows["id"].to_pylist(), rows["_rowid"].to_pylist(), strict=True))


def fragments_at(place: str) -> list[int]:
    return [each.fragment_id for each in lance.dataset(place).get_fragments()]


# -- modes -----------------------------------------------------------------------------------------


def test_the_first_rows_make_the_table_and_others_are_appended_or_put_in_their_place(
    place: str,
) -> None:
    write({"path": place}, numbers(1, 2, 3))
    assert (ids_at(place), lance.dataset(place).versions()[0]["version"]) == ([1, 2, 3], 1)
    first = lance.dataset(place).version
    found = []
    for rows, overwrite in (
        (numbers(4, 5, 6, 7), False),
        (numbers(4, 5, 6), True),
        (numbers(1).slice(0, 0), True),
    ):
        write({"path": place}, rows, overwrite=overwrite)
        found.append((lance.dataset(place).version - first, ids_at(place)))
    assert found == [(1, [1, 2, 3, 4, 5, 6, 7]), (2, [4, 5, 6]), (3, [])]


@pytest.mark.parametrize("mode", [None, "append", "overwrite"])
def test_a_branch_is_written_to_by_location_and_by_name(place: str, mode: str | None) -> None:
    write({"path": place}, numbers(1))
    lance.dataset(place).create_branch("side")
    by_name = {} if mode is None else {"lance_bridge.write": {"mode": mode}}
    overwrite = mode == "overwrite"
    write({"path": place, "branch": "side", **by_name}, numbers(2), overwrite=overwrite)
    assert ids_at(place) == [1]
    assert ids_in(read({"path": place, "branch": "side"})) == ([2] if overwrite else [1, 2])


def test_a_branch_is_no_option_of_a_change_of_rows(place: str) -> None:
    write({"path": place}, numbers(1))
    request = {"mode": "replace_fragments", "version": 1, "fragments": []}
    with pytest.raises(LanceValueError, match="branch"):
        write({"path": place, "branch": "side", "lance_bridge.write": request}, numbers(2))


@pytest.mark.parametrize("mode", ["append", "overwrite"])
def test_a_statement_does_not_make_the_table_that_it_had_found(place: str, mode: str) -> None:
    with pytest.raises(LanceError, match="LANCE_TABLE_NOT_FOUND"):
        write({"path": place, "lance_bridge.write": {"mode": mode}}, numbers(1))
    assert not Path(place).exists()


def test_fragments_are_replaced_by_new_rows(place: str) -> None:
    write({"path": place}, numbers(1, 2, 3, 4))
    version, (first, _) = lance.dataset(place).version, fragments_at(place)
    request = {"mode": "replace_fragments", "version": version, "fragments": [first]}
    write({"path": place, "lance_bridge.write": request}, numbers(10))
    assert ids_at(place) == [3, 4, 10]


@pytest.mark.spec("spark.md#row-level-changes")
def test_rows_of_replaced_fragments_have_new_ids(place: str) -> None:
    """Stable row ids are not kept; the functions keep them."""
    rows = numbers(1, 2, 3, 4)
    lance.write_dataset(rows, place, max_rows_per_file=2, enable_stable_row_ids=True)
    before = row_ids_at(place)
    request = {"mode": "replace_fragments", "version": 1, "fragments": [0]}
    write({"path": place, "lance_bridge.write": request}, numbers(1, 2))
    after = row_ids_at(place)
    assert {after[1], after[2]}.isdisjoint(before.values())
    assert (after[3], after[4]) == (before[3], before[4])


def test_files_are_as_options_say(place: str) -> None:
    options = {"path": place, "max_rows_per_file": 2, "data_storage_version": "2.1"}
    rows = pa.table({"id": range(6), "word": ["w"] * 6})
    write(options, rows)
    fragments = lance.dataset(place).get_fragments()
    assert [each.count_rows() for each in fragments] == [2, 2, 2]
    [file] = fragments[0].data_files()
    assert (file.file_major_version, file.file_minor_version) == (2, 1)


# -- columns ---------------------------------------------------------------------------------------


def test_columns_are_taken_by_name_in_any_order_and_case(place: str) -> None:
    write({"path": place}, numbers(1))
    again = pa.table({"WORD": ["x"], "id": pa.array([2], pa.int32())})
    write({"path": place}, again)
    assert lance.dataset(place).to_table().to_pylist()[1] == {"id": 2, "word": "x"}
    write({"path": place}, again, overwrite=True)
    assert lance.dataset(place).schema == numbers(1).schema


def test_a_column_is_not_written_to_two_that_differ_in_case(place: str) -> None:
    lance.write_dataset(pa.table({"word": ["a"], "WORD": ["b"]}), place)
    with pytest.raises(LanceValueError, match="the DataFrame has no 'WORD'"):
        write({"path": place}, pa.table({"word": ["x"]}))


@pytest.mark.parametrize(
    ("columns", "message"),
    [
        ({"id": [1]}, "the DataFrame has no 'word'"),
        ({"id": [1], "word": ["x"], "more": [1]}, "the table has no 'more'"),
        ({"id": [1], "wort": ["x"]}, "has no 'word' and the table has no 'wort'"),
        ({"id": ["1"], "word": ["x"]}, "column 'id' is string in the DataFrame and int64"),
        ({"id": [1.5], "word": ["x"]}, "column 'id' is double"),
    ],
)
@pytest.mark.parametrize("overwrite", [False, True])
def test_columns_that_do_not_fit_are_refused_before_any_task(
    place: str, columns: dict[str, Any], message: str, overwrite: bool
) -> None:
    write({"path": place}, numbers(1))
    with pytest.raises(LanceValueError, match=rf"LANCE_TABLE_SCHEMA_VALIDATION.*{message}"):
        source({"path": place}).writer(struct_of(pa.table(columns)), overwrite)


def test_the_schema_is_changed_where_an_overwrite_says_so(place: str) -> None:
    write({"path": place}, numbers(1))
    rows = pa.table({"other": [1.5]})
    write({"path": place, "overwrite_schema": "true"}, rows, overwrite=True)
    assert lance.dataset(place).to_table() == rows


def test_an_overwrite_after_a_field_was_added_to_a_struct_keeps_the_columns_apart(
    place: str,
) -> None:
    """The ids of the fields are no longer in their order."""
    dataset = lance.write_dataset(pa.table({"s": [{"a": 1}], "c": [2]}), place)
    dataset.add_columns(pa.schema([pa.field("s", pa.struct([pa.field("f", pa.int64())]))]))
    rows = pa.table({"s": [{"a": 10, "f": 11}], "c": [12]})
    write({"path": place}, rows, overwrite=True)
    assert lance.dataset(place).to_table().to_pylist() == rows.to_pylist()
    write({"path": place}, rows)
    assert lance.dataset(place).to_table().to_pylist() == rows.to_pylist() * 2


def test_a_vector_option_must_agree_with_the_table(place: str) -> None:
    rows = pa.table({"v": pa.array([[1.0, 2.0]], pa.list_(pa.float32()))})
    write({"path": place, "vector.V": 2}, rows)
    write({"path": place, "vector.v": 2}, rows)
    with pytest.raises(LanceValueError, match=r"'vector.v' is 3"):
        write({"path": place, "vector.v": 3}, rows)
    assert lance.dataset(place).count_rows() == 2


@pytest.mark.spec("spark.md#writing-types")
def test_null_in_a_column_that_forbids_it_ends_the_task(place: str) -> None:
    schema = pa.schema([pa.field("id", pa.int64(), nullable=False)])
    lance.write_dataset(schema.empty_table(), place)
    with pytest.raises(LanceValueError, match="Column 'id' must not be null"):
        write({"path": place}, pa.table({"id": pa.array([1, None], pa.int64())}))


# -- commits ---------------------------------------------------------------------------------------


def test_a_commit_that_is_repeated_appends_once(place: str) -> None:
    write({"path": place}, numbers(1))
    writer, messages = begun({"path": place}, numbers(2, 3))
    writer.commit(messages)
    write({"path": place}, numbers(4))
    sent(writer).commit(messages)
    assert ids_at(place) == [1, 2, 3, 4]


def test_files_stay_where_the_outcome_of_a_commit_may_not_be_known(place: str) -> None:
    write({"path": place}, numbers(1))
    writer, messages = begun({"path": place}, numbers(2, 3))
    writer.commit(messages)
    writer.abort(messages)
    assert ids_at(place) == [1, 2, 3]


@pytest.mark.parametrize("there", [(), (1,)], ids=["creators", "writers"])
def test_appends_that_begin_together_are_all_there(place: str, there: tuple[int, ...]) -> None:
    if there:
        write({"path": place}, numbers(*there))
    jobs = [begun({"path": place}, numbers(i)) for i in (2, 3, 4)]
    for writer, messages in jobs:
        writer.commit(messages)
    assert ids_at(place) == [*there, 2, 3, 4]


def test_an_append_goes_with_a_compaction_that_moves_an_index(place: str) -> None:
    write({"path": place}, numbers(1, 2, 3, 4))
    write({"path": place}, numbers(5, 6))
    lance.dataset(place).create_scalar_index("id", "BTREE")
    writer, messages = begun({"path": place}, numbers(7))
    lance.dataset(place).optimize.compact_files()
    writer.commit(messages)
    assert ids_at(place) == [1, 2, 3, 4, 5, 6, 7]


@pytest.mark.parametrize("guard", [False, True])
def test_an_overwrite_fails_after_others_where_it_has_read_the_table(
    place: str, guard: bool
) -> None:
    write({"path": place}, numbers(1, 2))
    version = lance.dataset(place).version
    request = {"mode": "overwrite", "version": version, "guard": guard}
    options = {"path": place, "lance_bridge.write": request}
    writer, messages = begun(options, numbers(3), overwrite=True)
    write({"path": place}, numbers(90))
    if not guard:
        writer.commit(messages)
        assert ids_at(place) == [3]
        return
    with pytest.raises(LanceError, match="LANCE_CONCURRENT_MODIFICATION"):
        writer.commit(messages)
    assert ids_at(place) == [1, 2, 90]


def test_an_append_after_an_overwrite_conflicts(place: str) -> None:
    write({"path": place}, numbers(1))
    late = begun({"path": place}, numbers(2))
    write({"path": place}, numbers(3), overwrite=True)
    with pytest.raises(LanceError, match="LANCE_CONCURRENT_MODIFICATION"):
        late[0].commit(late[1])
    assert ids_at(place) == [3]


@pytest.mark.spec("spark.md#row-level-changes")
def test_fragments_that_others_changed_are_not_replaced(place: str) -> None:
    write({"path": place}, numbers(1, 2, 3, 4))
    version, (first, _) = lance.dataset(place).version, fragments_at(place)
    request = {"mode": "replace_fragments", "version": version, "fragments": [first]}
    late = begun({"path": place, "lance_bridge.write": request}, numbers(10))
    lance.dataset(place).delete("id = 1")
    with pytest.raises(LanceError, match="LANCE_CONCURRENT_MODIFICATION"):
        late[0].commit(late[1])
    assert ids_at(place) == [2, 3, 4]


@pytest.mark.parametrize("there", [(), (1, 2, 3, 4)])
def test_a_guarded_change_goes_with_no_other(place: str, there: tuple[int, ...]) -> None:
    write({"path": place}, numbers(0))
    write({"path": place}, numbers(*there) if there else numbers(0).slice(0, 0), overwrite=True)
    version, fragments = lance.dataset(place).version, fragments_at(place)[:1]
    request = {
        "mode": "replace_fragments",
        "version": version,
        "fragments": fragments,
        "guard": True,
    }
    first = begun({"path": place, "lance_bridge.write": request}, numbers(10))
    late = begun({"path": place, "lance_bridge.write": request}, numbers(10))
    first[0].commit(first[1])
    first[0].commit(first[1])
    with pytest.raises(LanceError, match="LANCE_CONCURRENT_MODIFICATION"):
        late[0].commit(late[1])
    assert ids_at(place) == sorted([*there[2:], 10])


@pytest.mark.parametrize("there", [(), (1, 2)])
def test_of_two_guarded_changes_lance_itself_commits_one(
    place: str, there: tuple[int, ...]
) -> None:
    write({"path": place}, numbers(0))
    write({"path": place}, numbers(*there) if there else numbers(0).slice(0, 0), overwrite=True)
    version = lance.dataset(place).version
    request = {"mode": "replace_fragments", "version": version, "fragments": [], "guard": True}

    def change() -> None:
        writer, messages = begun({"path": place, "lance_bridge.write": request}, numbers(10))
        new = [FragmentMetadata.from_json(each) for each in fragments_of(messages)]
        assert isinstance(writer, LanceWriter)
        operation = writer._job.operation(new)
        lance.LanceDataset.commit(
            place, lance.Transaction(read_version=version, operation=operation)
        )

    change()
    with pytest.raises(CommitConflictError):
        change()
    assert ids_at(place) == [*there, 10]


def test_rows_are_not_committed_to_a_table_created_again_elsewhere(place: str) -> None:
    write({"path": place}, numbers(1))
    late = begun({"path": place}, numbers(2))
    os.rename(place, place + ".gone")
    with pytest.raises(LanceError, match="LANCE_TABLE_NOT_FOUND"):
        late[0].commit(late[1])


def test_a_transaction_whose_reply_was_lost_is_recognised(place: str) -> None:
    write({"path": place}, numbers(1, 2))
    table = find_table(TableAddress(location=place))
    dataset = table.open(write=True)
    [first] = fragments_at(place)
    change = lance.LanceOperation.Update(removed_fragment_ids=[first])
    transaction = lance.Transaction(read_version=dataset.version, operation=change)
    done = commit_once(table, dataset, transaction)
    # The handle has not seen it, as after a lost reply.
    assert commit_once(table, table.open(write=True), transaction) == done
    again = lance.Transaction(read_version=transaction.read_version, operation=change)
    with pytest.raises(ConcurrentModificationError):
        commit_once(table, table.open(write=True), again)


@pytest.mark.spec("spark.md#credentials")
def test_nothing_of_a_writer_shows_its_secrets() -> None:
    options = {"path": "/p/t", "storage.aws_secret_access_key": "hidden-key"}
    assert "hidden-key" not in repr(source(options)._options().address())


# -- arrays ----------------------------------------------------------------------------------------

VECTOR = pa.list_(pa.float32(), 2)
LISTS = pa.list_(pa.float32())


def batch(values: list[Any], kind: pa.DataType) -> pa.RecordBatch:
    return pa.record_batch({"v": pa.array(values, kind)})


def stored(values: list[Any], given: pa.DataType, kind: pa.DataType) -> list[Any]:
    """Return values as a table keeps them that has a column of ``kind``."""
    schema = pa.schema([pa.field("v", kind)])
    [made] = conversion.ToLance(iter([batch(values, given)]), schema, {"v": "v"})
    made.validate(full=True)
    assert made.schema == schema
    found: list[Any] = made.column(0).to_pylist()
    return found


def test_vectors_go_both_ways_without_a_copy() -> None:
    values = pa.array([1.0, 2.0, 3.0, 4.0], pa.float32())
    fixed = pa.FixedSizeListArray.from_arrays(values, type=VECTOR)
    lists = conversion.to_spark(pa.record_batch({"v": fixed}), pa.schema([("v", LISTS)])).column(0)
    assert lists.values.buffers()[1].address == values.buffers()[1].address
    schema = pa.schema([("v", VECTOR)])
    [made] = conversion.ToLance(iter([pa.record_batch({"v": lists})]), schema, {"v": "v"})
    assert made.column(0).values.buffers()[1].address == values.buffers()[1].address


def test_a_slice_of_vectors_is_read_from_where_it_begins() -> None:
    fixed = pa.array([[1, 2], [3, 4], [5, 6]], VECTOR).slice(1)
    found = conversion.to_spark(pa.record_batch({"v": fixed}), pa.schema([("v", LISTS)]))
    assert found.column(0).to_pylist() == [[3, 4], [5, 6]]


def test_a_slice_of_lists_is_stored_from_where_it_begins() -> None:
    lists = pa.array([[1.0, 2.0], None, [3.0, 4.0], [5.0, 6.0]], LISTS).slice(1)
    schema = pa.schema([("v", VECTOR)])
    [made] = conversion.ToLance(iter([pa.record_batch({"v": lists})]), schema, {"v": "v"})
    assert made.column(0).to_pylist() == [None, [3.0, 4.0], [5.0, 6.0]]


@pytest.mark.parametrize("values", [[None], [None, None], [[1.0, 2.0]], [None, [1.0, 2.0]]])
def test_nulls_among_vectors_stay(values: list[Any]) -> None:
    assert stored(values, LISTS, VECTOR) == values


def test_vectors_inside_of_structs_and_lists_are_stored() -> None:
    inside = [{"a": [1.0, 2.0]}, None, {"a": None}]
    given, kind = pa.struct([("a", LISTS)]), pa.struct([("a", VECTOR)])
    assert stored(inside, given, kind) == inside
    several = [[[1.0, 2.0], [3.0, 4.0]], [], None, [None]]
    assert stored(several, pa.list_(LISTS), pa.list_(VECTOR)) == several


def test_parts_of_a_struct_are_stored_by_name() -> None:
    given = pa.struct([("b", pa.string()), ("a", pa.int32())])
    kind = pa.struct([("a", pa.int64()), ("b", pa.large_string())])
    assert stored([{"b": "x", "a": 1}], given, kind) == [{"a": 1, "b": "x"}]


def test_a_value_that_the_column_cannot_hold_is_refused() -> None:
    with pytest.raises(InvalidInputError, match="Column 'v' cannot be stored"):
        stored([256], pa.int16(), pa.uint8())


def test_decimals_are_copied_to_where_lance_can_read_them() -> None:
    kind = pa.decimal128(10, 2)
    buffer = pa.py_buffer(b"\x00" * 8 + b"\x01" + b"\x00" * 15 + b"\x00" * 8)
    unaligned = pa.Array.from_buffers(kind, 1, [None, buffer.slice(8, 16)])
    if unaligned.buffers()[1].address % 16 == 0:
        unaligned = pa.Array.from_buffers(kind, 1, [None, buffer.slice(0, 16)])
    assert unaligned.buffers()[1].address % 16
    schema = pa.schema([("v", kind)])
    [made] = conversion.ToLance(iter([pa.record_batch({"v": unaligned})]), schema, {"v": "v"})
    assert made.column(0).buffers()[1].address % 16 == 0


def test_lists_that_are_all_empty_get_the_offsets_that_lance_reads() -> None:
    # As Spark 4.1 hands them over: a list's texts without any have no offsets at all.
    texts = pa.Array.from_buffers(pa.string(), 0, [None, pa.py_buffer(b""), pa.py_buffer(b"")])
    offsets = pa.py_buffer(b"\x00" * 12)
    kind = pa.list_(pa.string())
    lists = pa.Array.from_buffers(kind, 2, [None, offsets], children=[texts])
    schema = pa.schema([("v", kind)])
    [made] = conversion.ToLance(iter([pa.record_batch({"v": lists})]), schema, {"v": "v"})
    assert made.column(0).to_pylist() == [[], []]
    assert made.column(0).values.buffers()[1].size >= 4


def test_batches_without_rows_are_left_out() -> None:
    schema = pa.schema([("v", pa.string())])
    given = [batch([], pa.string()), batch(["x"], pa.string()), batch([], pa.string())]
    assert [b.num_rows for b in conversion.ToLance(iter(given), schema, {"v": "v"})] == [1]
