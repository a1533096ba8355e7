"""Metadata of the schema and of fields is changed in one commit, or not at all."""

from __future__ import annotations

from typing import Any

import lance_namespace as api
import pyarrow as pa
import pytest
from lance_namespace import errors

from .building import TABLE
from .evolving import create_table, dataset, last_transaction, rows, set_field_metadata
from .memory_catalog import MemoryNamespace

pytestmark = pytest.mark.quick


def set_schema_metadata(
    ns: MemoryNamespace, metadata: dict[str, str] | None, **more: Any
) -> api.UpdateTableSchemaMetadataResponse:
    request = api.UpdateTableSchemaMetadataRequest(id=TABLE, metadata=metadata, **more)
    return ns.update_table_schema_metadata(request)


# -- of the schema -------------------------------------------------------------------------------


def test_schema_metadata_is_replaced_as_the_specification_says(ns: MemoryNamespace) -> None:
    set_schema_metadata(ns, {"made by": "test", "ü": ""})
    answer = set_schema_metadata(ns, {"other": "1"})
    assert answer.metadata == {"other": "1"}
    assert answer.transaction_id == last_transaction(ns)
    assert dataset(ns).schema.metadata == {b"other": b"1"}
    assert set_schema_metadata(ns, {}).metadata == {}
    assert not dataset(ns).schema.metadata


@pytest.mark.spec(
    "operations.md#errors-of-every-operation", "operations.md#updatetableschemametadata"
)
@pytest.mark.parametrize("metadata", [None, {"a\0": "b"}, {"a": "b\0"}, {"\ud800": "b"}])
def test_schema_metadata_that_is_no_text_changes_nothing(
    ns: MemoryNamespace, metadata: dict[str, str] | None
) -> None:
    with pytest.raises(errors.InvalidInputError, match="metadata"):
        set_schema_metadata(ns, metadata)
    assert dataset(ns).version == 1


# -- of fields -----------------------------------------------------------------------------------


def test_one_commit_replaces_the_metadata_of_one_field_and_merges_another_s(
    ns: MemoryNamespace,
) -> None:
    both = {"metadata": {"a": "1", "b": "2"}}
    set_field_metadata(ns, {"path": "text", **both}, {"path": "st.`a.b`", **both})
    answer = set_field_metadata(
        ns,
        {"path": "text", "metadata": {"c": "3", "b": None}, "replace": True},
        {"path": "st.`a.b`", "metadata": {"c": "3"}},
    )
    assert answer.version == 3
    assert answer.fields == {"text": {"c": "3"}, "st.`a.b`": {"a": "1", "b": "2", "c": "3"}}
    nested = dataset(ns).schema.field("st").type.field(1)
    assert nested.metadata == {b"a": b"1", b"b": b"2", b"c": b"3"}


def test_the_answer_names_fields_by_their_canonical_path(ns: MemoryNamespace) -> None:
    answer = set_field_metadata(ns, {"path": "`st`.`x`", "metadata": {}})
    assert answer.fields == {"st.x": {}}


@pytest.mark.spec("operations.md#updatefieldmetadata")
@pytest.mark.parametrize(
    "entries",
    [
        [],
        [{"path": "id", "metadata": {"a": "b"}}, {"path": "`id`", "metadata": {"c": "d"}}],
        [{"path": "id.", "metadata": {"a": "b"}}],
        [{"path": "id", "metadata": {"a\0": "b"}}],
        [{"path": "id", "metadata": {"a": "\ud800"}}],
        [{"path": "id", "metadata": {"ARROW:extension:name": "arrow.uuid"}}],
        [{"path": "id", "metadata": {"lance-schema:unenforced-primary-key": "true"}}],
    ],
    ids=str,
)
def test_field_metadata_that_cannot_be_changes_nothing(
    ns: MemoryNamespace, entries: list[dict[str, Any]]
) -> None:
    good = {"path": "text", "metadata": {"a": "b"}}
    with pytest.raises(errors.InvalidInputError):
        set_field_metadata(ns, *([good] if entries else []), *entries)
    assert dataset(ns).version == 1


def test_replacing_keeps_the_type_of_an_extension_column(namespace: MemoryNamespace) -> None:
    ids = pa.ExtensionArray.from_storage(pa.uuid(), pa.array([b"0" * 16] * 3, pa.binary(16)))
    create_table(namespace, rows(3).append_column("key", ids))
    set_field_metadata(namespace, {"path": "key", "metadata": {"a": "b"}, "replace": True})
    assert dataset(namespace).schema.field("key").type == pa.uuid()
    entry = {"path": "key", "metadata": {"ARROW:extension:name": None}}
    with pytest.raises(errors.InvalidInputError, match="part of the type"):
        set_field_metadata(namespace, entry)
