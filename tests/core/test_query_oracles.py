"""Queries answered as two oracles do: pylance's directory namespace, and pyarrow with numpy.

Where the directory namespace differs the specification decides, and the difference is a test of its
own: it fails when pylance changes its mind.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import lance
import lance_namespace as api
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis_profiles import examples
from lance_namespace import errors

from .memory_catalog import MemoryNamespace
from .table_data import ask, dataset, directory, ipc, put, vectors

pytestmark = [
    pytest.mark.quick,
    pytest.mark.spec("operations.md#differences-from-the-directory-namespace"),
]

TABLE = ["t"]
ROWS = pa.table(
    {
        "id": list(range(40)),
        "s": [f"hello w{i % 5}" for i in range(40)],
        "t": [f"foo b{i % 7}" for i in range(40)],
        "inner": [{"x": i, "y": str(i)} for i in range(40)],
        "vector": vectors([[i % 7, i % 11, i / 3] for i in range(40)]),
    }
)
NEAR = [3.0, 5.0, 7.0]
often = examples(25, share_fixtures=True)
NUMBERS = st.integers(-3, 3)
WORDS = st.text("ab'% ", max_size=3)
COMPARISONS: dict[str, Callable[[Any, Any], Any]] = {
    "=": pc.equal,
    "<>": pc.not_equal,
    "<": pc.less,
    "<=": pc.less_equal,
    ">": pc.greater,
    ">=": pc.greater_equal,
}
rows = st.lists(
    st.tuples(
        st.none() | NUMBERS,
        st.none() | st.integers(-6, 6).map(lambda half: half / 2),
        st.none() | WORDS,
    ),
    max_size=25,
)


@dataclass(frozen=True)
class Both:
    bridge: MemoryNamespace
    of_directory: api.LanceNamespace

    def ask(self, **options: Any) -> tuple[pa.Table, pa.Table]:
        return ask(self.bridge, **options), ask(self.of_directory, TABLE, **options)


@pytest.fixture
def both(namespace: MemoryNamespace, tmp_path: Path) -> Both:
    """The same rows and indices in both."""
    put(namespace, ROWS)
    of_directory = directory(tmp_path / "directory")
    of_directory.create_table(api.CreateTableRequest(id=TABLE), ipc(ROWS))
    for opened in (dataset(namespace), lance.dataset(str(tmp_path / "directory" / "t.lance"))):
        opened.create_scalar_index("s", "INVERTED", with_position=True)
        opened.create_index("vector", "IVF_FLAT", num_partitions=1, metric="l2")
    return Both(namespace, of_directory)


def match(terms: str, **options: Any) -> dict[str, Any]:
    return {"match": {"terms": terms, **options}}


def boolean(must: list[Any], should: list[Any], must_not: list[Any]) -> dict[str, Any]:
    return {"boolean": {"must": must, "should": should, "must_not": must_not}}


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"k": 0},
        {"vector": []},
        {"k": 3, "offset": 4},
        {"filter": "id > 30 or inner.x = 2", "columns": ["inner.y", "id"]},
        {"filter": "id < 0"},
        {"columns": {"n": "id"}},
        {"columns": {"n": "inner.x + 1"}, "with_row_id": True},
        {"columns": ["`id`", "_rowid"]},
        {"columns": []},
        {"version": 1, "k": 2},
        {"prefilter": True, "filter": "id = 3", "bypass_vector_index": True, "fast_search": True},
        {"vector": NEAR},
        {"vector": NEAR, "k": 0},
        {"vector": NEAR, "k": 7, "columns": ["id"], "with_row_id": True},
        {"vector": NEAR, "columns": {"far": "_distance"}},
        {"vector": NEAR, "filter": "id > 20"},
        {"vector": NEAR, "filter": "id > 20", "prefilter": True},
        {"vector": NEAR, "distance_type": "Cosine"},
        {"vector": NEAR, "distance_type": "DOT", "lower_bound": -50.0, "upper_bound": -20.0},
        {"vector": NEAR, "nprobes": 1, "refine_factor": 2, "ef": 30},
        {"vector": NEAR, "bypass_vector_index": True},
        {"vector": NEAR, "fast_search": True},
        {"text": "w1", "k": 0},
        {"text": "w1 w2", "k": 20, "columns": ["id"], "with_row_id": True},
        {"text": "w1", "k": 0, "filter": "id > 9", "prefilter": True},
        {"text": match("hello w3", operator="And"), "k": 0},
        {"text": match("hallo", fuzziness=1, boost=2.0), "k": 0},
        {"text": match("b2", column="t"), "k": 0},
        {"text": {"phrase": {"terms": "hello w1"}}, "k": 0},
        {"text": {"boost": {"positive": match("hello"), "negative": match("w1")}}, "k": 0},
        {"text": boolean([match("hello")], [match("w2")], [match("w1")]), "k": 0},
    ],
    ids=str,
)
def test_the_same_request_has_the_same_answer(both: Both, options: dict[str, Any]) -> None:
    bridge, of_directory = both.ask(**options)
    assert bridge.schema == of_directory.schema
    assert in_order(bridge) == in_order(of_directory)


def in_order(table: pa.Table) -> list[dict[str, Any]]:
    """Return rows; of a text search, those of equal score come in no certain order."""
    rows: list[dict[str, Any]] = table.to_pylist()
    if "_score" in table.schema.names:
        rows.sort(key=lambda row: (-row["_score"], str(row)))
    return rows


@pytest.mark.parametrize(
    "options",
    [
        {"vector": [1.0]},
        {"vector": NEAR, "vector_column": "id"},
        {"vector": NEAR, "distance_type": "manhattan"},
        {"columns": ["id", "id"]},
        {"text": {}},
        {"text": match("x", operator="xor")},
    ],
    ids=str,
)
def test_the_same_request_is_the_same_invalid_input(both: Both, options: dict[str, Any]) -> None:
    with pytest.raises(errors.InvalidInputError):
        ask(both.of_directory, TABLE, **options)
    with pytest.raises(errors.InvalidInputError):
        ask(both.bridge, **options)


# -- where the two differ --------------------------------------------------------------------------


def test_k_rows_are_returned_after_the_offset_where_pylance_counts_those_before(both: Both) -> None:
    """``k`` is the "number of results to return", ``offset`` the "number of results to skip"."""
    bridge, of_directory = both.ask(k=5, offset=2, vector=NEAR, columns=["id"])
    assert (bridge.num_rows, of_directory.num_rows) == (5, 3)
    assert bridge.slice(0, 3) == of_directory


def test_each_of_several_vectors_is_searched_for_where_pylance_takes_the_first(both: Both) -> None:
    """``multi_vector`` is "multiple query vectors for batch search"."""
    bridge, of_directory = both.ask(k=2, vectors=[NEAR, [0.0, 0.0, 0.0]], columns=["id"])
    assert (bridge.num_rows, of_directory.num_rows) == (4, 2)


@pytest.mark.spec("operations.md#querytable")
@pytest.mark.parametrize(
    ("options", "code"),
    [
        ({"filter": "nope = 1"}, errors.TableColumnNotFoundError),
        ({"columns": ["nope"]}, errors.TableColumnNotFoundError),
        ({"filter": "id >"}, errors.InvalidInputError),
        ({"text": match("w1", column="nope")}, errors.TableColumnNotFoundError),
        ({"vector": NEAR, "distance_type": "hamming"}, errors.InvalidInputError),
    ],
    ids=str,
)
def test_what_is_wrong_with_a_request_has_its_code_where_pylance_is_internal(
    both: Both, options: dict[str, Any], code: type[errors.LanceNamespaceError]
) -> None:
    with pytest.raises(errors.InternalError):
        ask(both.of_directory, TABLE, **options)
    with pytest.raises(code):
        ask(both.bridge, **options)


@pytest.mark.parametrize(
    "options",
    [
        {"filter": "id = 1; drop table t"},
        {"vector": NEAR, "nprobes": 0},
        {"vector": NEAR, "lower_bound": 2.0, "upper_bound": 1.0},
        {"distance_type": "l2"},
        {"filter": ""},
        {"branch": "nope"},
        {"text": {**match("w1"), "phrase": {"terms": "w1"}}},
    ],
    ids=str,
)
def test_what_pylance_takes_no_notice_of_is_refused(both: Both, options: dict[str, Any]) -> None:
    ask(both.of_directory, TABLE, **options)
    with pytest.raises(errors.LanceNamespaceError) as refused:
        ask(both.bridge, **options)
    assert refused.value.code in (
        errors.ErrorCode.INVALID_INPUT,
        errors.ErrorCode.TABLE_BRANCH_NOT_FOUND,
    )


def test_rows_are_skipped_where_pylance_skips_none_because_k_is_0(both: Both) -> None:
    everything = ask(both.of_directory, TABLE, k=0, offset=4)
    assert ask(both.bridge, k=0, offset=4) == everything.slice(4)


def test_a_vector_and_a_text_are_searched_together_where_pylance_fails(both: Both) -> None:
    with pytest.raises(errors.InternalError):
        ask(both.of_directory, TABLE, vector=NEAR, text="w1")
    assert ask(both.bridge, vector=NEAR, text="w1").num_rows == 10


def test_matches_of_different_terms_are_searched_together_only_by_pylance(both: Both) -> None:
    """Pylance offers its Python callers no way to ask for that."""
    matches = [match("w1", column="s")["match"], match("b2", column="t")["match"]]
    text = {"multi_match": {"match_queries": matches}}
    assert ask(both.of_directory, TABLE, text=text).num_rows == 10
    with pytest.raises(errors.UnsupportedOperationError, match="multi_match"):
        ask(both.bridge, text=text)


# -- filters ---------------------------------------------------------------------------------------

SCHEMA = pa.schema([("id", pa.int64()), ("n", pa.int64()), ("f", pa.float64()), ("s", pa.string())])


# -- random queries, with pyarrow and numpy as the oracle ------------------------------------------


@dataclass(frozen=True)
class Predicate:
    """SQL, and what it is for each row of a table: true, false or null."""

    sql: str
    evaluate: Callable[[pa.Table], Any]


def literal(value: int | str) -> str:
    return "'" + value.replace("'", "''") + "'" if isinstance(value, str) else str(value)


@st.composite
def comparisons(draw: st.DrawFn) -> Predicate:
    column, operator = draw(st.sampled_from("nfs")), draw(st.sampled_from(sorted(COMPARISONS)))
    value: int | str = draw(WORDS) if column == "s" else draw(NUMBERS)
    function = COMPARISONS[operator]
    sql = f"{column} {operator} {literal(value)}"
    return Predicate(sql, lambda t: function(t.column(column), pa.scalar(value, t[column].type)))


@st.composite
def null_checks(draw: st.DrawFn) -> Predicate:
    column = draw(st.sampled_from("nfs"))
    if draw(st.booleans()):
        return Predicate(f"{column} is null", lambda t: pc.is_null(t.column(column)))
    return Predicate(f"{column} is not null", lambda t: pc.is_valid(t.column(column)))


@st.composite
def members(draw: st.DrawFn, name: str) -> Predicate:
    values = draw(st.lists(NUMBERS, min_size=1, max_size=3))

    def evaluate(table: pa.Table) -> Any:
        column = table.column(name)
        found = pc.is_in(column, pa.array(values, pa.int64()))
        return pc.if_else(pc.is_valid(column), found, pa.scalar(None, pa.bool_()))

    return Predicate(f"{name} in ({', '.join(map(str, values))})", evaluate)


def combined(inner: st.SearchStrategy[Predicate]) -> st.SearchStrategy[Predicate]:
    def both(a: Predicate, b: Predicate) -> Predicate:
        return Predicate(
            f"({a.sql} and {b.sql})", lambda t: pc.and_kleene(a.evaluate(t), b.evaluate(t))
        )

    def either(a: Predicate, b: Predicate) -> Predicate:
        return Predicate(
            f"({a.sql} or {b.sql})", lambda t: pc.or_kleene(a.evaluate(t), b.evaluate(t))
        )

    def negated(a: Predicate) -> Predicate:
        return Predicate(f"(not {a.sql})", lambda t: pc.invert(a.evaluate(t)))

    return st.builds(both, inner, inner) | st.builds(either, inner, inner) | inner.map(negated)


# Lists of what can be null stay alone: of two of them, Lance makes what the last test here shows.
leaves = comparisons() | null_checks() | members("id")
predicates = members("n") | st.recursive(leaves, combined, max_leaves=6)


def table_of(values: list[tuple[Any, Any, Any]]) -> pa.Table:
    columns = zip(*values, strict=True) if values else ((), (), ())
    return pa.table([list(range(len(values))), *map(list, columns)], schema=SCHEMA)


@often
@given(rows=rows, predicate=predicates, offset=st.integers(0, 4), k=st.integers(1, 30))
def test_a_filter_keeps_the_rows_for_which_it_is_true(
    namespace: MemoryNamespace,
    rows: list[tuple[Any, Any, Any]],
    predicate: Predicate,
    offset: int,
    k: int,
) -> None:
    table = table_of(rows)
    put(namespace, table)
    expected = table.filter(predicate.evaluate(table)).slice(offset, k)
    assert ask(namespace, k=k, offset=offset, filter=predicate.sql) == expected


# -- nearest neighbours ----------------------------------------------------------------------------

DIMENSION = 3


def l2(rows: Any, to: Any) -> Any:
    return ((rows - to) ** 2).sum(axis=1)


def cosine(rows: Any, to: Any) -> Any:
    return 1 - rows @ to / np.linalg.norm(rows, axis=1) / np.linalg.norm(to)


def dot(rows: Any, to: Any) -> Any:
    return 1 - rows @ to


def hamming(rows: Any, to: Any) -> Any:
    return np.unpackbits(rows.astype(np.uint8) ^ to.astype(np.uint8), axis=1).sum(axis=1)


DISTANCES = {"l2": l2, "euclidean": l2, "cosine": cosine, "dot": dot, "hamming": hamming}


def points(distance: str) -> st.SearchStrategy[list[float]]:
    if distance == "hamming":
        numbers: st.SearchStrategy[float] = st.integers(0, 255)
    else:
        numbers = st.integers(-40, 40).map(lambda quarter: quarter / 4)
    found = st.lists(numbers, min_size=DIMENSION, max_size=DIMENSION)
    # No angle has a vector without a length.
    return found.filter(any) if distance == "cosine" else found


@st.composite
def searches(draw: st.DrawFn, distance: str) -> tuple[list[list[float] | None], list[list[float]]]:
    """Return the vectors of a table, some of them null, and those to search for."""
    stored = draw(st.lists(st.none() | points(distance), min_size=1, max_size=25))
    return [*stored, draw(points(distance))], draw(
        st.lists(points(distance), min_size=1, max_size=3)
    )


def nearest(
    distance: str, stored: list[list[float] | None], to: list[float], kept: Callable[[int], bool]
) -> dict[int, float]:
    """Return the distances of the rows that have a vector and are kept, by id."""
    ids = [i for i, each in enumerate(stored) if each is not None and kept(i)]
    if not ids:
        return {}
    found = DISTANCES[distance](np.array([stored[i] for i in ids], float), np.array(to, float))
    return dict(zip(ids, map(float, found), strict=True))


def assert_nearest(found: pa.Table, exact: dict[int, float], k: int, offset: int) -> None:
    """Rows of equal distance may come in any order, so the distances are compared."""
    ids, distances = found.column("id").to_pylist(), found.column("_distance").to_pylist()
    assert len(set(ids)) == len(ids)
    nearest_of_all = sorted(exact.values())[offset : offset + k]
    assert distances == pytest.approx(nearest_of_all, rel=1e-5, abs=1e-5)
    assert [exact[each] for each in ids] == pytest.approx(distances, rel=1e-5, abs=1e-5)


@pytest.mark.parametrize("distance", sorted(DISTANCES))
@often
@given(data=st.data(), page=st.tuples(st.integers(1, 30), st.integers(0, 4)), odd=st.booleans())
def test_a_search_without_an_index_finds_the_nearest_rows(
    namespace: MemoryNamespace,
    distance: str,
    data: st.DataObject,
    page: tuple[int, int],
    odd: bool,
) -> None:
    (k, offset), (stored, wanted) = page, data.draw(searches(distance))
    kind = pa.uint8() if distance == "hamming" else pa.float32()
    put(namespace, pa.table({"id": list(range(len(stored))), "v": vectors(stored, kind)}))
    options: dict[str, Any] = {"k": k, "offset": offset, "distance_type": distance}
    if odd:
        options |= {"filter": "id % 2 = 1", "prefilter": True}
    together = ask(namespace, vectors=wanted, **options)
    for i, vector in enumerate(wanted):
        exact = nearest(distance, stored, vector, lambda row: not odd or row % 2 == 1)
        alone = ask(namespace, vector=vector, **options)
        assert_nearest(alone, exact, k, offset)
        own = together.filter(pc.equal(together.column("query_index"), i))
        assert_nearest(own, exact, k, offset)


@often
@given(data=st.data(), k=st.integers(1, 30), low=st.integers(0, 60), width=st.integers(0, 60))
def test_bounds_keep_the_distances_between_them(
    namespace: MemoryNamespace, data: st.DataObject, k: int, low: int, width: int
) -> None:
    stored, (wanted, *_) = data.draw(searches("l2"))
    put(namespace, pa.table({"id": list(range(len(stored))), "v": vectors(stored)}))
    bounds: dict[str, Any] = {"lower_bound": low, "upper_bound": low + width}
    exact = nearest("l2", stored, wanted, lambda _: True)
    kept = {row: far for row, far in exact.items() if low <= far < low + width}
    assert_nearest(ask(namespace, k=k, vector=wanted, **bounds), kept, k, 0)


@pytest.mark.xfail(strict=True, reason="Lance takes `n in (0) and n in (1)` for false, not null")
def test_what_is_null_is_in_no_two_lists_and_not_out_of_them(namespace: MemoryNamespace) -> None:
    put(namespace, table_of([(None, None, None)]))
    assert ask(namespace, k=1, filter="not (n in (0) and n in (1))").num_rows == 0
