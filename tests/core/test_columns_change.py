"""Columns are found by their paths, added, altered and dropped, or nothing is changed."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import lance
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from lance_namespace import errors

from lance_bridge.dataset import paths

from .evolving import (
    ROWS,
    add,
    alter,
    build_index,
    create_table,
    dataset,
    drop,
    last_transaction,
    rows,
    set_field_metadata,
    values,
)
from .memory_catalog import MemoryNamespace

pytestmark = [
    pytest.mark.quick,
    pytest.mark.spec("operations.md#altertablealtercolumns", "operations.md#field-paths"),
]

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
    assert dataset(ns).schema.names == [*rows().schema.names, *sources]
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


@pytest.mark.spec("operations.md#altertableaddcolumns")
def test_a_commit_of_another_writer_in_between_is_a_concurrent_modification(
    ns: MemoryNamespace, monkeypatch: pytest.MonkeyPatch
) -> None:
    behind = lance.dataset
    stale = dataset(ns)
    lance.write_dataset(rows(1), stale.uri, mode="append")
    monkeypatch.setattr(lance, "dataset", lambda *_, **__: behind(stale.uri, version=1))
    with pytest.raises(errors.ConcurrentModificationError, match="modified concurrently"):
        add(ns, {"name": "new", "expression": "id"})


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
    assert values(ns, "words") == rows()["text"].to_pylist()


def test_a_required_column_may_become_nullable(namespace: MemoryNamespace) -> None:
    required = pa.schema([pa.field("id", pa.int64(), nullable=False)])
    create_table(namespace, pa.table({"id": [1]}, schema=required))
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
    create_table(namespace, pa.table([flags], schema=pa.schema([field])))
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
