"""Columns of nulls of any type are added by a schema, and fields of nulls to structs that exist."""

from __future__ import annotations

import base64
from typing import Any

import lance_namespace as api
import pyarrow as pa
import pytest
from lance_namespace import errors

from lance_bridge.extended_requests import ExtendedColumnsRequest, require_extensions

from .building import TABLE
from .memory_catalog import MemoryNamespace
from .table_data import ROWS, add, dataset, make, unchanged, values

pytestmark = [pytest.mark.quick, pytest.mark.spec("server.md#further-fields")]

INT = pa.int32()


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
