"""Cases: indices on vectors, values and text; and statistics."""

from __future__ import annotations

from typing import Any

import pytest
from lance_namespace import ErrorCode

from ..calls import pages
from ..case_namespace import CaseNamespace
from .case_table import CaseTable, DataOperationCases, make_table, thin
from .items import DIMENSION, items
from .queries import found
from .searches import texts_with

INVALID = ErrorCode.INVALID_INPUT
NO_COLUMN = ErrorCode.TABLE_COLUMN_NOT_FOUND
NO_INDEX = ErrorCode.TABLE_INDEX_NOT_FOUND

TRAINING = range(256)
"""As many rows as the smallest training of a product quantizer wants."""
SCALAR = {
    "BTREE": "n",
    "BITMAP": "word",
    "ZONEMAP": "id",
    "BLOOMFILTER": "word",
    "LABEL_LIST": "labels",
    "NGRAM": "text",
    "FTS": "text",
}
"""Kind of index to a column it can be on."""
VECTOR: dict[str, dict[str, Any]] = {
    "IVF_FLAT": {"num_partitions": 2, "distance_type": "cosine"},
    "IVF_SQ": {"num_partitions": 1, "distance_type": "dot"},
    "IVF_PQ": {"num_partitions": 1, "num_sub_vectors": 2, "distance_type": "l2"},
    "IVF_RQ": {"num_partitions": 1, "distance_type": "l2"},
    "IVF_HNSW_FLAT": {"num_partitions": 1, "m": 8, "ef_construction": 40},
    "IVF_HNSW_SQ": {"num_partitions": 1, "distance_type": "l2"},
    "IVF_HNSW_PQ": {"num_partitions": 1, "num_sub_vectors": 2, "distance_type": "l2"},
}
"""Kind of index to options that it takes."""


def build(table: CaseTable, column: str, kind: str, **more: Any) -> Any:
    """Call CreateTableIndex."""
    return table.call("create_table_index", column=column, index_type=kind, **more)


def listed(table: CaseTable, **more: Any) -> dict[str, Any]:
    """Return a table's indices, as ListTableIndices has them, by name."""
    return {each.index_name: each for each in table.call("list_table_indices", **more).indexes}


class IndexCases(DataOperationCases):
    """Operations on indices, and GetTableStats."""

    @pytest.fixture(scope="class")
    @classmethod
    def trained(cls, shared_namespace: CaseNamespace) -> CaseTable:
        """A table with rows enough for every kind of index; each case adds one."""
        return make_table(shared_namespace, TRAINING)

    # -- every kind ------------------------------------------------------------------------------

    @pytest.mark.parametrize("kind", SCALAR)
    def test_an_index_of_every_scalar_kind_is_built(self, trained: CaseTable, kind: str) -> None:
        name = f"{kind.lower()}_scalar"
        fields = {"column": SCALAR[kind], "index_type": kind, "name": name}
        trained.call("create_table_scalar_index", **fields)
        index = listed(trained)[name]
        assert (index.index_type, list(index.columns)) == (kind, [SCALAR[kind]])
        stats = trained.call("describe_table_index_stats", index_name=name)
        assert (stats.index_type, stats.num_indexed_rows) == (kind, len(TRAINING))

    @pytest.mark.parametrize("kind", VECTOR)
    def test_an_index_of_every_vector_kind_is_built(self, trained: CaseTable, kind: str) -> None:
        name = f"{kind.lower()}_vector"
        build(trained, "vector", kind, name=name, **VECTOR[kind])
        index = listed(trained)[name]
        assert (index.index_type, list(index.columns)) == (kind, ["vector"])
        stats = trained.call("describe_table_index_stats", index_name=name)
        assert (stats.index_type, stats.num_indexed_rows) == (kind, len(TRAINING))
        assert stats.distance_type == VECTOR[kind].get("distance_type", "l2")

    def test_text_is_indexed_with_the_options_of_the_request(self, table: CaseTable) -> None:
        options = {"lower_case": False, "stem": False, "remove_stop_words": False}
        build(table, "text", "FTS", with_position=True, base_tokenizer="whitespace", **options)
        phrase = {"phrase": {"terms": "red apple", "column": "text"}}
        wanted = [number for number in texts_with("red", "apple") if number < 40]
        assert sorted(found(table, text=phrase)) == wanted

    # -- the life of an index --------------------------------------------------------------------

    @thin
    def test_an_index_is_built_listed_described_and_dropped(self, table: CaseTable) -> None:
        build(table, "id", "BTREE")
        assert list(listed(table)) == ["id_idx"]
        table.ns.storage.write(table.location, items(range(40, 45)), mode="append")
        stats = table.call("describe_table_index_stats", index_name="id_idx")
        assert (stats.num_indexed_rows, stats.num_unindexed_rows) == (40, 5)
        table.call("drop_table_index", index_name="id_idx")
        assert listed(table) == {}
        assert table.ids() == list(range(45))

    def test_an_index_has_the_name_that_was_asked_for(self, table: CaseTable) -> None:
        build(table, "inner.x", "BTREE", name="mine")
        (index,) = listed(table).values()
        assert (index.index_name, list(index.columns)) == ("mine", ["inner.x"])

    def test_indices_are_listed_by_name_page_by_page(self, indexed_table: CaseTable) -> None:
        found_pages = pages(
            lambda **more: _names(indexed_table.call("list_table_indices", **more)), "names", 2
        )
        assert [names for names, _ in found_pages] == [["text_idx", "vector_idx"], ["word_idx"]]

    def test_indices_are_those_of_the_version_and_of_the_branch(
        self, indexed_table: CaseTable
    ) -> None:
        assert len(listed(indexed_table)) == 3
        assert listed(indexed_table, version=1) == {}
        assert listed(indexed_table, branch="dev") == {}

    # -- what is refused -------------------------------------------------------------------------

    def test_a_second_index_of_a_name_is_index_already_exists(
        self, indexed_table: CaseTable
    ) -> None:
        with indexed_table.refuses(ErrorCode.TABLE_INDEX_ALREADY_EXISTS, naming="text_idx"):
            build(indexed_table, "id", "BTREE", name="text_idx")

    @pytest.mark.parametrize("operation", ["describe_table_index_stats", "drop_table_index"])
    def test_an_unknown_index_is_index_not_found(
        self, indexed_table: CaseTable, operation: str
    ) -> None:
        with indexed_table.refuses(NO_INDEX, naming="noindex"):
            indexed_table.call(operation, index_name="noindex")

    @pytest.mark.parametrize("operation", ["create_table_index", "create_table_scalar_index"])
    def test_an_index_on_an_unknown_column_names_it(
        self, shared_table: CaseTable, operation: str
    ) -> None:
        with shared_table.refuses(NO_COLUMN, naming="nocolumn"):
            shared_table.call(operation, column="nocolumn", index_type="BTREE")

    @pytest.mark.parametrize(
        ("column", "kind", "more"),
        [
            ("id", "HASH", {}),
            ("id", "FTS", {}),
            ("word", "IVF_FLAT", {}),
            ("vector", "BTREE", {}),
            ("vector", "IVF_FLAT", {"distance_type": "manhattan"}),
            ("vector", "IVF_PQ", {"num_sub_vectors": DIMENSION - 1}),
            ("id", "BTREE", {"num_partitions": 2}),
            ("id", "BTREE", {"name": ""}),
        ],
        ids=str,
    )
    def test_an_index_that_cannot_be_is_invalid_input(
        self, shared_table: CaseTable, column: str, kind: str, more: dict[str, Any]
    ) -> None:
        with shared_table.refuses(INVALID):
            build(shared_table, column, kind, **more)

    def test_an_index_of_a_missing_version_is_version_not_found(
        self, indexed_table: CaseTable
    ) -> None:
        with indexed_table.refuses(ErrorCode.TABLE_VERSION_NOT_FOUND, naming="99"):
            indexed_table.call("list_table_indices", version=99)
        with indexed_table.refuses(ErrorCode.TABLE_VERSION_NOT_FOUND, naming="99"):
            indexed_table.call("describe_table_index_stats", index_name="text_idx", version=99)

    # -- statistics ------------------------------------------------------------------------------

    @thin
    def test_statistics_count_rows_indices_and_fragments(self, indexed_table: CaseTable) -> None:
        stats = indexed_table.call("get_table_stats")
        assert (stats.num_rows, stats.num_indices) == (50, 3)
        assert stats.total_bytes > 0
        fragments = stats.fragment_stats
        assert fragments.num_fragments == 2
        assert (fragments.lengths.min, fragments.lengths.max) == (10, 40)

    def test_statistics_of_a_branch_are_its_own(self, indexed_table: CaseTable) -> None:
        stats = indexed_table.call("get_table_stats", branch="dev")
        assert (stats.num_rows, stats.num_indices) == (30, 0)


class _Names:
    """One page of indices, by their names."""

    def __init__(self, names: list[str], page_token: str | None) -> None:
        self.names = names
        self.page_token = page_token


def _names(answer: Any) -> _Names:
    return _Names([each.index_name for each in answer.indexes], answer.page_token)
