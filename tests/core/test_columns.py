"""Columns are found, added, altered, computed and dropped, or nothing is changed."""

from __future__ import annotations

import base64
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import lance
import lance_namespace as api
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from lance_namespace import errors

from lance_bridge.dataset import paths
from lance_bridge.dataset.expressions import columns_in
from lance_bridge.requests import ExtendedColumnsRequest, require_extensions

from .memory_catalog import TABLE, MemoryNamespace
from .table_data import (
    ROWS,
    add,
    alter,
    backfill,
    build_index,
    dataset,
    drop,
    last_transaction,
    make,
    set_field_metadata,
    typed_rows,
    unchanged,
    values,
)

pytestmark = [
    pytest.mark.quick,
    pytest.mark.spec(
        "operations.md#altertablealtercolumns",
        "operations.md#altertablebackfillcolumns",
        "operations.md#field-paths",
        "server.md#further-fields",
    ),
]

INT = pa.int32()


# -- paths ---------------------------------------------------------------------------------------

SEGMENTS = st.text(st.characters(codec="utf-8", exclude_characters="\0"), min_size=1)


@given(st.lists(SEGMENTS, min_size=1, max_size=4))
def test_a_canonical_path_is_read_back(segments: list[str]) -> None:
    assert paths.parse(paths.canonical(segments)) == tuple(segments)


@pytest.mark.parametrize(
    ("text", "segments"),
    [("a", ("a",)), ("a.b", ("a", "b")), ("`a.b`.c", ("a.b", "c")), ("`c``d`", ("c`d",))],
)
def test_a_path_is_cut_at_dots_outside_backticks(text: str, segments: tuple[str, ...]) -> None:
    assert paths.parse(text) == segments


@pytest.mark.spec("operations.md#errors-of-every-operation")
@pytest.mark.parametrize(
    "text", ["", ".", "a.", ".a", "a..b", "`a", "`a`b", "a`b`", "``", "\ud800"]
)
def test_what_is_no_path_is_invalid(text: str) -> None:
    with pytest.raises(errors.InvalidInputError):
        paths.parse(text)


def test_lance_finds_every_field_by_its_canonical_path(ns: MemoryNamespace) -> None:
    found = dataset(ns)
    columns = {column.path: column for column in paths.walk(found)}
    assert {"st.`a.b`", "st.`c``d`", "st.x", "tags.item", "vector"} < set(columns)
    for path, column in columns.items():
        field = found.lance_schema.field(path)
        assert field is not None
        assert field.id() == column.field.id()


@pytest.mark.parametrize("path", ["nope", "ID", "x", "st.nope", "st.a.b", "id.x", "i\0d"])
def test_the_error_for_a_missing_field_lists_the_fields(ns: MemoryNamespace, path: str) -> None:
    with pytest.raises(errors.TableColumnNotFoundError, match="its columns are id, text, odd"):
        drop(ns, path)
    assert dataset(ns).version == 1


# -- add -----------------------------------------------------------------------------------------


def test_columns_have_the_values_of_their_expressions(ns: MemoryNamespace) -> None:
    sources = {"twice": "id * 2", "x": "st.x", "shout": "upper(text)", "one": "1"}
    answer = add(ns, *({"name": name, "expression": sql} for name, sql in sources.items()))
    assert answer.version == dataset(ns).version == 2
    assert dataset(ns).schema.names == [*typed_rows().schema.names, *sources]
    found = {name: values(ns, name)[5] for name in sources}
    assert found == {"twice": 10, "x": 5, "shout": "WORD5 AND MORE", "one": 1}


@pytest.mark.parametrize(
    ("expression", "kind"),
    [
        ("CAST(NULL AS int)", pa.int32()),
        ("CAST(NULL AS decimal(10, 2))", pa.decimal128(10, 2)),
        ("arrow_cast(NULL, 'FixedSizeList(4, Float32)')", pa.list_(pa.float32(), 4)),
        ("arrow_cast(NULL, 'Timestamp(Microsecond, None)')", pa.timestamp("us")),
    ],
)
def test_a_column_of_nulls_has_the_type_it_is_cast_to(
    ns: MemoryNamespace, expression: str, kind: pa.DataType
) -> None:
    add(ns, {"name": "new", "expression": expression})
    assert dataset(ns).schema.field("new").type == kind
    assert values(ns, "new") == [None] * ROWS


@pytest.mark.spec("operations.md#altertableaddcolumns")
@pytest.mark.parametrize(
    "expression",
    ["", "id +", "nosuch(id)", "sum(id)", "id, text", "id FROM t", "id; drop table x", "id)",
     "$1", "?", ":x", "id as z", "1/0", "1 / (id - 5)", "CAST(text AS int)", "_rowid", "*",
     "a\0b", "\ud800"],
)  # fmt: skip
def test_an_expression_that_does_not_work_changes_nothing(
    ns: MemoryNamespace, expression: str
) -> None:
    with pytest.raises(errors.InvalidInputError):
        add(ns, {"name": "good", "expression": "id"}, {"name": "bad", "expression": expression})
    assert dataset(ns).version == 1


@pytest.mark.parametrize("expression", ["text like 'a?%'", "id -- $1", "id::int", "'$1 :x'"])
def test_what_looks_like_a_placeholder_and_is_none_works(
    ns: MemoryNamespace, expression: str
) -> None:
    assert add(ns, {"name": "new", "expression": expression}).version == 2


@pytest.mark.spec("operations.md#altertableaddcolumns")
@pytest.mark.parametrize("name", ["", "id", "a.b", "_rowid", "_distance", "a\0b", "\ud800"])
def test_a_name_that_a_column_cannot_have_changes_nothing(ns: MemoryNamespace, name: str) -> None:
    with pytest.raises(errors.InvalidInputError):
        add(ns, {"name": "good", "expression": "id"}, {"name": name, "expression": "id"})
    assert dataset(ns).version == 1


@pytest.mark.spec("operations.md#altertableaddcolumns")
@pytest.mark.parametrize("entry", [{}, {"expression": "id", "computed": "id"}])
def test_a_column_gets_its_values_in_one_way(ns: MemoryNamespace, entry: dict[str, str]) -> None:
    with pytest.raises(errors.InvalidInputError, match="either expression or computed"):
        add(ns, {"name": "new", **entry})
    with pytest.raises(errors.InvalidInputError, match="new_columns is empty"):
        add(ns)
    assert dataset(ns).version == 1


@pytest.mark.spec("operations.md#altertableaddcolumns")
def test_a_function_in_an_image_is_unsupported_by_name(ns: MemoryNamespace) -> None:
    virtual = {
        "input_columns": ["id"], "outputs": [], "image": "i", "udf": "u",
        "udf_name": "n", "udf_version": "1",
    }  # fmt: skip
    with pytest.raises(errors.UnsupportedOperationError, match="virtual_column"):
        add(ns, {"name": "new", "virtual_column": virtual})
    with pytest.raises(errors.UnsupportedOperationError, match="virtual_column"):
        alter(ns, {"path": "id", "rename": "new", "virtual_column": {"udf": "u"}})
    assert dataset(ns).version == 1


@pytest.mark.spec("operations.md#errors-of-every-operation")
def test_a_storage_that_fails_is_not_the_request_s_fault(ns: MemoryNamespace) -> None:
    found = dataset(ns)
    for file in Path(found.uri, "data").iterdir():
        file.unlink()
    with pytest.raises(errors.ServiceUnavailableError, match="no column was added"):
        add(ns, {"name": "new", "expression": "id * 2"})
    with pytest.raises(errors.ServiceUnavailableError, match="no column was altered"):
        alter(ns, {"path": "id", "data_type": {"type": "int32"}})
    with pytest.raises(errors.ServiceUnavailableError, match="no index was built"):
        build_index(ns, "id", "BTREE")


# -- alter ---------------------------------------------------------------------------------------


def test_columns_are_renamed_and_retyped_in_one_commit(ns: MemoryNamespace) -> None:
    answer = alter(
        ns,
        {"path": "id", "data_type": {"type": "int32"}, "nullable": True},
        {"path": "st.`a.b`", "rename": "y"},
        {"path": "text", "rename": "words", "data_type": {"type": "large_utf8"}},
    )
    schema = dataset(ns).schema
    assert answer.version == 2
    assert schema.field("id") == pa.field("id", pa.int32())
    assert schema.field("words").type == pa.large_string()
    assert schema.field("st").type.field(1).name == "y"
    assert values(ns, "words") == typed_rows()["text"].to_pylist()


def test_a_required_column_may_become_nullable(namespace: MemoryNamespace) -> None:
    required = pa.schema([pa.field("id", pa.int64(), nullable=False)])
    make(namespace, pa.table({"id": [1]}, schema=required))
    alter(namespace, {"path": "id", "nullable": True})
    assert dataset(namespace).schema.field("id").nullable


def test_a_type_and_no_nulls_take_two_requests(ns: MemoryNamespace) -> None:
    entries = ({"path": "id", "data_type": {"type": "int32"}}, {"path": "text", "nullable": False})
    with pytest.raises(errors.UnsupportedOperationError, match="nullable=false in one request"):
        alter(ns, *entries)
    assert dataset(ns).version == 1


def test_names_can_be_swapped(ns: MemoryNamespace) -> None:
    alter(ns, {"path": "id", "rename": "odd"}, {"path": "odd", "rename": "id"})
    assert dataset(ns).to_table()["odd"].to_pylist() == list(range(ROWS))


@pytest.mark.parametrize(
    "entries",
    [
        [],
        [{"path": "id"}],
        [{"path": "id", "rename": "text"}],
        [{"path": "id", "rename": "new"}, {"path": "text", "rename": "new"}],
        [{"path": "id", "rename": "new"}, {"path": "id", "nullable": True}],
        [{"path": "st.x", "rename": "a.b"}],
        [{"path": "id", "rename": "a.b"}],
        [{"path": "id", "rename": ""}],
        [{"path": "st.x", "rename": ""}],
        [{"path": "id", "rename": "_rowid"}],
        [{"path": "odd", "nullable": False}],
        [{"path": "id", "data_type": {"type": "int8"}}],
        [{"path": "id", "data_type": {"type": "utf8"}}],
        [{"path": "text", "data_type": {"type": "int64"}}],
        [{"path": "text", "data_type": {"type": "nonsense"}}],
        [{"path": "id", "rename": "new"}, {"path": "odd", "nullable": False}],
        [{"path": "`id", "rename": "new"}],
    ],
    ids=str,
)
def test_alterations_that_cannot_be_change_nothing(
    ns: MemoryNamespace, entries: list[dict[str, Any]]
) -> None:
    with pytest.raises(errors.InvalidInputError):
        alter(ns, *entries)
    assert dataset(ns).version == 1
    assert dataset(ns).to_table().num_rows == ROWS


def test_an_indexed_column_keeps_its_type_and_may_be_renamed(ns: MemoryNamespace) -> None:
    build_index(ns, "id", "BTREE")
    build_index(ns, "st.x", "BTREE")
    for path, name in (("id", "id_idx"), ("st.x", "st.x_idx")):
        with pytest.raises(errors.InvalidInputError, match=f"while index '{name}' is on it"):
            alter(ns, {"path": path, "data_type": {"type": "int32"}})
    alter(ns, {"path": "id", "rename": "number"})
    assert ["number"] in [index.field_names for index in dataset(ns).describe_indices()]


def test_metadata_survives_a_new_type(ns: MemoryNamespace) -> None:
    set_field_metadata(
        ns,
        {"path": "st.x", "metadata": {"unit": "mm"}},
        {"path": "odd", "metadata": {"a": "b"}},
        {"path": "id", "metadata": {"k": "v"}},
    )
    alter(
        ns,
        {"path": "id", "data_type": {"type": "int32"}, "rename": "number"},
        {"path": "st.x", "data_type": {"type": "int32"}, "rename": "y"},
    )
    schema = dataset(ns).schema
    assert schema.field("number").metadata == {b"k": b"v"}
    assert schema.field("odd").metadata == {b"a": b"b"}
    assert schema.field("st").type.field(0).metadata == {b"unit": b"mm"}
    assert schema.field("st").type.field(0).type == pa.int32()


def test_a_new_type_ends_the_extension_of_the_old_one(namespace: MemoryNamespace) -> None:
    field = pa.field("flag", pa.bool8(), metadata={"unit": "yes"})
    storage = pa.array([0, 1, None], pa.int8())
    flags = pa.ExtensionArray.from_storage(pa.bool8(), storage)
    make(namespace, pa.table([flags], schema=pa.schema([field])))
    alter(namespace, {"path": "flag", "data_type": {"type": "int16"}})
    found = dataset(namespace).schema.field("flag")
    assert (found.type, found.metadata) == (pa.int16(), {b"unit": b"yes"})
    assert values(namespace, "flag") == [0, 1, None]


# -- drop ----------------------------------------------------------------------------------------


def test_columns_go_with_their_indices(ns: MemoryNamespace) -> None:
    build_index(ns, "id", "BTREE")
    answer = drop(ns, "id", "st.`a.b`")
    found = dataset(ns)
    assert answer.version == found.version == 3
    assert answer.transaction_id == last_transaction(ns)
    assert found.schema.names == ["text", "odd", "vector", "tags", "st"]
    assert [field.name for field in found.schema.field("st").type] == ["x", "c`d"]
    assert found.describe_indices() == []


def test_a_struct_goes_with_its_last_field_and_a_field_with_its_struct(ns: MemoryNamespace) -> None:
    drop(ns, "st.x", "st.`a.b`", "st.`c``d`")
    assert "st" not in dataset(ns).schema.names
    drop(ns, "tags", "tags.item")
    drop(ns, "odd", "id")
    assert "tags" not in dataset(ns).schema.names


@pytest.mark.spec("operations.md#altertabledropcolumns")
@pytest.mark.parametrize(
    "columns",
    [(), ("id", "id"), ("id", "`id`"), ("id", "text", "odd", "vector", "tags", "st"),
     ("id", "text", "odd", "vector", "tags.item", "st.x", "st.`a.b`", "st.`c``d`")],
)  # fmt: skip
def test_drops_that_cannot_be_change_nothing(ns: MemoryNamespace, columns: tuple[str, ...]) -> None:
    with pytest.raises(errors.InvalidInputError):
        drop(ns, *columns)
    assert dataset(ns).version == 1


# -- computed columns: declared with an expression, filled by a backfill, guarded in between ------

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
def computed(ns: MemoryNamespace) -> MemoryNamespace:
    """A namespace with a table that has a column ``twice``."""
    add(ns, {"name": "twice", "computed": "id * 2"})
    return ns


def test_a_computed_column_is_null_and_keeps_its_expression(computed: MemoryNamespace) -> None:
    field = dataset(computed).schema.field("twice")
    assert (field.type, field.nullable) == (pa.int64(), True)
    metadata = {k.decode(): v.decode() for k, v in field.metadata.items()}
    assert json.loads(metadata.pop("computed_column.inputs")) == ["id"]
    assert metadata == {
        "computed_column": "true",
        "computed_column.kind": "sql",
        "computed_column.expression": "id * 2",
    }
    assert values(computed, "twice") == [None] * ROWS


def test_where_fills_those_rows_and_leaves_the_others(computed: MemoryNamespace) -> None:
    backfill(computed, "twice", where="id < 5")
    backfill(computed, "twice", where="id >= 3 and id < 8")
    assert values(computed, "twice") == [i * 2 if i < 8 else None for i in range(ROWS)]
    assert backfill(computed, "twice", where="id < 0")


def test_where_leaves_rows_null_whose_expression_never_is(namespace: MemoryNamespace) -> None:
    ids = pa.schema([pa.field("id", pa.int64(), nullable=False)])
    make(namespace, pa.table({"id": [1, 2, 3]}, schema=ids))
    add(namespace, {"name": "double", "computed": "id * 2"})
    backfill(namespace, "double", where="id < 3")
    assert values(namespace, "double") == [2, 4, None]


def test_rows_that_come_later_wait_for_the_next_backfill(computed: MemoryNamespace) -> None:
    backfill(computed, "twice")
    uri = dataset(computed).uri
    lance.dataset(uri).delete("id = 7")
    late = typed_rows(2).set_column(0, "id", pa.array([1000, 1001], pa.int64()))
    lance.write_dataset(late, uri, mode="append")
    assert values(computed, "twice")[-2:] == [None, None]
    backfill(computed, "twice", where="twice is null")
    assert values(computed, "twice")[-2:] == [2000, 2002]
    assert len(values(computed, "twice")) == ROWS + 1


def test_indices_stay_right(computed: MemoryNamespace) -> None:
    build_index(computed, "id", "BTREE")
    build_index(computed, "twice", "BTREE")
    backfill(computed, "twice")
    found = dataset(computed)
    covered = {index.name: index.num_rows_indexed for index in found.describe_indices()}
    assert covered["id_idx"] == ROWS
    assert found.to_table(filter="twice = 14")["id"].to_pylist() == [7]
    assert found.to_table(filter="id = 7")["twice"].to_pylist() == [14]


def test_a_constant_and_a_quoted_name_can_be_computed(computed: MemoryNamespace) -> None:
    add(
        computed, {"name": "one", "computed": "1"}, {"name": "length", "computed": "length(`text`)"}
    )
    backfill(computed, "one")
    backfill(computed, "length")
    assert values(computed, "one") == [1] * ROWS
    assert values(computed, "length") == [len("word0 and more")] * ROWS


@pytest.mark.parametrize("name", sorted(ENGINE_OPTIONS))
def test_options_of_a_compute_engine_are_unsupported_by_name(
    computed: MemoryNamespace, name: str
) -> None:
    with pytest.raises(errors.UnsupportedOperationError, match=f"^{name} "):
        backfill(computed, "twice", **{name: ENGINE_OPTIONS[name]})
    assert dataset(computed).version == 2


def test_every_field_of_the_request_is_honoured_or_an_engine_s_option() -> None:
    honoured = {"identity", "context", "id", "branch", "column", "where"}
    fields = set(api.AlterTableBackfillColumnsRequest.model_fields)
    assert fields == honoured | set(ENGINE_OPTIONS)


def test_only_computed_columns_are_filled(computed: MemoryNamespace) -> None:
    with pytest.raises(errors.InvalidInputError, match="'text' is not computed"):
        backfill(computed, "text")
    with pytest.raises(errors.TableColumnNotFoundError, match="nope"):
        backfill(computed, "nope")
    dataset(computed).update_field_metadata({"twice": {"computed_column.kind": "function"}})
    with pytest.raises(errors.UnsupportedOperationError, match="by 'function'"):
        backfill(computed, "twice")


@pytest.mark.parametrize("where", ["1 / (id - 5) > 0", "CAST(text AS int) = 7"])
def test_a_where_that_fails_on_a_row_fills_nothing(computed: MemoryNamespace, where: str) -> None:
    with pytest.raises(errors.InvalidInputError, match="'twice' was not filled"):
        backfill(computed, "twice", where=where)
    assert dataset(computed).version == 2


def test_an_expression_that_fails_on_a_row_fills_nothing(computed: MemoryNamespace) -> None:
    add(computed, {"name": "bad", "computed": "10 / (id - 5)"})
    with pytest.raises(errors.InvalidInputError, match="Divide by zero"):
        backfill(computed, "bad")
    assert values(computed, "bad") == [None] * ROWS


def test_an_expression_that_has_another_type_now_fills_nothing(computed: MemoryNamespace) -> None:
    add(computed, {"name": "same", "computed": "id"})
    retyped: Any = {"path": "id", "data_type": pa.int32()}
    dataset(computed).alter_columns(retyped)
    with pytest.raises(errors.InvalidInputError, match="has type int32, which is not the column"):
        backfill(computed, "same")
    assert values(computed, "same") == [None] * ROWS


@pytest.mark.spec("operations.md#altertablealtercolumns", "operations.md#altertabledropcolumns")
def test_what_a_computed_column_is_computed_from_stays(computed: MemoryNamespace) -> None:
    changes: list[Callable[[], object]] = [
        lambda: alter(computed, {"path": "id", "rename": "number"}),
        lambda: alter(computed, {"path": "id", "data_type": {"type": "int32"}}),
        lambda: drop(computed, "id"),
    ]
    for change in changes:
        with pytest.raises(errors.InvalidInputError, match="drop that column first"):
            change()
    assert alter(computed, {"path": "id", "nullable": False}).version == 3
    assert drop(computed, "id", "twice").version == 4


@pytest.mark.spec("operations.md#altertablealtercolumns", "operations.md#updatefieldmetadata")
def test_how_a_column_is_computed_cannot_be_edited(computed: MemoryNamespace) -> None:
    for entry in (
        {"metadata": {"computed_column.expression": "id * 3"}},
        {"metadata": {"computed_column": None}},
        {"metadata": {}, "replace": True},
    ):
        with pytest.raises(errors.InvalidInputError, match="computed"):
            set_field_metadata(computed, {"path": "twice", **entry})
    with pytest.raises(errors.InvalidInputError, match="is computed"):
        alter(computed, {"path": "twice", "data_type": {"type": "int32"}})
    assert set_field_metadata(computed, {"path": "twice", "metadata": {"unit": "mm"}}).version == 3


@pytest.mark.spec("operations.md#altertablealtercolumns")
def test_a_computed_column_is_renamed_and_what_it_reads_stays(computed: MemoryNamespace) -> None:
    swap = ({"path": "id", "rename": "odd"}, {"path": "odd", "rename": "id"})
    with pytest.raises(errors.InvalidInputError, match="'id' is read by computed column 'twice'"):
        alter(computed, *swap, {"path": "twice", "rename": "double"})
    assert dataset(computed).version == 2
    assert alter(computed, {"path": "twice", "rename": "double"}).version == 3
    backfill(computed, "double")
    assert values(computed, "double") == [i * 2 for i in range(ROWS)]


@pytest.mark.spec("operations.md#altertablealtercolumns")
@pytest.mark.parametrize("change", [{"rename": "z"}, {"data_type": {"type": "int32"}}], ids=str)
def test_a_field_of_a_computed_struct_keeps_its_name_and_type(
    computed: MemoryNamespace, change: dict[str, Any]
) -> None:
    add(computed, {"name": "pair", "computed": "named_struct('x', id, 'y', id)"})
    with pytest.raises(errors.InvalidInputError, match="'pair' is computed"):
        alter(computed, {"path": "pair.x", **change})
    assert dataset(computed).version == 3
    alter(computed, {"path": "pair", "rename": "both"})
    backfill(computed, "both")
    assert values(computed, "both")[1] == {"x": 1, "y": 1}


@pytest.mark.spec("operations.md#altertableaddcolumns")
def test_expressions_and_computed_columns_take_two_requests(computed: MemoryNamespace) -> None:
    with pytest.raises(errors.UnsupportedOperationError, match="two requests"):
        add(computed, {"name": "a", "expression": "id"}, {"name": "b", "computed": "id"})
    assert dataset(computed).version == 2


@given(st.sets(st.sampled_from(["id", "text", "we ird", "c`d", "ük"]), min_size=1))
def test_the_columns_that_an_expression_reads_are_found(names: set[str]) -> None:
    quoted = ["`" + name.replace("`", "``") + "`" for name in sorted(names)]
    expression = f"concat({', '.join(quoted)}, 'other') -- other"
    everything = ["id", "text", "we ird", "c`d", "ük", "other", "concat"]
    assert columns_in(expression, everything) == sorted(names)


# -- columns of nulls ------------------------------------------------------------------------------


def text_of(*fields: pa.Field) -> str:
    """Return a schema as a request has it."""
    return base64.b64encode(pa.schema(fields).serialize()).decode()


def add_nulls(ns: MemoryNamespace, *fields: pa.Field) -> Any:
    request = ExtendedColumnsRequest(id=TABLE, arrow_schema=text_of(*fields))
    return ns.alter_table_add_columns(request)


def struct(*names: str, kind: pa.DataType = INT, **options: Any) -> pa.DataType:
    return pa.struct([pa.field(name, kind, **options) for name in names])


@pytest.mark.parametrize(
    "field",
    [
        pa.field("new", pa.uuid()),
        pa.field("new", pa.json_()),
        pa.field("new", pa.map_(pa.string(), pa.int32())),
        pa.field("new", pa.binary(4)),
        pa.field("new", pa.large_list(pa.field("element", INT))),
        pa.field("new", struct("a", nullable=False)),
        pa.field("new", INT, metadata={"unit": "m"}),
        pa.field("new", pa.dictionary(pa.int8(), pa.string())),
    ],
    ids=lambda field: str(field.type),
)
def test_a_column_of_nulls_has_the_type_of_its_field(ns: MemoryNamespace, field: pa.Field) -> None:
    assert add_nulls(ns, field, pa.field("more", INT)).version == 2
    found = dataset(ns).schema.field("new")
    assert (found.type, found.metadata or None) == (field.type, field.metadata)
    assert values(ns, "new") == values(ns, "more") == [None] * ROWS


def test_a_struct_gets_the_fields_that_it_lacks(namespace: MemoryNamespace) -> None:
    inner = [{"a": 1, "in": [{"b": 2}]}, None]
    make(namespace, pa.table({"id": [1, 2], "s": inner}))
    inside = pa.field("in", pa.list_(struct("c", kind=pa.uuid())))
    add_nulls(namespace, pa.field("s", pa.struct([inside, pa.field("d", INT)])))
    found: dict[str, Any] = {"a": 1, "in": [{"b": 2, "c": None}], "d": None}
    assert values(namespace, "s") == [found, None]
    assert dataset(namespace).version == 2


@pytest.mark.parametrize(
    ("field", "words"),
    [
        (pa.field("x", INT, nullable=False), "'x' may not be null"),
        (pa.field("id", pa.int64()), "'id' exists already"),
        (pa.field("st", INT), "'st' exists already"),
        (pa.field("st", struct("x", kind=pa.int64())), "'st.x' exists already"),
        (pa.field("st", struct("z", nullable=False)), "'st.z' must be nullable"),
        (pa.field("st", struct("z", "z")), "'st.z' is named twice"),
        (pa.field("st", struct("")), "it is empty"),
        (pa.field("a.b", INT), "dots are for"),
        (pa.field("_rowid", INT), "Lance itself"),
        (pa.field("x", pa.month_day_nano_interval()), "column 'x' of type month_day_nano"),
    ],
)
def test_a_schema_that_cannot_be_added_changes_nothing(
    ns: MemoryNamespace, field: pa.Field, words: str
) -> None:
    with unchanged(ns, errors.InvalidInputError, words):
        add_nulls(ns, field)


def test_a_column_is_named_once(ns: MemoryNamespace) -> None:
    with unchanged(ns, errors.InvalidInputError, "'x' is named twice"):
        add_nulls(ns, pa.field("x", INT), pa.field("x", INT))


def test_a_computed_struct_gets_no_field(ns: MemoryNamespace) -> None:
    add(ns, {"name": "made", "computed": "named_struct('a', id)"})
    with unchanged(ns, errors.InvalidInputError, "'made' is computed"):
        add_nulls(ns, pa.field("made", struct("b")))


@pytest.mark.parametrize("text", ["", "AAAA", "not base64", text_of()])
def test_what_is_no_schema_is_invalid(ns: MemoryNamespace, text: str) -> None:
    with unchanged(ns, errors.InvalidInputError, "arrow_schema is"):
        ns.alter_table_add_columns(ExtendedColumnsRequest(id=TABLE, arrow_schema=text))


def test_a_catalog_that_ignores_the_schema_needs_expressions() -> None:
    class Foreign(api.LanceNamespace):
        def namespace_id(self) -> str:
            return "foreign"

    request = ExtendedColumnsRequest(id=TABLE, arrow_schema=text_of(pa.field("x", pa.uuid())))
    with pytest.raises(errors.UnsupportedOperationError, match="give them expressions"):
        require_extensions(Foreign(), request)
    entry = {"name": "x", "expression": "arrow_cast(NULL, 'Int32')"}
    fields = {**request.model_dump(), "new_columns": [entry]}
    require_extensions(Foreign(), ExtendedColumnsRequest.model_validate(fields))
