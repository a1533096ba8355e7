"""Searches by vector: options and columns that are honoured or refused by name."""

from __future__ import annotations

from typing import Any

import lance
import lance_namespace as api
import numpy as np
import pyarrow as pa
import pytest
from lance_namespace import errors

from lance_bridge.testing.calls import Calls

from .building import TABLE
from .memory_catalog import MemoryNamespace
from .querying import ask, dataset, put, request, vectors

pytestmark = [pytest.mark.quick, pytest.mark.spec("operations.md#querytable")]

DIMENSION = 4
NEAR = [1.0, 2.0, 3.0, 4.0]


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
