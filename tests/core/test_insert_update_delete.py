"""InsertIntoTable, UpdateTable, DeleteFromTable: which rows a table has then; what is refused."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path
from typing import Any

import lance
import lance_namespace as api
import pyarrow as pa
import pyarrow.compute as pc
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis_profiles import examples
from lance_namespace import errors

import lance_bridge.dataset.insert as module
from lance_bridge.dataset.rows import Rows
from lance_bridge.testing.calls import Calls
from lance_bridge.testing.concurrency import answers_only, race

from .memory_catalog import (
    CAPABILITIES,
    TABLE,
    Client,
    MemoryNamespace,
    MemoryServer,
    at_change,
    raiser,
)
from .table_data import dataset, directory, ipc, make, place, rows, unchanged

pytestmark = [
    pytest.mark.quick,
    pytest.mark.spec(
        "operations.md#insertintotable",
        "operations.md#deletefromtable",
        "operations.md#updatetable",
    ),
]

KEPT = pa.schema([pa.field("id", pa.int64(), nullable=False), ("word", pa.string())])
OLD = pa.table({"id": [1, 2], "word": ["a", None]}, schema=KEPT)
NEW = pa.table({"id": [3], "word": ["c"]}, schema=KEPT)
BEFORE = pa.table(
    {"id": [1, 2, 3], "n": [1, 0, None], "word": ["a", "b", "7"], "s": [{"x": 1}, {"x": 2}, None]}
)


def insert(namespace: MemoryNamespace, data: Any, **more: Any) -> api.InsertIntoTableResponse:
    data = ipc(data) if isinstance(data, pa.Table) else data
    return namespace.insert_into_table(api.InsertIntoTableRequest(id=TABLE, **more), data)


# -- modes -----------------------------------------------------------------------------------------


def test_an_unknown_mode_is_invalid_input(namespace: MemoryNamespace) -> None:
    make(namespace, OLD)
    with unchanged(namespace, errors.InvalidInputError, "Replace.*Append, Overwrite"):
        insert(namespace, NEW, mode="Replace")


def test_the_answer_is_that_of_pylances_directory_namespace(
    namespace: MemoryNamespace, tmp_path: Path
) -> None:
    pylance = directory(tmp_path / "pylance")
    make(namespace, OLD)
    pylance.create_table(api.CreateTableRequest(id=["t"]), ipc(OLD))
    for mode in ("append", "overwrite", "append"):
        ours = insert(namespace, NEW, mode=mode)
        request = api.InsertIntoTableRequest(id=["t"], mode=mode)
        expected = pylance.insert_into_table(request, ipc(NEW))
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
    namespace: MemoryNamespace, mode: str, given: pa.Table, stored: dict[str, Any]
) -> None:
    make(namespace, OLD)
    insert(namespace, given, mode=mode)
    assert stored in rows(namespace)
    assert dataset(namespace).schema == KEPT


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
    namespace: MemoryNamespace, mode: str, given: pa.Table, named: str
) -> None:
    make(namespace, OLD)
    with unchanged(namespace, errors.TableSchemaValidationError, named):
        insert(namespace, given, mode=mode)


@pytest.mark.parametrize("mode", ["append", "overwrite"])
def test_a_vector_of_another_dimension_does_not_fit(namespace: MemoryNamespace, mode: str) -> None:
    make(namespace, pa.table({"v": pa.array([[1.0, 2.0]], pa.list_(pa.float32(), 2))}))
    with unchanged(namespace, errors.TableSchemaValidationError, "fixed_size_list"):
        insert(
            namespace, pa.table({"v": pa.array([[1.0] * 3], pa.list_(pa.float32(), 3))}), mode=mode
        )


@pytest.mark.parametrize("mode", ["append", "overwrite"])
def test_fields_of_a_struct_may_be_left_out(namespace: MemoryNamespace, mode: str) -> None:
    make(namespace, pa.table({"s": [{"x": 1, "y": "a"}]}))
    insert(namespace, pa.table({"s": [{"y": "b"}, None]}), mode=mode)
    found = [row["s"] for row in rows(namespace)]
    assert {"x": None, "y": "b"} in found
    assert None in found


def test_a_null_in_a_nested_field_that_forbids_it_is_refused(namespace: MemoryNamespace) -> None:
    strict = pa.schema([("s", pa.struct([pa.field("x", pa.int64(), nullable=False)]))])
    make(namespace, pa.table({"s": [{"x": 1}]}, schema=strict))
    with unchanged(namespace, errors.TableSchemaValidationError, "'s'"):
        insert(namespace, pa.table({"s": [{"x": None}]}))


def test_overwrite_keeps_what_lance_keeps_of_the_table(namespace: MemoryNamespace) -> None:
    make(namespace, OLD.replace_schema_metadata({"owner": "Ines"}))
    dataset(namespace).update_config({"lance.auto_cleanup.interval": "7"})
    insert(namespace, NEW, mode="overwrite")
    assert dataset(namespace).schema.metadata == {b"owner": b"Ines"}
    assert dataset(namespace).config()["lance.auto_cleanup.interval"] == "7"


# -- declared tables -------------------------------------------------------------------------------


@pytest.mark.parametrize("mode", ["append", "overwrite"])
def test_the_first_rows_of_a_declared_table_make_its_first_version(
    namespace: MemoryNamespace, mode: str
) -> None:
    namespace.declare_table(api.DeclareTableRequest(id=TABLE))
    answer = insert(namespace, NEW, mode=mode)
    assert (answer.num_inserted_rows, answer.version) == (1, 1)
    assert dataset(namespace).to_table() == NEW


def test_bad_rows_leave_a_declared_table_without_data(namespace: MemoryNamespace) -> None:
    namespace.declare_table(api.DeclareTableRequest(id=TABLE))
    for bad in (ipc(NEW)[:-9], iter([*NEW.to_batches(), "no batch"])):
        with pytest.raises(errors.InvalidInputError):
            insert(namespace, bad)
    with pytest.raises(errors.InvalidInputError, match="cannot store"):
        insert(namespace, pa.table({"a": pa.array([1], pa.decimal32(5, 2))}))
    described = namespace.describe_table(api.DescribeTableRequest(id=TABLE, check_declared=True))
    assert described.is_only_declared
    insert(namespace, NEW)
    assert dataset(namespace).to_table() == NEW


@pytest.mark.parametrize("again", [True, False], ids=["rows in memory", "rows read once"])
def test_where_another_writer_makes_the_first_version_no_rows_are_lost(
    namespace: MemoryNamespace, monkeypatch: pytest.MonkeyPatch, again: bool
) -> None:
    namespace.declare_table(api.DeclareTableRequest(id=TABLE))
    require_storable = Rows.require_storable

    def other_is_first(given: Rows) -> None:
        require_storable(given)
        if not os.path.exists(f"{place(namespace)}/_versions"):
            lance.write_dataset(OLD, place(namespace))

    monkeypatch.setattr(Rows, "require_storable", other_is_first)
    if again:
        assert insert(namespace, NEW).version == 2
        assert dataset(namespace).to_table() == pa.concat_tables([OLD, NEW])
    else:
        with pytest.raises(errors.ConcurrentModificationError, match="Orders"):
            insert(namespace, iter(NEW.to_batches()))
        assert dataset(namespace).to_table() == OLD


# -- writers at the same time ----------------------------------------------------------------------


def batches_with_rival(namespace: MemoryNamespace, first: pa.Table, other: pa.Table) -> Any:
    """Yield batches; another client inserts before they end."""
    yield from first.to_batches()
    insert(namespace, other)


@pytest.mark.parametrize("version_read", [1, 2])
def test_an_append_that_took_long_is_moved_onto_the_latest_version(
    namespace: MemoryNamespace, monkeypatch: pytest.MonkeyPatch, version_read: int
) -> None:
    """Lance then reads no version in between."""
    monkeypatch.setattr(module, "_STALE_SECONDS", 0.0 if version_read == 2 else 60.0)
    make(namespace, OLD)
    insert(namespace, batches_with_rival(namespace, NEW, NEW))
    transaction = dataset(namespace).read_transaction(3)
    assert transaction is not None
    assert transaction.read_version == version_read
    assert dataset(namespace).count_rows() == 4


@pytest.mark.parametrize("stale_seconds", [0.0, 60.0])
@pytest.mark.parametrize("other", [pa.table({"other": [1]}), OLD])
def test_an_append_to_what_was_overwritten_meanwhile_is_a_concurrent_modification(
    namespace: MemoryNamespace,
    monkeypatch: pytest.MonkeyPatch,
    other: pa.Table,
    stale_seconds: float,
) -> None:
    monkeypatch.setattr(module, "_STALE_SECONDS", stale_seconds)
    make(namespace, OLD)

    def overwritten() -> Any:
        yield from NEW.to_batches()
        lance.write_dataset(other, place(namespace), mode="overwrite")

    with pytest.raises(errors.ConcurrentModificationError, match="Orders"):
        insert(namespace, overwritten())
    assert dataset(namespace).to_table() == other


# -- branches and tables ---------------------------------------------------------------------------


def test_a_failure_of_storage_is_service_unavailable_and_changes_nothing(
    namespace: MemoryNamespace,
) -> None:
    make(namespace, OLD)
    data, aside = os.path.join(place(namespace), "data"), os.path.join(place(namespace), "aside")

    def while_storage_fails() -> Any:
        os.rename(data, aside)
        with open(data, "w"):
            yield from NEW.to_batches()

    with pytest.raises(errors.ServiceUnavailableError, match="Orders"):
        insert(namespace, while_storage_fails())
    os.remove(data)
    os.rename(aside, data)
    assert (dataset(namespace).version, dataset(namespace).to_table()) == (1, OLD)


# -- updates and deletions -------------------------------------------------------------------------


def update(
    namespace: MemoryNamespace, *updates: tuple[str, str], **more: Any
) -> api.UpdateTableResponse:
    pairs = [list(pair) for pair in updates]
    return namespace.update_table(api.UpdateTableRequest(id=TABLE, updates=pairs, **more))


def delete(namespace: MemoryNamespace, predicate: str, **more: Any) -> api.DeleteFromTableResponse:
    request = api.DeleteFromTableRequest(id=TABLE, predicate=predicate, **more)
    return namespace.delete_from_table(request)


def column(client: Client, name: str) -> list[Any]:
    return [row[name] for row in sorted(rows(client), key=lambda row: row["id"])]


@pytest.fixture
def filled(namespace: MemoryNamespace) -> MemoryNamespace:
    make(namespace, BEFORE)
    return namespace


# -- predicates ------------------------------------------------------------------------------------

BAD_PREDICATES = ["id", "id + 1", "id = 'x'", "1 / (n - n) > 0", "cast(word as int) = 7"]
"""`test_expressions_everywhere` has what is no expression."""


@pytest.mark.parametrize("predicate", BAD_PREDICATES)
def test_a_bad_predicate_is_invalid_input_and_changes_nothing(
    filled: MemoryNamespace, predicate: str
) -> None:
    with unchanged(filled, errors.InvalidInputError):
        delete(filled, predicate)
    with unchanged(filled, errors.InvalidInputError):
        update(filled, ("n", "1"), predicate=predicate)


VALUES = st.lists(st.one_of(st.none(), st.integers(-3, 3)), max_size=12)


@examples(25, share_fixtures=True)
@given(values=VALUES, operator=st.sampled_from(["<", ">=", "=", "!="]), bound=st.integers(-3, 3))
def test_delete_and_update_agree_with_pyarrow(
    namespace: MemoryNamespace, values: list[int | None], operator: str, bound: int
) -> None:
    table = pa.table({"n": pa.array(values, pa.int64())})
    if not namespace.server.tables:
        make(namespace, table)
    lance.write_dataset(table, place(namespace), mode="overwrite")
    functions = {"<": pc.less, ">=": pc.greater_equal, "=": pc.equal, "!=": pc.not_equal}
    mask = pc.fill_null(functions[operator](table["n"], bound), False)
    predicate = f"n {operator} {bound}"
    answer = update(namespace, ("n", "n + 100"), predicate=predicate)
    assert answer.updated_rows == pc.sum(mask).as_py() or not values
    changed = pc.if_else(mask, pc.add(table["n"], 100), table["n"])
    assert sorted(rows(namespace), key=repr) == sorted(
        pa.table({"n": changed}).to_pylist(), key=repr
    )
    lance.write_dataset(table, place(namespace), mode="overwrite")
    delete(namespace, predicate)
    kept = table.filter(pc.invert(mask)).to_pylist()
    assert sorted(rows(namespace), key=repr) == sorted(kept, key=repr)


def test_the_answers_are_those_of_pylances_directory_namespace(
    namespace: MemoryNamespace, tmp_path: Path
) -> None:
    pylance = directory(tmp_path / "pylance")
    make(namespace, BEFORE)
    pylance.create_table(api.CreateTableRequest(id=["t"]), ipc(BEFORE))
    ours = update(namespace, ("n", "n + 1"), predicate="id < 3")
    pairs = [["n", "n + 1"]]
    request = api.UpdateTableRequest(id=["t"], updates=pairs, predicate="id < 3")
    expected = pylance.update_table(request)
    assert (ours.updated_rows, ours.version) == (expected.updated_rows, expected.version)
    deleted = pylance.delete_from_table(api.DeleteFromTableRequest(id=["t"], predicate="n = 2"))
    assert delete(namespace, "n = 2").version == deleted.version
    left = lance.dataset(str(tmp_path / "pylance" / "t.lance")).to_table().to_pylist()
    assert rows(namespace) == sorted(left, key=repr)


# -- branches, declared tables, other writers, storage ---------------------------------------------


def test_threads_that_update_lose_nothing(filled: MemoryNamespace, server: MemoryServer) -> None:
    def work(_: int) -> None:
        for _ in range(4):
            update(filled, ("id", "id + 10"), predicate="word = 'a'")

    answers_only(race(work, 3))
    assert column(server, "id") == [2, 3, 121]


def test_a_failure_of_storage_is_service_unavailable(filled: MemoryNamespace) -> None:
    data = os.path.join(place(filled), "data")
    for name in os.listdir(data):
        os.remove(os.path.join(data, name))
    with pytest.raises(errors.ServiceUnavailableError, match="Orders"):
        delete(filled, "id = 1")
    with pytest.raises(errors.ServiceUnavailableError, match="Orders"):
        update(filled, ("n", "id"))
    assert dataset(filled).version == 1


# -- expressions ----------------------------------------------------------------------------------


def test_several_columns_are_updated_from_their_own_values_and_others(
    filled: MemoryNamespace,
) -> None:
    update(filled, ("id", "id + 1"), ("n", "s.x + 10"), ("word", "'z'"))
    assert column(filled, "id") == [2, 3, 4]
    assert column(filled, "n") == [11, 12, None]
    assert column(filled, "word") == ["z"] * 3


def test_an_expression_that_reads_another_updated_column_is_unsupported_by_name(
    filled: MemoryNamespace,
) -> None:
    """Lance would take the old value or the new one, as it happens."""
    for expression in ("id", "ID + 1", "n + coalesce(`id`, 1)"):
        with unchanged(filled, errors.UnsupportedOperationError, "'n'.* id"):
            update(filled, ("id", "id + 1"), ("n", expression))


@pytest.mark.parametrize(
    ("pair", "expected"),
    [
        (("n", "null"), [None] * 3),
        (("n", "3.7"), [3] * 3),
        (("n", "'5'"), [5] * 3),
        (("word", "id"), ["1", "2", "3"]),
        (("`word`", "upper(word)"), ["A", "B", "7"]),
        (("s", "named_struct('x', id)"), [{"x": 1}, {"x": 2}, {"x": 3}]),
        (("n", "s.x"), [1, 2, None]),
        (("n", "id -- why"), [1, 2, 3]),
    ],
    ids=str,
)
def test_an_expression_may_be_of_any_type_that_can_be_cast(
    filled: MemoryNamespace, pair: tuple[str, str], expected: list[Any]
) -> None:
    update(filled, pair)
    assert column(filled, pair[0].strip("`")) == expected


def test_a_vector_can_be_set_to_one_of_its_dimension_only(namespace: MemoryNamespace) -> None:
    kind = pa.list_(pa.float32(), 2)
    make(namespace, pa.table({"id": [1], "v": pa.array([[0.0, 0.0]], kind)}))
    update(namespace, ("v", "[1.5, 2.5]"))
    assert column(namespace, "v") == [[1.5, 2.5]]
    with unchanged(namespace, errors.InvalidInputError):
        update(namespace, ("v", "[1.5]"))


BAD_EXPRESSIONS = ["sum(id)", "300000000000000000000", "'no number'"]
"""Beside what `test_expressions_everywhere` has."""
FAILING_EXPRESSIONS = ["1 / n", "word", "cast(word as int)"]
"""They fail on a row."""
BAD_UPDATES: list[list[tuple[str, str]]] = [
    [],
    [("n", "1"), ("n", "2")],
    [("n", "1"), ("`n`", "2")],
    [("n.", "1")],
    [("", "1")],
    *([("word", "'z'"), ("n", expression)] for expression in BAD_EXPRESSIONS),
    *([("n", expression)] for expression in FAILING_EXPRESSIONS),
]


def test_what_cannot_be_updated_is_refused_and_nothing_changes(filled: MemoryNamespace) -> None:
    for updates in BAD_UPDATES:
        with unchanged(filled, errors.InvalidInputError):
            update(filled, *updates)
    for path in ("nope", "ID", "_rowid", "s.nope", "s.x.y", "x"):
        with unchanged(filled, errors.TableColumnNotFoundError, path):
            update(filled, (path, "1"))
    with unchanged(filled, errors.UnsupportedOperationError, r"s\.x.*named_struct"):
        update(filled, ("s.x", "1"))
    with pytest.raises(ValueError, match="Nested"):  # should Lance learn it: allow it
        dataset(filled).update({"s.x": "1"})


def test_a_null_for_a_column_that_forbids_it_is_invalid_input(namespace: MemoryNamespace) -> None:
    strict = pa.schema([pa.field("id", pa.int64(), nullable=False)])
    make(namespace, pa.table({"id": [1]}, schema=strict))
    with unchanged(namespace, errors.InvalidInputError):
        update(namespace, ("id", "null"))


# -- properties of an update -----------------------------------------------------------------------


def test_properties_are_added_to_those_of_the_table(namespace: MemoryNamespace) -> None:
    namespace.server.capabilities = replace(CAPABILITIES, no_alter="")
    Calls(namespace).create_table(TABLE, BEFORE, properties={"a": "1", "b": "2"})
    answer = update(namespace, ("n", "1"), properties={"b": "3", "c": "4"})
    assert answer.properties == {"a": "1", "b": "3", "c": "4"}
    described = namespace.describe_table(api.DescribeTableRequest(id=TABLE))
    assert described.properties == answer.properties


def test_properties_that_others_set_meanwhile_are_kept(namespace: MemoryNamespace) -> None:
    """The entry of a managed table is read again, since commits change it."""
    namespace.server.capabilities = replace(CAPABILITIES, no_alter="")
    Calls(namespace).create_table(TABLE, BEFORE, properties={"managed_by": "impl", "a": "1"})

    def others_set() -> None:
        found = namespace.server.tables[tuple(TABLE)]
        changed = found.with_properties({**found.properties, "a": "2", "b": "2"})
        namespace.server.tables[tuple(TABLE)] = changed

    at_change(namespace, "alter_table", "after", others_set)
    answer = update(namespace, ("n", "1"), properties={"c": "3"})
    assert {**(answer.properties or {}), "managed_by": ""} == {
        "managed_by": "", "a": "2", "b": "2", "c": "3"
    }  # fmt: skip


def test_properties_that_cannot_change_are_refused_before_the_rows_are_updated(
    filled: MemoryNamespace,
) -> None:
    with unchanged(filled, errors.UnsupportedOperationError, "Properties"):
        update(filled, ("n", "1"), properties={"a": "1"})
    with unchanged(filled, errors.InvalidInputError, "lance_bridge"):
        update(filled, ("n", "1"), properties={"lance_bridge.id": "1"})
    assert update(filled, ("n", "1"), properties={}).properties == {}


def test_where_only_the_properties_fail_the_error_says_that_the_rows_are_updated(
    namespace: MemoryNamespace, server: MemoryServer
) -> None:
    server.capabilities = replace(CAPABILITIES, no_alter="")
    make(namespace, BEFORE)
    at_change(server, "alter_table", "before", raiser(errors.PermissionDeniedError("not yours")))
    with pytest.raises(errors.PermissionDeniedError, match=r"updated, as version 2.*not yours"):
        update(namespace, ("n", "5"), properties={"a": "1"})
    assert column(server, "n") == [5] * 3
