"""What is kept about a table: metadata of its schema and fields, statistics, and properties."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import lance
import lance_namespace as api
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis_profiles import examples
from lance_namespace import errors
from lance_namespace.errors import InvalidInputError

from lance_bridge.catalog import TableRecord
from lance_bridge.dataset import (
    SMALL_FRAGMENT,
    summarize_version,
    table_statistics,
    version_key,
)
from lance_bridge.dataset.read import summarize_lengths
from lance_bridge.records import (
    ENTRY_ID,
    check_properties,
    manager_in,
    properties_of_new_table,
    replace_visible,
    visible_properties,
)
from lance_bridge.requests import LATEST

from .memory_catalog import TABLE, MemoryNamespace
from .table_data import build_index, dataset, last_transaction, make, set_field_metadata, typed_rows

pytestmark = [pytest.mark.quick, pytest.mark.spec("common.md#table-properties")]


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
    by_another_path = set_field_metadata(ns, {"path": "`st`.`x`", "metadata": {}})
    assert by_another_path.fields == {"st.x": {}}
    nested = dataset(ns).schema.field("st").type.field(1)
    assert nested.metadata == {b"a": b"1", b"b": b"2", b"c": b"3"}


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
    make(namespace, typed_rows(3).append_column("key", ids))
    set_field_metadata(namespace, {"path": "key", "metadata": {"a": "b"}, "replace": True})
    assert dataset(namespace).schema.field("key").type == pa.uuid()
    entry = {"path": "key", "metadata": {"ARROW:extension:name": None}}
    with pytest.raises(errors.InvalidInputError, match="part of the type"):
        set_field_metadata(namespace, entry)


# -- statistics: of what is there, as pylance's directory namespace counts it ----------------------

lengths_of_fragments = st.lists(st.integers(1, 3000), max_size=12)


def stats(ns: MemoryNamespace, branch: str | None = None) -> api.GetTableStatsResponse:
    return ns.get_table_stats(api.GetTableStatsRequest(id=TABLE, branch=branch))


def directory_stats(place: Path, lengths: list[int]) -> api.GetTableStatsResponse:
    """Return what the directory namespace says of a table with such fragments."""
    table = place / "t.lance"
    lance.write_dataset(pa.schema([("n", pa.int64())]).empty_table(), str(table), mode="overwrite")
    for length in lengths:
        lance.write_dataset(pa.table({"n": range(length)}), str(table), mode="append")
    namespace = api.connect("dir", {"root": str(place)})
    return namespace.get_table_stats(api.GetTableStatsRequest(id=["t"]))


@examples(15)
@given(lengths=lengths_of_fragments)
def test_the_spread_is_that_of_the_directory_namespace(
    tmp_path_factory: pytest.TempPathFactory, lengths: list[int]
) -> None:
    expected = directory_stats(tmp_path_factory.mktemp("stats"), lengths).fragment_stats.lengths
    assert summarize_lengths(lengths) == expected


@pytest.mark.spec("operations.md#gettablestats")
def test_all_is_that_of_the_directory_namespace(ns_of_fragments: MemoryNamespace) -> None:
    place = Path(dataset(ns_of_fragments).uri)
    place.rename(place.with_name("same.lance"))
    directory = api.connect("dir", {"root": str(place.parent)})
    expected = directory.get_table_stats(api.GetTableStatsRequest(id=["same"]))
    place.with_name("same.lance").rename(place)
    assert stats(ns_of_fragments) == expected
    assert expected.num_indices == 1


@pytest.fixture
def ns_of_fragments(namespace: MemoryNamespace) -> MemoryNamespace:
    make(namespace, typed_rows(5))
    for count in (1, 40, 17):
        lance.write_dataset(typed_rows(count), dataset(namespace).uri, mode="append")
    build_index(namespace, "id", "BTREE")
    return namespace


def test_a_manifest_alone_says_the_rows_the_size_and_the_time_of_a_version(
    ns_of_fragments: MemoryNamespace,
) -> None:
    table = ns_of_fragments.tables.load_by_id(TABLE)
    lance.dataset(table.uri).delete("id > 2")
    opened = table.open()
    found = summarize_version(table, opened)
    files = [each for each in Path(table.uri, "data").iterdir() if each.is_file()]
    assert (found.rows, found.fragments, found.indices) == (10, 4, 1)
    assert found.size == sum(each.stat().st_size for each in files)
    latest: Any = opened.versions()[-1]
    assert found.version == latest["version"] == opened.version
    assert found.changed_millis == int(latest["timestamp"].timestamp() * 1000)


def test_versions_of_tables_that_replaced_each_other_have_other_keys(
    namespace: MemoryNamespace,
) -> None:
    keys = set()
    for _ in range(2):
        make(namespace, typed_rows(2))
        table = namespace.tables.load_by_id(TABLE)
        key = version_key(table, table.open())
        assert key == version_key(table, table.open())
        keys.add(key)
        namespace.drop_table(api.DropTableRequest(id=TABLE))
    assert len({(uri, version) for uri, version, _ in keys}) == 1
    assert len(keys) == 2


def test_columns_have_sizes_that_add_up(ns_of_fragments: MemoryNamespace) -> None:
    table = ns_of_fragments.tables.load_by_id(TABLE)
    found = table_statistics(table, LATEST)
    assert found.response == stats(ns_of_fragments)
    assert list(found.sizes) == found.schema.names == table.open().schema.names
    assert sum(found.sizes.values()) == found.response.total_bytes
    assert all(each > 0 for each in found.sizes.values())


@pytest.mark.spec("operations.md#gettablestats")
def test_deleted_rows_do_not_count(ns_of_fragments: MemoryNamespace) -> None:
    """The directory namespace counts them until a compaction."""
    lance.dataset(dataset(ns_of_fragments).uri).delete("id > 2")
    answer = stats(ns_of_fragments)
    assert answer.num_rows == dataset(ns_of_fragments).count_rows() == 10
    assert (answer.fragment_stats.lengths.min, answer.fragment_stats.lengths.max) == (1, 3)


def test_a_fragment_is_small_below_the_target_of_a_compaction(namespace: MemoryNamespace) -> None:
    make(namespace, pa.table({"n": pa.nulls(SMALL_FRAGMENT, pa.int8())}))
    assert stats(namespace).fragment_stats.num_small_fragments == 0
    lance.write_dataset(
        pa.table({"n": pa.nulls(1, pa.int8())}), dataset(namespace).uri, mode="append"
    )
    assert stats(namespace).fragment_stats.num_small_fragments == 1


@pytest.mark.spec("operations.md#gettablestats")
def test_a_branch_has_statistics_of_its_own(ns_of_fragments: MemoryNamespace) -> None:
    branch = dataset(ns_of_fragments).create_branch("dev")
    branch.delete("true")
    assert stats(ns_of_fragments, "dev").num_rows == 0
    assert stats(ns_of_fragments, "main").num_rows == 63
    with pytest.raises(errors.TableBranchNotFoundError):
        stats(ns_of_fragments, "other")


# -- properties of entries -------------------------------------------------------------------------


def is_accepted(key: str) -> bool:
    """Return whether a key has no meaning of its own: the tests below name those that have."""
    try:
        check_properties({key: ""})
    except InvalidInputError:
        return False
    return True


OWN = st.dictionaries(st.text(min_size=1).filter(is_accepted), st.text(), max_size=5)


@given(OWN)
def test_a_caller_sees_what_a_caller_gave_and_nothing_else(own: dict[str, str]) -> None:
    assert check_properties(own) == own
    stored = properties_of_new_table(own)
    assert TableRecord(("t",), properties=stored).is_lance
    assert visible_properties(stored) == own


@given(OWN, OWN)
def test_replacing_keeps_the_marks_and_the_identity(
    old: dict[str, str], new: dict[str, str]
) -> None:
    stored = properties_of_new_table(old)
    changed = replace_visible(stored, new)
    assert visible_properties(changed) == new
    for key in ("table_type", "managed_by", ENTRY_ID):
        assert changed[key] == stored[key]


def test_every_new_entry_has_an_identity_of_its_own() -> None:
    assert properties_of_new_table({})[ENTRY_ID] != properties_of_new_table({})[ENTRY_ID]


@pytest.mark.spec(
    "common.md#createnamespace",
    "common.md#createtable",
    "common.md#declaretable",
    "common.md#registertable",
)
@pytest.mark.parametrize(
    "key",
    [
        "",
        "lance_bridge.id",
        "lance_bridge.",
        "lance_bridge.x",
        "LANCE_BRIDGE.latest",
        "Lance_Bridge.x",
    ],
)
def test_an_empty_or_reserved_key_is_invalid(key: str) -> None:
    with pytest.raises(InvalidInputError, match="reserved"):
        check_properties({key: "x"})


@pytest.mark.spec("common.md#declaretable")
@pytest.mark.parametrize(
    "key",
    [
        "EXTERNAL", "external", "External.Table.Purge", "auto.purge", "AUTO.PURGE",
        "Storage_Handler",
        "translated_to_external", "spark.sql.sources.provider", "Spark.SQL.Sources.schema.part.0",
        "metadata_location", " external ",
    ],
)  # fmt: skip
def test_what_engines_act_on_is_refused_in_any_letter_case(key: str) -> None:
    with pytest.raises(InvalidInputError, match="reserved by the metastore"):
        check_properties({key: "TRUE"})


def test_what_core_keeps_is_hidden_and_kept_in_any_letter_case() -> None:
    stored = {**properties_of_new_table({}), "LANCE_BRIDGE.Latest": "7"}
    assert visible_properties(stored) == {}
    assert replace_visible(stored, {"a": "b"}) == {**stored, "a": "b"}


@pytest.mark.spec(
    "common.md#createtable",
    "common.md#declaretable",
    "common.md#lance-tables",
    "common.md#registertable",
)
@pytest.mark.parametrize("mark", ["table_type", "TABLE_TYPE", "Table_Type"])
def test_a_mark_may_be_repeated_but_means_lance(mark: str) -> None:
    assert check_properties({mark: "LANCE", "a": "b"}) == {"a": "b"}
    for other in ("iceberg", "", "lance "):
        with pytest.raises(InvalidInputError, match="marks Lance tables"):
            check_properties({mark: other})


def test_who_manages_a_table_may_be_said_as_it_is_in_any_letter_case() -> None:
    for value, manager in (("storage", "storage"), ("Catalog", "storage"), ("IMPL", "impl")):
        assert check_properties({"managed_by": value}) == {}
        assert manager_in({"Managed_By": value}) == manager
    assert manager_in({"a": "b"}) is None
    with pytest.raises(InvalidInputError, match="managed_by"):
        check_properties({"managed_by": "me"})
