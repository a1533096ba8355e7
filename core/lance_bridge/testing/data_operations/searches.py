"""Cases: searches by vector, by text, and by both."""

from __future__ import annotations

from typing import Any

import pytest
from lance_namespace import ErrorCode

from ..cases import Refusals
from ..expect import code_of
from .case_table import BadRequest, CaseTable, DataOperationCases, SharedTable, bad
from .items import distance, nearest, text_of, vector_of, word_of
from .queries import found, query, query_fields

NO_COLUMN = ErrorCode.TABLE_COLUMN_NOT_FOUND

NEAR = [5.3, 0.5, 0.4, 0.3, 0.2, 0.1, 0.6, 0.7]
ALL = range(50)


def match(terms: str, **options: Any) -> dict[str, Any]:
    """Return a match query in the column ``text``."""
    return {"match": {"terms": terms, "column": "text", **options}}


def texts_with(*words: str) -> list[int]:
    """Return the ids whose ``text`` has all the words."""
    return [number for number in ALL if set(words) <= set(text_of(number).split())]


def _bad_search(*codes: ErrorCode, naming: str = "", **options: Any) -> BadRequest:
    vector = {} if "vectors" in options else {"vector": NEAR}
    return bad("query_table", *codes, naming=naming, **query_fields(**{**vector, **options}))


def _bad_text(*codes: ErrorCode, naming: str = "", **text: Any) -> BadRequest:
    return bad("query_table", *codes, naming=naming, **query_fields(text=text))


OPTIONS: list[dict[str, Any]] = [
    {"vector_column": "vector"},
    {"bypass_vector_index": True},
    {"fast_search": True},
    {"nprobes": 1},
    {"minimum_nprobes": 1, "maximum_nprobes": 3},
    {"refine_factor": 2},
    {"ef": 30},
    {"offset": 0},
]
"""Options of a search that do not change what it finds."""
BAD_SEARCHES = {
    "an unknown column": _bad_search(NO_COLUMN, vector_column="nocolumn"),
    "a column without vectors": _bad_search(vector_column="id"),
    "a vector too short": _bad_search(vector=[1.0]),
    "a vector too long": _bad_search(vector=NEAR * 2),
    "vectors of two lengths": _bad_search(vectors=[NEAR, [1.0]]),
    "an unknown distance": _bad_search(distance_type="manhattan"),
    "bounds that cross": _bad_search(lower_bound=2.0, upper_bound=1.0),
    "no probes": _bad_search(nprobes=0),
}
BAD_TEXTS = {
    "an unknown column": _bad_text(NO_COLUMN, **match("apple", column="nocolumn")),
    "no query": _bad_text(),
    "an unknown operator": _bad_text(**match("apple", operator="xor")),
    "two queries": _bad_text(**match("apple"), phrase={"terms": "apple"}),
}
TEXTS: list[tuple[dict[str, Any], list[int]]] = [
    (match("red apple"), sorted({*texts_with("red"), *texts_with("apple")})),
    (match("red apple", operator="And"), texts_with("red", "apple")),
    (match("appel", fuzziness=2), texts_with("apple")),
    (match("applx", fuzziness=1, max_expansions=10, prefix_length=2), texts_with("apple")),
    (match("apple", boost=2.0), texts_with("apple")),
    ({"phrase": {"terms": "red apple", "column": "text"}}, texts_with("red", "apple")),
    ({"phrase": {"terms": "apple red", "column": "text"}}, []),
    ({"boost": {"positive": match("apple"), "negative": match("red")}}, texts_with("apple")),
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
]
"""Structured text queries to the ids that they find."""


class VectorCases(DataOperationCases):
    """QueryTable with a vector."""

    def test_a_search_finds_the_nearest_first(self, shared_table: CaseTable) -> None:
        rows = query(shared_table, 5, vector=NEAR, columns=["id"])
        assert rows["id"].to_pylist() == nearest(NEAR, ALL, 5)
        exact = [distance(NEAR, vector_of(number)) for number in rows["id"].to_pylist()]
        assert rows["_distance"].to_pylist() == pytest.approx(exact, rel=1e-4)

    def test_a_search_measures_by_the_distance_type(self, shared_table: CaseTable) -> None:
        for metric in ("l2", "cosine", "dot", "L2", "Cosine"):
            options = {"distance_type": metric, "bypass_vector_index": True}
            ids = found(shared_table, 5, vector=NEAR, **options)
            assert ids == nearest(NEAR, ALL, 5, metric.lower()), metric

    def test_a_search_takes_its_options(self, shared_table: CaseTable) -> None:
        for options in OPTIONS:
            ids = found(shared_table, 5, vector=NEAR, **options)
            assert ids == nearest(NEAR, ALL, 5), options

    def test_a_search_filters_after_it_or_before(self, shared_table: CaseTable) -> None:
        few = [each for each in nearest(NEAR, ALL, 5) if each > 21]
        assert found(shared_table, 5, vector=NEAR, filter="id > 21") == few
        before = found(shared_table, 5, vector=NEAR, filter="id > 21", prefilter=True)
        assert before == nearest(NEAR, range(22, 50), 5)

    def test_a_search_keeps_to_the_bounds_of_distance(self, shared_table: CaseTable) -> None:
        far = [distance(NEAR, vector_of(number)) for number in nearest(NEAR, ALL, 6)]
        low, high = (far[1] + far[2]) / 2, (far[4] + far[5]) / 2
        bounded = found(shared_table, 20, vector=NEAR, lower_bound=low, upper_bound=high)
        assert bounded == nearest(NEAR, ALL, 5)[2:]

    def test_a_search_answers_with_k_rows_after_the_offset(self, shared_table: CaseTable) -> None:
        assert found(shared_table, 3, vector=NEAR, offset=2) == nearest(NEAR, ALL, 5)[2:]

    def test_several_vectors_are_each_searched_for(self, shared_table: CaseTable) -> None:
        other = vector_of(40)
        ids = found(shared_table, 3, vectors=[NEAR, other])
        assert sorted(ids) == sorted([*nearest(NEAR, ALL, 3), *nearest(other, ALL, 3)])

    def test_a_search_sees_the_version_and_the_branch(self, shared_table: CaseTable) -> None:
        far = vector_of(49)
        assert found(shared_table, 2, vector=far, version=1) == nearest(far, range(40), 2)
        near = vector_of(0)
        assert found(shared_table, 2, vector=near, branch="dev") == nearest(near, range(10, 40), 2)

    def test_bad_searches_are_refused(self, shared_table: SharedTable, refusals: Refusals) -> None:
        self.refuse(refusals, shared_table, BAD_SEARCHES)


class TextCases(DataOperationCases):
    """QueryTable with a full text query."""

    def test_a_text_query_finds_the_rows_with_the_word(self, shared_table: CaseTable) -> None:
        rows = query(shared_table, text="apple", among=["text"])
        assert sorted(rows["id"].to_pylist()) == texts_with("apple")
        assert all(score > 0 for score in rows["_score"].to_pylist())

    def test_a_text_query_without_columns_searches_every_index(
        self, shared_table: CaseTable
    ) -> None:
        either = {n for n in ALL if "apple" in (word_of(n), *text_of(n).split())}
        assert set(found(shared_table, text="apple")) == either

    def test_a_text_query_answers_with_the_k_best(self, shared_table: CaseTable) -> None:
        best = found(shared_table, 3, text="red apple", among=["text"])
        assert set(best) <= set(texts_with("red", "apple"))
        assert len(best) == 3

    def test_a_text_query_filters(self, shared_table: CaseTable) -> None:
        ids = found(shared_table, text="apple", among=["text"], filter="id > 20", prefilter=True)
        assert sorted(ids) == [25, 30, 35, 40, 45]

    def test_a_structured_text_query_finds_what_it_says(self, shared_table: CaseTable) -> None:
        for text, ids in TEXTS:
            assert sorted(found(shared_table, text=text)) == ids, text

    def test_a_text_query_of_several_columns_is_answered_or_unsupported(
        self, shared_table: CaseTable
    ) -> None:
        columns = ("text", "word")
        matches = [match("apple", column=column)["match"] for column in columns]
        text = {"multi_match": {"match_queries": matches}}
        if code_of(lambda: query(shared_table, text=text)) == ErrorCode.UNSUPPORTED:
            return
        either = {n for n in ALL if "apple" in (word_of(n), *text_of(n).split())}
        assert set(found(shared_table, text=text)) == either

    def test_bad_text_queries_are_refused(
        self, shared_table: SharedTable, refusals: Refusals
    ) -> None:
        self.refuse(refusals, shared_table, BAD_TEXTS)


class SearchCases(VectorCases, TextCases):
    """Searches by vector, by text, and by both."""

    def test_a_search_by_vector_and_text_finds_the_best_of_both(
        self, shared_table: CaseTable
    ) -> None:
        ids = found(shared_table, 5, vector=NEAR, text="lime", among=["text"])
        assert len(ids) == 5
        assert set(ids) & set(nearest(NEAR, ALL, 5))
        assert set(ids) & set(texts_with("lime"))
