"""The same queries asked of pylance's directory namespace: the same answers, but for those below.

Where the two differ the specification decides, and the difference is a test of its own: it fails
when pylance changes its mind.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import lance
import lance_namespace as api
import pyarrow as pa
import pytest
from lance_namespace import errors

from .memory_catalog import MemoryNamespace
from .querying import ask, dataset, put, vectors
from .writing import directory, ipc

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


@dataclass(frozen=True)
class Both:
    ours: MemoryNamespace
    theirs: api.LanceNamespace

    def ask(self, **options: Any) -> tuple[pa.Table, pa.Table]:
        return ask(self.ours, **options), ask(self.theirs, TABLE, **options)


@pytest.fixture
def both(namespace: MemoryNamespace, tmp_path: Path) -> Both:
    """The same rows and indices in both."""
    put(namespace, ROWS)
    theirs = directory(tmp_path / "directory")
    theirs.create_table(api.CreateTableRequest(id=TABLE), ipc(ROWS))
    for opened in (dataset(namespace), lance.dataset(str(tmp_path / "directory" / "t.lance"))):
        opened.create_scalar_index("s", "INVERTED", with_position=True)
        opened.create_index("vector", "IVF_FLAT", num_partitions=1, metric="l2")
    return Both(namespace, theirs)


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
    ours, theirs = both.ask(**options)
    assert ours.schema == theirs.schema
    assert in_order(ours) == in_order(theirs)


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
        ask(both.theirs, TABLE, **options)
    with pytest.raises(errors.InvalidInputError):
        ask(both.ours, **options)


# -- where the two differ --------------------------------------------------------------------------


def test_k_rows_are_returned_after_the_offset_where_theirs_counts_those_before(both: Both) -> None:
    """``k`` is the "number of results to return", ``offset`` the "number of results to skip"."""
    ours, theirs = both.ask(k=5, offset=2, vector=NEAR, columns=["id"])
    assert (ours.num_rows, theirs.num_rows) == (5, 3)
    assert ours.slice(0, 3) == theirs


def test_each_of_several_vectors_is_searched_for_where_theirs_takes_the_first(both: Both) -> None:
    """``multi_vector`` is "multiple query vectors for batch search"."""
    ours, theirs = both.ask(k=2, vectors=[NEAR, [0.0, 0.0, 0.0]], columns=["id"])
    assert (ours.num_rows, theirs.num_rows) == (4, 2)


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
def test_what_is_wrong_with_a_request_has_its_code_where_theirs_is_internal(
    both: Both, options: dict[str, Any], code: type[errors.LanceNamespaceError]
) -> None:
    with pytest.raises(errors.InternalError):
        ask(both.theirs, TABLE, **options)
    with pytest.raises(code):
        ask(both.ours, **options)


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
def test_what_theirs_takes_no_notice_of_is_refused(both: Both, options: dict[str, Any]) -> None:
    ask(both.theirs, TABLE, **options)
    with pytest.raises(errors.LanceNamespaceError) as refused:
        ask(both.ours, **options)
    assert refused.value.code in (
        errors.ErrorCode.INVALID_INPUT,
        errors.ErrorCode.TABLE_BRANCH_NOT_FOUND,
    )


def test_rows_are_skipped_where_theirs_skips_none_because_k_is_0(both: Both) -> None:
    everything = ask(both.theirs, TABLE, k=0, offset=4)
    assert ask(both.ours, k=0, offset=4) == everything.slice(4)


def test_a_vector_and_a_text_are_searched_together_where_theirs_fails(both: Both) -> None:
    with pytest.raises(errors.InternalError):
        ask(both.theirs, TABLE, vector=NEAR, text="w1")
    assert ask(both.ours, vector=NEAR, text="w1").num_rows == 10


def test_matches_of_different_terms_are_searched_together_only_by_theirs(both: Both) -> None:
    """Pylance offers its Python callers no way to ask for that."""
    matches = [match("w1", column="s")["match"], match("b2", column="t")["match"]]
    text = {"multi_match": {"match_queries": matches}}
    assert ask(both.theirs, TABLE, text=text).num_rows == 10
    with pytest.raises(errors.UnsupportedOperationError, match="multi_match"):
        ask(both.ours, text=text)
