"""Full-text queries, in every form that a request can have, and joined with a vector."""

from __future__ import annotations

from typing import Any

import lance
import lance_namespace as api
import pyarrow as pa
import pytest
from lance_namespace import errors

from lance_bridge.dataset.query.query import HYBRID_PLAN, fuse_ranks

from .memory_catalog import MemoryNamespace
from .querying import ask, dataset, put, request, vectors

pytestmark = pytest.mark.quick

ROWS = pa.table(
    {
        "id": [0, 1, 2, 3, 4, 5],
        "title": ["red fox", "blue fox", "red hen", None, "green owl", "fox fox fox"],
        "body": ["quick", "lazy red", "quick red", "red owl", "slow", None],
        "plain": ["one", "two", "red", "one", "one", "one"],
        "inner": [{"note": "red"}] + [{"note": "x"}] * 5,
        "v": vectors([[i, 0] for i in range(6)]),
    }
)


@pytest.fixture
def unindexed(namespace: MemoryNamespace) -> MemoryNamespace:
    put(namespace, ROWS)
    return namespace


@pytest.fixture
def filled(unindexed: MemoryNamespace) -> MemoryNamespace:
    """Two columns have an index: the title with positions, the body without."""
    opened = dataset(unindexed)
    opened.create_scalar_index("title", "INVERTED", with_position=True, stem=False)
    opened.create_scalar_index("body", "INVERTED", with_position=False, stem=False)
    return unindexed


def ids(found: pa.Table) -> set[int]:
    return set(found.column("id").to_pylist())


def found(ns: MemoryNamespace, text: Any, **options: Any) -> set[int]:
    return ids(ask(ns, text=text, **options))


def match(terms: str, column: str | None = "title", **options: Any) -> dict[str, Any]:
    return {"match": {"terms": terms, "column": column, **options}}


# -- forms -----------------------------------------------------------------------------------------


def test_a_string_is_searched_in_the_columns_it_names(filled: MemoryNamespace) -> None:
    full_text = {"string_query": {"query": "red", "columns": ["title"]}}
    assert ids(ask(filled, full_text_query=full_text)) == {0, 2}
    full_text["string_query"]["columns"] = ["title", "body"]
    assert ids(ask(filled, full_text_query=full_text)) == {0, 1, 2, 3}
    full_text["string_query"]["columns"] = ["inner.note"]
    assert ids(ask(filled, full_text_query=full_text)) == {0}


def test_a_match_takes_any_term_or_all(filled: MemoryNamespace) -> None:
    assert found(filled, match("red fox")) == {0, 1, 2, 5}
    for all_of in ("And", "and", "AND"):
        assert found(filled, match("red fox", operator=all_of)) == {0}
    assert found(filled, match("red", None)) == {0, 1, 2, 3}
    assert found(filled, match("red owl", None, operator="And")) == {3}


def test_a_match_may_be_fuzzy(filled: MemoryNamespace) -> None:
    assert found(filled, match("fax")) == set()
    assert found(filled, match("fax", fuzziness=1)) == {0, 1, 5}
    assert found(filled, match("fax", fuzziness=1, prefix_length=2)) == set()
    assert found(filled, match("fax", fuzziness=1, max_expansions=0)) == set()


def test_a_boost_multiplies_the_score(filled: MemoryNamespace) -> None:
    plain = ask(filled, text=match("hen")).column("_score").to_pylist()
    boosted = ask(filled, text=match("hen", boost=3.0)).column("_score").to_pylist()
    assert boosted == pytest.approx([3 * each for each in plain])


def test_a_phrase_keeps_the_order_of_its_words(filled: MemoryNamespace) -> None:
    def phrase(terms: str, **options: Any) -> dict[str, Any]:
        return {"phrase": {"terms": terms, "column": "title", **options}}

    assert found(filled, phrase("red fox")) == {0}
    assert found(filled, phrase("fox red")) == set()
    put_words = pa.table({"id": [0], "title": ["red and quick fox"]})
    put(filled, put_words)
    assert found(filled, phrase("red fox")) == set()
    assert found(filled, phrase("red fox", slop=2)) == {0}


def test_what_is_negative_only_lowers_the_score(filled: MemoryNamespace) -> None:
    text = {"positive": match("fox red"), "negative": match("blue"), "negative_boost": 0.5}
    rows = ask(filled, text={"boost": text}, columns=["id"]).column("id").to_pylist()
    assert set(rows) == {0, 1, 2, 5}
    assert rows[-1] == 1


def test_several_matches_are_as_good_as_the_best(filled: MemoryNamespace) -> None:
    both = [match("red", "title")["match"], match("red", "body", boost=2.0)["match"]]
    rows = ask(filled, text={"multi_match": {"match_queries": both}})
    assert ids(rows) == {0, 1, 2, 3}
    alone = {"multi_match": {"match_queries": both[:1]}}
    assert found(filled, alone) == {0, 2}


def test_a_boolean_query_says_what_must_should_and_must_not_be(filled: MemoryNamespace) -> None:
    def boolean(**clauses: Any) -> dict[str, Any]:
        return {"boolean": {"must": [], "should": [], "must_not": [], **clauses}}

    assert found(filled, boolean(must=[match("red"), match("quick", "body")])) == {0, 2}
    assert found(filled, boolean(should=[match("hen"), match("owl")])) == {2, 4}
    assert found(filled, boolean(must=[match("red")], must_not=[match("fox")])) == {2}
    nested = boolean(
        should=[boolean(must=[match("red")]), {"phrase": {"terms": "blue fox", "column": "title"}}]
    )
    assert found(filled, nested) == {0, 1, 2}


# -- with the rest of a request --------------------------------------------------------------------


@pytest.mark.spec("operations.md#querytable")
def test_k_offset_columns_and_row_ids_are_honoured(filled: MemoryNamespace) -> None:
    whole = ask(filled, k=0, text="red", columns=["id"]).num_rows
    assert whole == 4
    page = ask(filled, k=2, offset=3, text="red", columns={"n": "id"}, with_row_id=True)
    assert page.schema.names == ["n", "_score", "_rowid"]
    assert page.num_rows == 1


def test_a_fast_search_reads_only_the_index(filled: MemoryNamespace) -> None:
    lance.write_dataset(ROWS.slice(0, 1), dataset(filled).uri, mode="append")
    assert ask(filled, text="quick").num_rows == 3
    assert ask(filled, text="quick", fast_search=True).num_rows == 2


def test_text_without_an_index_is_searched_where_a_column_is_named(
    unindexed: MemoryNamespace,
) -> None:
    assert found(unindexed, match("red", "plain")) == {2}
    for text in ("red", match("red", None), {"phrase": {"terms": "red fox"}}):
        with pytest.raises(errors.InvalidInputError, match="no full-text index"):
            ask(unindexed, text=text)


# -- what cannot be --------------------------------------------------------------------------------


@pytest.mark.spec("operations.md#querytable")
@pytest.mark.parametrize(
    ("text", "message"),
    [
        ({}, "exactly one of match"),
        ({**match("red"), "phrase": {"terms": "red"}}, "exactly one of match"),
        (match("red", operator="xor"), "must be And or Or"),
        (match("red", boost=-1.0), "boost"),
        (match("red", fuzziness=2**40), "search for this text"),
        (match("a very long word indeed", fuzziness=9), "fuzzy"),
        (match("1", "id"), "does not fit"),
        ({"phrase": {"terms": "red fox"}}, "name one of title, body"),
        ({"phrase": {"terms": "quick red", "column": "body"}}, "position"),
        ({"multi_match": {"match_queries": []}}, "at least one"),
        ({"boolean": {"must": [], "should": [], "must_not": [match("red")]}}, "at least one"),
        ({"boost": {"positive": match("red"), "negative": {}}}, "exactly one"),
    ],
)
def test_a_text_query_that_cannot_be_is_invalid_input(
    filled: MemoryNamespace, text: dict[str, Any], message: str
) -> None:
    with pytest.raises(errors.InvalidInputError, match=message):
        ask(filled, text=text)


@pytest.mark.spec("operations.md#querytable")
@pytest.mark.parametrize("column", ["nope", "TITLE", "inner.nope"])
def test_text_in_a_missing_column_is_column_not_found(filled: MemoryNamespace, column: str) -> None:
    for text in (match("red", column), {"phrase": {"terms": "red", "column": column}}):
        with pytest.raises(errors.TableColumnNotFoundError, match="has no column"):
            ask(filled, text=text)
    named = {"string_query": {"query": "red", "columns": ["title", column]}}
    with pytest.raises(errors.TableColumnNotFoundError, match="has no column"):
        ask(filled, full_text_query=named)


@pytest.mark.spec("operations.md#querytable")
def test_what_pylance_cannot_combine_is_unsupported_by_name(filled: MemoryNamespace) -> None:
    with pytest.raises(errors.UnsupportedOperationError, match="`fuzziness` over several"):
        ask(filled, text=match("red", None, fuzziness=1))
    different = [match("red", "title")["match"], match("owl", "body")["match"]]
    with pytest.raises(errors.UnsupportedOperationError, match="`terms` or `operator`"):
        ask(filled, text={"multi_match": {"match_queries": different}})
    with pytest.raises(errors.UnsupportedOperationError, match="several vectors"):
        ask(filled, text="red", vectors=[[0, 0], [1, 1]])


@pytest.mark.spec("operations.md#querytable")
def test_a_string_and_a_structure_at_once_are_invalid_input(filled: MemoryNamespace) -> None:
    string, structure = {"query": "red"}, {"query": match("red")}
    with pytest.raises(errors.InvalidInputError, match="string_query, structured_query, not 2"):
        ask(filled, full_text_query={"string_query": string, "structured_query": structure})
    with pytest.raises(errors.InvalidInputError, match="string_query, structured_query, not 0"):
        ask(filled, full_text_query={})


# -- hybrid ----------------------------------------------------------------------------------------


def test_a_vector_and_a_text_are_fused_by_their_ranks(filled: MemoryNamespace) -> None:
    near, text = [1.9, 0], match("red fox")
    by_vector = ask(filled, k=4, vector=near).column("id").to_pylist()
    by_text = ask(filled, k=4, text=text).column("id").to_pylist()
    rows = ask(filled, k=4, vector=near, text=text, columns=["id"], with_row_id=True)
    assert rows.schema.names == ["id", "_distance", "_score", "_relevance_score", "_rowid"]
    expected = fuse_ranks([by_vector, by_text])[:4]
    assert rows.column("id").to_pylist() == [row for row, _ in expected]
    relevance = [score for _, score in expected]
    assert rows.column("_relevance_score").to_pylist() == pytest.approx(relevance)
    for row in rows.to_pylist():
        assert (row["_distance"] is None) == (row["id"] not in by_vector)
        assert (row["_score"] is None) == (row["id"] not in by_text)


def test_pages_of_a_hybrid_search_follow_each_other(filled: MemoryNamespace) -> None:
    options: dict[str, Any] = {"vector": [0, 0], "text": match("red fox"), "columns": {"n": "id"}}
    whole = ask(filled, k=6, **options).column("n").to_pylist()
    assert sorted(whole) == [0, 1, 2, 3, 4, 5]
    later = ask(filled, k=3, offset=3, **options).column("n").to_pylist()
    assert later == whole[3:]


def test_both_halves_of_a_hybrid_search_are_filtered(filled: MemoryNamespace) -> None:
    options: dict[str, Any] = {"vector": [0, 0], "text": "red", "prefilter": True}
    assert ids(ask(filled, filter="id in (2, 4)", **options)) == {2, 4}
    assert ask(filled, filter="id < 0", **options).num_rows == 0
    with pytest.raises(errors.TableColumnNotFoundError, match="nope"):
        ask(filled, filter="nope = 1", **options)


def test_the_plan_of_a_hybrid_search_has_both_plans(filled: MemoryNamespace) -> None:
    query = request(k=2, vector=[0, 0], text="red")
    plan = filled.explain_table_query_plan(api.ExplainTableQueryPlanRequest(query=query))
    assert plan.startswith(HYBRID_PLAN)
    assert "KNNVectorDistance" in plan.split("By text:")[0]
    assert "MatchQuery" in plan.split("By text:")[1]
    analyzed = api.AnalyzeTableQueryPlanRequest.model_validate(query.model_dump())
    assert filled.analyze_table_query_plan(analyzed).count("AnalyzeExec") == 2


def test_ranks_are_fused_as_their_formula_says() -> None:
    fused = fuse_ranks([[7, 8], [8, 9]])
    assert [row for row, _ in fused] == [8, 7, 9]
    assert [score for _, score in fused] == pytest.approx([1 / 61 + 1 / 60, 1 / 60, 1 / 61])
    assert fuse_ranks([[], []]) == []
