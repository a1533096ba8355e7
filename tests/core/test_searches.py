"""Searches by vector, by text, or by both: what is honoured, and what is refused by name."""

from __future__ import annotations

from typing import Any

import lance
import lance_namespace as api
import numpy as np
import pyarrow as pa
import pytest
from lance_namespace import errors

from lance_bridge.dataset.query import HYBRID_PLAN, fuse_ranks
from lance_bridge.testing.calls import Calls

from .memory_catalog import TABLE, MemoryNamespace
from .table_data import ask, dataset, put, request, vectors

pytestmark = [pytest.mark.quick, pytest.mark.spec("operations.md#querytable")]

DIMENSION = 4
NEAR = [1.0, 2.0, 3.0, 4.0]
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


def points(rows: int = 300) -> Any:
    return np.random.default_rng(7).normal(size=(rows, DIMENSION)).astype(np.float32)


def table(rows: int = 300) -> pa.Table:
    return pa.table({"id": list(range(rows)), "v": vectors(points(rows))})


@pytest.fixture
def filled(namespace: MemoryNamespace) -> MemoryNamespace:
    put(namespace, table())
    return namespace


@pytest.fixture
def indexed(filled: MemoryNamespace) -> MemoryNamespace:
    """Vectors with an index of two partitions, and 20 rows that came after it."""
    return _index(filled, "IVF_FLAT")


@pytest.fixture
def graph(filled: MemoryNamespace) -> MemoryNamespace:
    """The same with an index that is a graph, which ``ef`` is for."""
    return _index(filled, "IVF_HNSW_SQ")


def _index(ns: MemoryNamespace, kind: str) -> MemoryNamespace:
    opened = dataset(ns)
    opened.create_index("v", kind, num_partitions=2, metric="l2")
    late = pa.table({"id": list(range(300, 320)), "v": vectors([NEAR] * 20)})
    lance.write_dataset(late, opened.uri, mode="append")
    return ns


def ids(found: pa.Table) -> list[int]:
    return [int(each) for each in found.column("id").to_pylist()]


# -- which column ----------------------------------------------------------------------------------


def test_of_several_vector_columns_the_one_called_vector_is_the_default(
    namespace: MemoryNamespace,
) -> None:
    one, other = vectors([[0, 0], [9, 9]]), vectors([[9, 9], [0, 0]])
    put(namespace, pa.table({"id": [0, 1], "other": other, "vector": one}))
    assert ids(ask(namespace, k=1, vector=[0, 0])) == [0]
    assert ids(ask(namespace, k=1, vector=[0, 0], vector_column="other")) == [1]


def test_several_vector_columns_are_named_where_none_is_the_default(
    namespace: MemoryNamespace,
) -> None:
    inner = pa.StructArray.from_arrays([vectors([[0, 0]])], ["w"])
    put(namespace, pa.table({"a": vectors([[0, 0]]), "inner": inner}))
    with pytest.raises(errors.InvalidInputError, match=r"several.*a, inner\.w"):
        ask(namespace, vector=[0, 0])
    assert ask(namespace, vector=[0, 0], vector_column="inner.w").num_rows == 1


def test_a_table_without_vectors_cannot_be_searched(namespace: MemoryNamespace) -> None:
    put(namespace, pa.table({"id": [1], "box": pa.array([[1, 2]], pa.list_(pa.int32(), 2))}))
    with pytest.raises(errors.InvalidInputError, match="no column with vectors"):
        ask(namespace, vector=[0, 0])
    with pytest.raises(errors.InvalidInputError, match=r"'box'.*no vectors"):
        ask(namespace, vector=[0, 0], vector_column="box")


def test_a_column_without_vectors_cannot_be_searched(filled: MemoryNamespace) -> None:
    with pytest.raises(errors.InvalidInputError, match=r"'id'.*no vectors"):
        ask(filled, vector=NEAR, vector_column="id")
    for name in ("nope", "V", "v.x"):
        with pytest.raises(errors.TableColumnNotFoundError, match="has no column"):
            ask(filled, vector=NEAR, vector_column=name)
    with pytest.raises(errors.InvalidInputError, match="path"):
        ask(filled, vector=NEAR, vector_column="v.")


# -- which vectors ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("vector", "message"),
    [
        ([1.0, 2.0], "2 numbers.*have 4"),
        ([1.0] * 5, "5 numbers"),
        ([float("nan")] * 4, "infinite"),
        ([1e300, 0, 0, 0], "infinite"),
        ([10**400, 0, 0, 0], "infinite"),
    ],
)
def test_a_vector_that_does_not_fit_is_invalid_input(
    filled: MemoryNamespace, vector: list[float], message: str
) -> None:
    with pytest.raises(errors.InvalidInputError, match=message):
        ask(filled, vector=vector)
    with pytest.raises(errors.InvalidInputError, match=message):
        ask(filled, vectors=[NEAR, vector])


def test_an_empty_vector_or_one_beside_several_is_invalid_input(filled: MemoryNamespace) -> None:
    with pytest.raises(errors.InvalidInputError, match="vector 1 has 0 numbers"):
        ask(filled, vectors=[NEAR, []])
    both = {"single_vector": NEAR, "multi_vector": [NEAR]}
    with pytest.raises(errors.InvalidInputError, match="together"):
        Calls(filled).call("query_table", TABLE, k=1, vector=both)


def test_k_of_zero_finds_as_many_as_lance_does_by_default(filled: MemoryNamespace) -> None:
    few = dataset(filled).scanner(nearest={"column": "v", "q": NEAR}).to_table().num_rows
    assert few == 10 < dataset(filled).count_rows()
    assert ask(filled, k=0, vector=NEAR) == ask(filled, k=few, vector=NEAR)
    assert ask(filled, k=0, offset=2, vector=NEAR) == ask(filled, k=few, offset=2, vector=NEAR)
    assert ask(filled, k=0, vectors=[NEAR, NEAR]).num_rows == 2 * few


def test_several_vectors_are_one_query_where_a_row_has_several(
    namespace: MemoryNamespace,
) -> None:
    kind = pa.list_(pa.list_(pa.float32(), 2))
    rows = [[[0, 0], [5, 5]], [[0, 0], [0, 1]], [[9, 9]]]
    put(namespace, pa.table({"id": [0, 1, 2], "m": pa.array(rows, kind)}))
    found = ask(namespace, k=1, vectors=[[0, 0], [5, 5]])
    assert ids(found) == [0]
    assert "query_index" not in found.schema.names
    assert ids(ask(namespace, k=1, vector=[9, 9])) == [2]


def test_binary_vectors_take_whole_numbers_of_a_byte(namespace: MemoryNamespace) -> None:
    put(namespace, pa.table({"id": [0, 1], "v": vectors([[0, 255], [15, 0]], pa.uint8())}))
    assert ids(ask(namespace, vector=[0, 254])) == [0, 1]
    for bad in ([256, 0], [-1, 0], [0.5, 0]):
        with pytest.raises(errors.InvalidInputError, match="from 0 to 255"):
            ask(namespace, vector=bad)


# -- options ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"nprobes": 0}, "`nprobes`"),
        ({"refine_factor": 0}, "`refine_factor`"),
        ({"ef": 0}, "`ef`"),
        ({"ef": 11, "offset": 2}, "at least k plus offset"),
        ({"minimum_nprobes": 3, "maximum_nprobes": 2}, "more than `maximum_nprobes`"),
        ({"lower_bound": 2.0, "upper_bound": 1.0}, "`lower_bound`.*more than"),
        ({"upper_bound": float("nan")}, "`upper_bound`"),
        ({"distance_type": "manhattan"}, "must be one of l2"),
        ({"distance_type": "hamming"}, "hamming does not support"),
        ({"bypass_vector_index": True, "fast_search": True}, "`fast_search`"),
        ({"nprobes": 2**70}, "does not fit"),
    ],
)
def test_an_option_that_cannot_be_honoured_is_invalid_input(
    filled: MemoryNamespace, options: dict[str, Any], message: str
) -> None:
    with pytest.raises(errors.InvalidInputError, match=message):
        ask(filled, vector=NEAR, **options)


@pytest.mark.parametrize(
    "option",
    [
        {"vector_column": "v"},
        {"distance_type": "l2"},
        {"lower_bound": 1.0},
        {"upper_bound": 1.0},
        {"nprobes": 1},
        {"minimum_nprobes": 1},
        {"maximum_nprobes": 1},
        {"refine_factor": 1},
        {"ef": 20},
    ],
)
def test_an_option_of_a_search_is_refused_by_name_without_a_vector(
    filled: MemoryNamespace, option: dict[str, Any]
) -> None:
    with pytest.raises(errors.InvalidInputError, match=f"`{next(iter(option))}` is an option"):
        ask(filled, **option)


def test_a_filter_after_the_search_may_read_the_distance(filled: MemoryNamespace) -> None:
    found = ask(filled, vector=NEAR, columns={"id": "id", "far": "_distance * 2"})
    limit = found.column("_distance").to_pylist()[3]
    assert ids(ask(filled, vector=NEAR, filter=f"_distance < {limit}")) == ids(found)[:3]
    assert found.column("far").to_pylist()[3] == pytest.approx(2 * limit)
    with pytest.raises(errors.TableColumnNotFoundError, match="_distance"):
        ask(filled, vector=NEAR, filter="_distance < 1", prefilter=True)


def plan(ns: MemoryNamespace, **options: Any) -> str:
    query = request(vector=NEAR, **options)
    return ns.explain_table_query_plan(api.ExplainTableQueryPlanRequest(query=query))


def test_the_index_is_used_bypassed_or_used_alone(indexed: MemoryNamespace) -> None:
    assert "ANN" in plan(indexed)
    assert "ANN" not in plan(indexed, bypass_vector_index=True)
    assert "LanceRead: uri" in plan(indexed, fast_search=True)
    late = set(range(300, 320))
    assert set(ids(ask(indexed, vector=NEAR))) <= late
    assert set(ids(ask(indexed, vector=NEAR, bypass_vector_index=True))) <= late
    assert not late & set(ids(ask(indexed, vector=NEAR, fast_search=True)))


def test_options_of_the_index_reach_it(indexed: MemoryNamespace) -> None:
    of_two = {"k": 2, "fast_search": True}
    exact = ids(ask(indexed, k=9, vector=NEAR, filter="id < 300", prefilter=True, nprobes=2))
    assert ids(ask(indexed, k=9, vector=NEAR, nprobes=2, fast_search=True)) == exact
    assert "minimum_nprobes=2, maximum_nprobes=Some(2)" in plan(indexed, nprobes=2, **of_two)
    both = plan(indexed, minimum_nprobes=1, maximum_nprobes=2, nprobes=9, **of_two)
    assert "minimum_nprobes=1, maximum_nprobes=Some(2)" in both
    assert "fetch=10" in plan(indexed, refine_factor=5, **of_two)


def test_an_index_of_another_distance_is_not_used(indexed: MemoryNamespace) -> None:
    found = ask(
        indexed, k=1, vector=NEAR, distance_type="Cosine", filter="id < 300", prefilter=True
    )
    rows = points()
    cosine = 1 - rows @ np.array(NEAR) / np.linalg.norm(rows, axis=1) / np.linalg.norm(NEAR)
    assert ids(found) == [int(np.argmin(cosine))]


@pytest.mark.parametrize(
    "huge", [{"k": 2**40}, {"refine_factor": 2**31 - 1}, {"ef": 2**40}, {"k": 2**62, "offset": 5}]
)
def test_a_huge_number_takes_no_more_memory_than_the_table(
    graph: MemoryNamespace, huge: dict[str, Any]
) -> None:
    # Lance reserves memory for that many, and ends the process where there is not so much.
    rows = min(huge.get("k", 10), 320 - huge.get("offset", 0))
    assert 0 < ask(graph, vector=NEAR, **huge).num_rows <= rows
    flat = ask(graph, vectors=[NEAR, NEAR], bypass_vector_index=True, **huge)
    assert flat.num_rows == 2 * rows


def test_a_search_that_ends_too_early_for_its_k_is_invalid_input(graph: MemoryNamespace) -> None:
    assert ask(graph, vector=NEAR, ef=10, fast_search=True).num_rows == 10
    with pytest.raises(errors.InvalidInputError, match="ef must be greater"):
        ask(graph, vector=NEAR, ef=10, refine_factor=4)


# -- full text -------------------------------------------------------------------------------------


@pytest.fixture
def unindexed(namespace: MemoryNamespace) -> MemoryNamespace:
    put(namespace, ROWS)
    return namespace


@pytest.fixture
def texts(unindexed: MemoryNamespace) -> MemoryNamespace:
    """Two columns have an index: the title with positions, the body without."""
    opened = dataset(unindexed)
    opened.create_scalar_index("title", "INVERTED", with_position=True, stem=False)
    opened.create_scalar_index("body", "INVERTED", with_position=False, stem=False)
    return unindexed


def found(ns: MemoryNamespace, text: Any, **options: Any) -> set[int]:
    return {*ids(ask(ns, text=text, **options))}


def match(terms: str, column: str | None = "title", **options: Any) -> dict[str, Any]:
    return {"match": {"terms": terms, "column": column, **options}}


# -- forms -----------------------------------------------------------------------------------------


def test_a_string_is_searched_in_the_columns_it_names(texts: MemoryNamespace) -> None:
    full_text = {"string_query": {"query": "red", "columns": ["title"]}}
    assert {*ids(ask(texts, full_text_query=full_text))} == {0, 2}
    full_text["string_query"]["columns"] = ["title", "body"]
    assert {*ids(ask(texts, full_text_query=full_text))} == {0, 1, 2, 3}
    full_text["string_query"]["columns"] = ["inner.note"]
    assert {*ids(ask(texts, full_text_query=full_text))} == {0}


def test_a_match_takes_any_term_or_all(texts: MemoryNamespace) -> None:
    assert found(texts, match("red fox")) == {0, 1, 2, 5}
    for all_of in ("And", "and", "AND"):
        assert found(texts, match("red fox", operator=all_of)) == {0}
    assert found(texts, match("red", None)) == {0, 1, 2, 3}
    assert found(texts, match("red owl", None, operator="And")) == {3}


def test_a_match_may_be_fuzzy(texts: MemoryNamespace) -> None:
    assert found(texts, match("fax")) == set()
    assert found(texts, match("fax", fuzziness=1)) == {0, 1, 5}
    assert found(texts, match("fax", fuzziness=1, prefix_length=2)) == set()
    assert found(texts, match("fax", fuzziness=1, max_expansions=0)) == set()


def test_a_boost_multiplies_the_score(texts: MemoryNamespace) -> None:
    plain = ask(texts, text=match("hen")).column("_score").to_pylist()
    boosted = ask(texts, text=match("hen", boost=3.0)).column("_score").to_pylist()
    assert boosted == pytest.approx([3 * each for each in plain])


def test_a_phrase_keeps_the_order_of_its_words(texts: MemoryNamespace) -> None:
    def phrase(terms: str, **options: Any) -> dict[str, Any]:
        return {"phrase": {"terms": terms, "column": "title", **options}}

    assert found(texts, phrase("red fox")) == {0}
    assert found(texts, phrase("fox red")) == set()
    put_words = pa.table({"id": [0], "title": ["red and quick fox"]})
    put(texts, put_words)
    assert found(texts, phrase("red fox")) == set()
    assert found(texts, phrase("red fox", slop=2)) == {0}


def test_what_is_negative_only_lowers_the_score(texts: MemoryNamespace) -> None:
    text = {"positive": match("fox red"), "negative": match("blue"), "negative_boost": 0.5}
    rows = ask(texts, text={"boost": text}, columns=["id"]).column("id").to_pylist()
    assert set(rows) == {0, 1, 2, 5}
    assert rows[-1] == 1


def test_several_matches_are_as_good_as_the_best(texts: MemoryNamespace) -> None:
    both = [match("red", "title")["match"], match("red", "body", boost=2.0)["match"]]
    rows = ask(texts, text={"multi_match": {"match_queries": both}})
    assert {*ids(rows)} == {0, 1, 2, 3}
    alone = {"multi_match": {"match_queries": both[:1]}}
    assert found(texts, alone) == {0, 2}


def test_a_boolean_query_says_what_must_should_and_must_not_be(texts: MemoryNamespace) -> None:
    def boolean(**clauses: Any) -> dict[str, Any]:
        return {"boolean": {"must": [], "should": [], "must_not": [], **clauses}}

    assert found(texts, boolean(must=[match("red"), match("quick", "body")])) == {0, 2}
    assert found(texts, boolean(should=[match("hen"), match("owl")])) == {2, 4}
    assert found(texts, boolean(must=[match("red")], must_not=[match("fox")])) == {2}
    nested = boolean(
        should=[boolean(must=[match("red")]), {"phrase": {"terms": "blue fox", "column": "title"}}]
    )
    assert found(texts, nested) == {0, 1, 2}


# -- with the rest of a request --------------------------------------------------------------------


@pytest.mark.spec("operations.md#querytable")
def test_k_offset_columns_and_row_ids_are_honoured(texts: MemoryNamespace) -> None:
    whole = ask(texts, k=0, text="red", columns=["id"]).num_rows
    assert whole == 4
    page = ask(texts, k=2, offset=3, text="red", columns={"n": "id"}, with_row_id=True)
    assert page.schema.names == ["n", "_score", "_rowid"]
    assert page.num_rows == 1


def test_a_fast_search_reads_only_the_index(texts: MemoryNamespace) -> None:
    lance.write_dataset(ROWS.slice(0, 1), dataset(texts).uri, mode="append")
    assert ask(texts, text="quick").num_rows == 3
    assert ask(texts, text="quick", fast_search=True).num_rows == 2


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
    texts: MemoryNamespace, text: dict[str, Any], message: str
) -> None:
    with pytest.raises(errors.InvalidInputError, match=message):
        ask(texts, text=text)


@pytest.mark.spec("operations.md#querytable")
@pytest.mark.parametrize("column", ["nope", "TITLE", "inner.nope"])
def test_text_in_a_missing_column_is_column_not_found(texts: MemoryNamespace, column: str) -> None:
    for text in (match("red", column), {"phrase": {"terms": "red", "column": column}}):
        with pytest.raises(errors.TableColumnNotFoundError, match="has no column"):
            ask(texts, text=text)
    named = {"string_query": {"query": "red", "columns": ["title", column]}}
    with pytest.raises(errors.TableColumnNotFoundError, match="has no column"):
        ask(texts, full_text_query=named)


@pytest.mark.spec("operations.md#querytable")
def test_what_pylance_cannot_combine_is_unsupported_by_name(texts: MemoryNamespace) -> None:
    with pytest.raises(errors.UnsupportedOperationError, match="`fuzziness` over several"):
        ask(texts, text=match("red", None, fuzziness=1))
    different = [match("red", "title")["match"], match("owl", "body")["match"]]
    with pytest.raises(errors.UnsupportedOperationError, match="`terms` or `operator`"):
        ask(texts, text={"multi_match": {"match_queries": different}})
    with pytest.raises(errors.UnsupportedOperationError, match="several vectors"):
        ask(texts, text="red", vectors=[[0, 0], [1, 1]])


@pytest.mark.spec("operations.md#querytable")
def test_a_string_and_a_structure_at_once_are_invalid_input(texts: MemoryNamespace) -> None:
    string, structure = {"query": "red"}, {"query": match("red")}
    with pytest.raises(errors.InvalidInputError, match="string_query, structured_query, not 2"):
        ask(texts, full_text_query={"string_query": string, "structured_query": structure})
    with pytest.raises(errors.InvalidInputError, match="string_query, structured_query, not 0"):
        ask(texts, full_text_query={})


# -- hybrid ----------------------------------------------------------------------------------------


def test_a_vector_and_a_text_are_fused_by_their_ranks(texts: MemoryNamespace) -> None:
    near, text = [1.9, 0], match("red fox")
    by_vector = ask(texts, k=4, vector=near).column("id").to_pylist()
    by_text = ask(texts, k=4, text=text).column("id").to_pylist()
    rows = ask(texts, k=4, vector=near, text=text, columns=["id"], with_row_id=True)
    assert rows.schema.names == ["id", "_distance", "_score", "_relevance_score", "_rowid"]
    expected = fuse_ranks([by_vector, by_text])[:4]
    assert rows.column("id").to_pylist() == [row for row, _ in expected]
    relevance = [score for _, score in expected]
    assert rows.column("_relevance_score").to_pylist() == pytest.approx(relevance)
    for row in rows.to_pylist():
        assert (row["_distance"] is None) == (row["id"] not in by_vector)
        assert (row["_score"] is None) == (row["id"] not in by_text)


def test_pages_of_a_hybrid_search_follow_each_other(texts: MemoryNamespace) -> None:
    options: dict[str, Any] = {"vector": [0, 0], "text": match("red fox"), "columns": {"n": "id"}}
    whole = ask(texts, k=6, **options).column("n").to_pylist()
    assert sorted(whole) == [0, 1, 2, 3, 4, 5]
    later = ask(texts, k=3, offset=3, **options).column("n").to_pylist()
    assert later == whole[3:]


def test_both_halves_of_a_hybrid_search_are_filtered(texts: MemoryNamespace) -> None:
    options: dict[str, Any] = {"vector": [0, 0], "text": "red", "prefilter": True}
    assert {*ids(ask(texts, filter="id in (2, 4)", **options))} == {2, 4}
    assert ask(texts, filter="id < 0", **options).num_rows == 0
    with pytest.raises(errors.TableColumnNotFoundError, match="nope"):
        ask(texts, filter="nope = 1", **options)


def test_the_plan_of_a_hybrid_search_has_both_plans(texts: MemoryNamespace) -> None:
    query = request(k=2, vector=[0, 0], text="red")
    plan = texts.explain_table_query_plan(api.ExplainTableQueryPlanRequest(query=query))
    assert plan.startswith(HYBRID_PLAN)
    assert "KNNVectorDistance" in plan.split("By text:")[0]
    assert "MatchQuery" in plan.split("By text:")[1]
    analyzed = api.AnalyzeTableQueryPlanRequest.model_validate(query.model_dump())
    assert texts.analyze_table_query_plan(analyzed).count("AnalyzeExec") == 2


def test_ranks_are_fused_as_their_formula_says() -> None:
    fused = fuse_ranks([[7, 8], [8, 9]])
    assert [row for row, _ in fused] == [8, 7, 9]
    assert [score for _, score in fused] == pytest.approx([1 / 61 + 1 / 60, 1 / 60, 1 / 61])
    assert fuse_ranks([[], []]) == []
