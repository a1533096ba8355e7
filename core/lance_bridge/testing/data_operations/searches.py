"""Cases: searches by vector, by text, and by both."""

from __future__ import annotations

from typing import Any

import pytest
from lance_namespace import ErrorCode

from ..expect import code_of
from .case_table import CaseTable, DataOperationCases, thin
from .items import distance, nearest, text_of, vector_of, word_of
from .queries import found, query

INVALID = ErrorCode.INVALID_INPUT
NO_COLUMN = ErrorCode.TABLE_COLUMN_NOT_FOUND

NEAR = [5.3, 0.5, 0.4, 0.3, 0.2, 0.1, 0.6, 0.7]
ALL = range(50)


def match(terms: str, **options: Any) -> dict[str, Any]:
    """Return a match query in the column ``text``."""
    return {"match": {"terms": terms, "column": "text", **options}}


class VectorCases(DataOperationCases):
    """QueryTable with a vector."""

    @thin
    def test_a_search_finds_the_nearest_first(self, indexed_table: CaseTable) -> None:
        rows = query(indexed_table, 5, vector=NEAR, columns=["id"])
        assert rows["id"].to_pylist() == nearest(NEAR, ALL, 5)
        exact = [distance(NEAR, vector_of(number)) for number in rows["id"].to_pylist()]
        assert rows["_distance"].to_pylist() == pytest.approx(exact, rel=1e-4)

    @pytest.mark.parametrize("metric", ["l2", "cosine", "dot", "L2", "Cosine"])
    def test_a_search_measures_by_the_distance_type(
        self, indexed_table: CaseTable, metric: str
    ) -> None:
        ids = found(indexed_table, 5, vector=NEAR, distance_type=metric, bypass_vector_index=True)
        assert ids == nearest(NEAR, ALL, 5, metric.lower())

    @pytest.mark.parametrize(
        "options",
        [
            {"vector_column": "vector"},
            {"bypass_vector_index": True},
            {"fast_search": True},
            {"nprobes": 1},
            {"minimum_nprobes": 1, "maximum_nprobes": 3},
            {"refine_factor": 2},
            {"ef": 30},
            {"offset": 0},
        ],
        ids=str,
    )
    def test_a_search_that_is_told_how_finds_the_same(
        self, indexed_table: CaseTable, options: dict[str, Any]
    ) -> None:
        assert found(indexed_table, 5, vector=NEAR, **options) == nearest(NEAR, ALL, 5)

    def test_a_search_filters_after_it_or_before(self, indexed_table: CaseTable) -> None:
        few = [each for each in nearest(NEAR, ALL, 5) if each > 21]
        assert found(indexed_table, 5, vector=NEAR, filter="id > 21") == few
        before = found(indexed_table, 5, vector=NEAR, filter="id > 21", prefilter=True)
        assert before == nearest(NEAR, range(22, 50), 5)

    def test_a_search_keeps_to_the_bounds_of_distance(self, indexed_table: CaseTable) -> None:
        far = [distance(NEAR, vector_of(number)) for number in nearest(NEAR, ALL, 6)]
        low, high = (far[1] + far[2]) / 2, (far[4] + far[5]) / 2
        bounded = found(indexed_table, 20, vector=NEAR, lower_bound=low, upper_bound=high)
        assert bounded == nearest(NEAR, ALL, 5)[2:]

    def test_a_search_answers_with_k_rows_after_the_offset(self, indexed_table: CaseTable) -> None:
        assert found(indexed_table, 3, vector=NEAR, offset=2) == nearest(NEAR, ALL, 5)[2:]

    def test_several_vectors_are_each_searched_for(self, indexed_table: CaseTable) -> None:
        other = vector_of(40)
        ids = found(indexed_table, 3, vectors=[NEAR, other])
        assert sorted(ids) == sorted([*nearest(NEAR, ALL, 3), *nearest(other, ALL, 3)])

    def test_a_search_sees_the_version_and_the_branch(self, indexed_table: CaseTable) -> None:
        far = vector_of(49)
        assert found(indexed_table, 2, vector=far, version=1) == nearest(far, range(40), 2)
        near = vector_of(0)
        assert found(indexed_table, 2, vector=near, branch="dev") == nearest(near, range(10, 40), 2)

    def test_a_search_in_an_unknown_column_names_it(self, indexed_table: CaseTable) -> None:
        with indexed_table.refuses(NO_COLUMN, naming="nocolumn"):
            query(indexed_table, vector=NEAR, vector_column="nocolumn")

    @pytest.mark.parametrize(
        "options",
        [
            {"vector": [1.0]},
            {"vector": NEAR * 2},
            {"vectors": [NEAR, [1.0]]},
            {"vector_column": "id"},
            {"distance_type": "manhattan"},
            {"lower_bound": 2.0, "upper_bound": 1.0},
            {"nprobes": 0},
        ],
        ids=lambda options: str(options)[:40],
    )
    def test_a_search_that_makes_no_sense_is_invalid_input(
        self, indexed_table: CaseTable, options: dict[str, Any]
    ) -> None:
        with indexed_table.refuses(INVALID):
            query(indexed_table, **({"vector": NEAR} if "vectors" not in options else {}) | options)


def texts_with(*words: str) -> list[int]:
    """Return the ids whose ``text`` has all the words."""
    return [number for number in ALL if set(words) <= set(text_of(number).split())]


class TextCases(DataOperationCases):
    """QueryTable with a full text query."""

    @thin
    def test_a_text_query_finds_the_rows_with_the_word(self, indexed_table: CaseTable) -> None:
        rows = query(indexed_table, text="apple", among=["text"])
        assert sorted(rows["id"].to_pylist()) == texts_with("apple")
        assert all(score > 0 for score in rows["_score"].to_pylist())

    def test_a_text_query_without_columns_looks_into_every_index(
        self, indexed_table: CaseTable
    ) -> None:
        either = {n for n in ALL if "apple" in (word_of(n), *text_of(n).split())}
        assert set(found(indexed_table, text="apple")) == either

    def test_a_text_query_answers_with_the_k_best(self, indexed_table: CaseTable) -> None:
        best = found(indexed_table, 3, text="red apple", among=["text"])
        assert set(best) <= set(texts_with("red", "apple"))
        assert len(best) == 3

    def test_a_text_query_filters(self, indexed_table: CaseTable) -> None:
        ids = found(indexed_table, text="apple", among=["text"], filter="id > 20", prefilter=True)
        assert sorted(ids) == [25, 30, 35, 40, 45]

    @pytest.mark.parametrize(
        ("text", "ids"),
        [
            (match("red apple"), sorted({*texts_with("red"), *texts_with("apple")})),
            (match("red apple", operator="And"), texts_with("red", "apple")),
            (match("appel", fuzziness=2), texts_with("apple")),
            (match("applx", fuzziness=1, max_expansions=10, prefix_length=2), texts_with("apple")),
            (match("apple", boost=2.0), texts_with("apple")),
            ({"phrase": {"terms": "red apple", "column": "text"}}, texts_with("red", "apple")),
            ({"phrase": {"terms": "apple red", "column": "text"}}, []),
            (
                {"boost": {"positive": match("apple"), "negative": match("red")}},
                texts_with("apple"),
            ),
            (
                {
                    "boolean": {
                        "must": [match("apple")],
                        "should": [match("green")],
                        "must_not": [match("red")],
                    }
                },
                [number for number in texts_with("apple") if "red" not in text_of(number)],
            ),
        ],
        ids=str,
    )
    def test_a_structured_text_query_finds_what_it_says(
        self, indexed_table: CaseTable, text: dict[str, Any], ids: list[int]
    ) -> None:
        assert sorted(found(indexed_table, text=text)) == ids

    def test_a_text_query_of_several_columns_is_answered_or_unsupported(
        self, indexed_table: CaseTable
    ) -> None:
        columns = ("text", "word")
        matches = [match("apple", column=column)["match"] for column in columns]
        text = {"multi_match": {"match_queries": matches}}
        if code_of(lambda: query(indexed_table, text=text)) == ErrorCode.UNSUPPORTED:
            return
        either = {n for n in ALL if "apple" in (word_of(n), *text_of(n).split())}
        assert set(found(indexed_table, text=text)) == either

    def test_a_text_query_of_an_unknown_column_names_it(self, indexed_table: CaseTable) -> None:
        with indexed_table.refuses(NO_COLUMN, naming="nocolumn"):
            query(indexed_table, text=match("apple", column="nocolumn"))

    @pytest.mark.parametrize(
        "text",
        [{}, match("apple", operator="xor"), {**match("apple"), "phrase": {"terms": "apple"}}],
        ids=str,
    )
    def test_a_text_query_that_makes_no_sense_is_invalid_input(
        self, indexed_table: CaseTable, text: dict[str, Any]
    ) -> None:
        with indexed_table.refuses(INVALID):
            query(indexed_table, text=text)


class SearchCases(VectorCases, TextCases):
    """Searches by vector, by text, and by both."""

    def test_a_search_by_vector_and_text_finds_the_best_of_both(
        self, indexed_table: CaseTable
    ) -> None:
        ids = found(indexed_table, 5, vector=NEAR, text="lime", among=["text"])
        assert len(ids) == 5
        assert set(ids) & set(nearest(NEAR, ALL, 5))
        assert set(ids) & set(texts_with("lime"))
