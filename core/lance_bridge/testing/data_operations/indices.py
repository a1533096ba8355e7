"""Cases: indices on vectors, values and text; and statistics."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from lance_namespace import ErrorCode

from ..calls import pages
from ..case_namespace import CaseNamespace
from ..cases import Refusals
from .case_table import CaseTable, DataOperationCases, SharedTable, bad
from .items import DIMENSION
from .queries import found
from .searches import texts_with

NO_COLUMN = ErrorCode.TABLE_COLUMN_NOT_FOUND
NO_INDEX = ErrorCode.TABLE_INDEX_NOT_FOUND
NO_VERSION = ErrorCode.TABLE_VERSION_NOT_FOUND

TRAINING = range(256)
"""The smallest number of rows on which a product quantizer can be trained."""
SCALAR = {
    "BTREE": "n",
    "BITMAP": "word",
    "ZONEMAP": "id",
    "BLOOMFILTER": "word",
    "LABEL_LIST": "labels",
    "NGRAM": "text",
    "FTS": "text",
}
"""Type of index to a column that it fits."""
VECTOR: dict[str, dict[str, Any]] = {
    "IVF_FLAT": {"num_partitions": 2, "distance_type": "cosine"},
    "IVF_SQ": {"num_partitions": 1, "distance_type": "dot"},
    "IVF_PQ": {"num_partitions": 1, "num_sub_vectors": 2, "distance_type": "l2"},
    "IVF_RQ": {"num_partitions": 1, "distance_type": "l2"},
    "IVF_HNSW_FLAT": {"num_partitions": 1, "m": 8, "ef_construction": 40},
    "IVF_HNSW_SQ": {"num_partitions": 1, "distance_type": "l2"},
    "IVF_HNSW_PQ": {"num_partitions": 1, "num_sub_vectors": 2, "distance_type": "l2"},
}
"""Type of index to options that it takes."""


def build(table: CaseTable, column: str, type: str, **more: Any) -> Any:
    """Call CreateTableIndex."""
    return table.call("create_table_index", column=column, index_type=type, **more)


def listed(table: CaseTable, **more: Any) -> dict[str, Any]:
    """Return a table's indices, as ListTableIndices returns them, by name."""
    return {each.index_name: each for each in table.call("list_table_indices", **more).indexes}


def _bad_index(column: str, type: str, **more: Any) -> Any:
    return bad("create_table_index", column=column, index_type=type, **more)


BAD_INDICES = {
    "a second one of a name": bad(
        "create_table_index",
        ErrorCode.TABLE_INDEX_ALREADY_EXISTS,
        naming="text_idx",
        column="id",
        index_type="BTREE",
        name="text_idx",
    ),
    **{
        f"{operation} on an unknown column": bad(
            operation, NO_COLUMN, column="nocolumn", index_type="BTREE"
        )
        for operation in ("create_table_index", "create_table_scalar_index")
    },
    **{
        f"{operation} of an unknown index": bad(operation, NO_INDEX, index_name="noindex")
        for operation in ("describe_table_index_stats", "drop_table_index")
    },
    "list of a missing version": bad("list_table_indices", NO_VERSION, version=99),
    "statistics of a missing version": bad(
        "describe_table_index_stats", NO_VERSION, index_name="text_idx", version=99
    ),
    "an unknown type": _bad_index("id", "HASH"),
    "full text on a number": _bad_index("id", "FTS"),
    "vectors on text": _bad_index("word", "IVF_FLAT"),
    "values on vectors": _bad_index("vector", "BTREE"),
    "an unknown distance": _bad_index("vector", "IVF_FLAT", distance_type="manhattan"),
    "sub-vectors that do not divide": _bad_index("vector", "IVF_PQ", num_sub_vectors=DIMENSION - 1),
    "partitions of values": _bad_index("id", "BTREE", num_partitions=2),
    "an empty name": _bad_index("id", "BTREE", name=""),
}


class IndexCases(DataOperationCases):
    """Operations on indices, and GetTableStats."""

    def test_an_index_of_every_type_is_built(self, shared_namespace: CaseNamespace) -> None:
        table = CaseTable(shared_namespace, TRAINING)
        for type, column in SCALAR.items():
            fields = {"column": column, "index_type": type, "name": f"{type}_scalar"}
            table.call("create_table_scalar_index", **fields)
            self._check_type(table, f"{type}_scalar", type, column)
        for type, options in VECTOR.items():
            build(table, "vector", type, name=f"{type}_vector", **options)
            stats = self._check_type(table, f"{type}_vector", type, "vector")
            assert stats.distance_type == options.get("distance_type", "l2")

    def _check_type(self, table: CaseTable, name: str, type: str, column: str) -> Any:
        index = listed(table)[name]
        assert (index.index_type, list(index.columns)) == (type, [column])
        stats = table.call("describe_table_index_stats", index_name=name)
        assert (stats.index_type, stats.num_indexed_rows) == (type, len(TRAINING))
        return stats

    def test_text_is_indexed_with_the_options_of_the_request(self, table: CaseTable) -> None:
        options = {"lower_case": False, "stem": False, "remove_stop_words": False}
        build(table, "text", "FTS", with_position=True, base_tokenizer="whitespace", **options)
        phrase = {"phrase": {"terms": "red apple", "column": "text"}}
        wanted = [number for number in texts_with("red", "apple") if number < 40]
        assert sorted(found(table, text=phrase)) == wanted

    def test_an_index_is_built_listed_described_and_dropped(self, table: CaseTable) -> None:
        build(table, "id", "BTREE")
        assert list(listed(table)) == ["id_idx"]
        table.append(range(40, 45))
        stats = table.call("describe_table_index_stats", index_name="id_idx")
        assert (stats.num_indexed_rows, stats.num_unindexed_rows) == (40, 5)
        table.call("drop_table_index", index_name="id_idx")
        assert listed(table) == {}
        assert table.ids() == list(range(45))

    def test_an_index_has_the_name_that_was_asked_for(self, table: CaseTable) -> None:
        build(table, "inner.x", "BTREE", name="mine")
        (index,) = listed(table).values()
        assert (index.index_name, list(index.columns)) == ("mine", ["inner.x"])

    def test_indices_are_listed_by_name_page_by_page(self, shared_table: CaseTable) -> None:
        def names(**more: Any) -> SimpleNamespace:
            answer = shared_table.call("list_table_indices", **more)
            found = [each.index_name for each in answer.indexes]
            return SimpleNamespace(names=found, page_token=answer.page_token)

        found_pages = [found for found, _ in pages(names, "names", 2)]
        assert found_pages == [["text_idx", "vector_idx"], ["word_idx"]]

    def test_indices_are_those_of_the_version_and_of_the_branch(
        self, shared_table: CaseTable
    ) -> None:
        assert len(listed(shared_table)) == 3
        assert listed(shared_table, version=1) == {}
        assert listed(shared_table, branch="dev") == {}

    def test_bad_requests_on_indices_are_refused(
        self, shared_table: SharedTable, refusals: Refusals
    ) -> None:
        self.refuse(refusals, shared_table, BAD_INDICES)

    # -- statistics ------------------------------------------------------------------------------

    def test_statistics_count_rows_indices_and_fragments(self, shared_table: CaseTable) -> None:
        stats = shared_table.call("get_table_stats")
        assert (stats.num_rows, stats.num_indices) == (50, 3)
        assert stats.total_bytes > 0
        fragments = stats.fragment_stats
        assert fragments.num_fragments == 2
        assert (fragments.lengths.min, fragments.lengths.max) == (10, 40)

    def test_statistics_of_a_branch_are_its_own(self, shared_table: CaseTable) -> None:
        stats = shared_table.call("get_table_stats", branch="dev")
        assert (stats.num_rows, stats.num_indices) == (30, 0)
