"""Queries that read rows: which rows, which columns, of which state of a table, in what form."""

from __future__ import annotations

from typing import Any

import lance
import lance_namespace as api
import pyarrow as pa
import pytest
from lance_namespace import errors

from lance_bridge.testing.calls import Calls

from .building import TABLE, create
from .memory_catalog import MemoryNamespace
from .querying import answer, ask, dataset, put, request, vectors

pytestmark = [pytest.mark.quick, pytest.mark.spec("operations.md#querytable")]

ROWS = pa.table(
    {
        "id": list(range(20)),
        "word": [f"word {i % 3}" for i in range(20)],
        "inner": [{"x": i, "y": str(i)} for i in range(20)],
        "v": vectors([[i, 1.0] for i in range(20)]),
    }
)


@pytest.fixture
def filled(namespace: MemoryNamespace) -> MemoryNamespace:
    put(namespace, ROWS)
    return namespace


# -- rows ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("options", [{"k": -1}, {"offset": -1}])
def test_a_negative_number_is_invalid_input(
    filled: MemoryNamespace, options: dict[str, int]
) -> None:
    # The model refuses them; a caller may have made it without a check.
    bad = request().model_copy(update=options)
    with pytest.raises(errors.InvalidInputError, match="0 or more"):
        filled.query_table(bad)


@pytest.mark.parametrize("options", [{"k": 2**70}, {"offset": 2**70, "k": 2**70}])
def test_a_number_that_lance_cannot_take_is_invalid_input(
    filled: MemoryNamespace, options: dict[str, Any]
) -> None:
    with pytest.raises(errors.InvalidInputError, match="does not fit"):
        ask(filled, **options)


# -- versions and branches, and plans --------------------------------------------------------------


@pytest.fixture
def branched(filled: MemoryNamespace) -> Calls:
    """The same with 15 rows in its second version, and 10 on the branch ``dev``."""
    dataset(filled).create_branch("dev", 1).delete("id < 10")
    dataset(filled).delete("id < 5")
    return Calls(filled)


@pytest.mark.parametrize(
    ("at", "rows"),
    [
        ({}, 15),
        ({"branch": "main"}, 15),
        ({"version": 1}, 20),
        ({"branch": "dev"}, 10),
        ({"branch": "dev", "version": 1}, 20),
    ],
    ids=str,
)
def test_a_query_and_a_count_see_the_version_and_the_branch(
    branched: Calls, at: dict[str, Any], rows: int
) -> None:
    assert branched.count(TABLE, **at) == rows
    for vector in (None, [0.0, 1.0]):
        assert ask(branched.client, k=100, vector=vector, **at).num_rows == rows


# -- columns ---------------------------------------------------------------------------------------


def test_columns_come_in_the_order_of_their_names(filled: MemoryNamespace) -> None:
    assert ask(filled, columns=["word", "id"]).schema.names == ["word", "id"]
    assert ask(filled, columns=["inner.y"], k=2).to_pylist() == [
        {"inner.y": "0"},
        {"inner.y": "1"},
    ]
    assert ask(filled, columns=[], k=1).schema.names == ROWS.schema.names


def test_an_alias_of_a_missing_column_is_column_not_found(filled: MemoryNamespace) -> None:
    with pytest.raises(errors.TableColumnNotFoundError, match="does not fit"):
        ask(filled, columns={"id": "id", "other": "_distance"})


@pytest.mark.parametrize(
    "source", ["distinct id", "top 5 id", "1", "distinct ?", "'?' || ? || 'it''s'"]
)
def test_an_alias_of_what_is_not_one_value_is_invalid_input(
    filled: MemoryNamespace, source: str
) -> None:
    with pytest.raises(errors.InvalidInputError, match=r"does not fit|one value"):
        ask(filled, columns={"other": source})


def test_an_alias_that_fails_on_a_row_is_invalid_input(filled: MemoryNamespace) -> None:
    with pytest.raises(errors.InvalidInputError, match="Divide by zero"):
        ask(filled, columns={"other": "1 / (id - 3)"})
    reader = filled.query_table_reader(request(columns={"other": "1 / (id - 3)"}))
    with pytest.raises(errors.InvalidInputError, match="Divide by zero"):
        reader.read_all()


def test_columns_that_contradict_each_other_are_invalid_input(filled: MemoryNamespace) -> None:
    with pytest.raises(errors.InvalidInputError, match="twice"):
        ask(filled, columns=["id", "word", "id"])
    both = {"column_names": ["id"], "column_aliases": {"n": "id"}}
    with pytest.raises(errors.InvalidInputError, match="together"):
        filled.query_table(api.QueryTableRequest.model_validate({**_plain(), "columns": both}))
    with pytest.raises(errors.InvalidInputError, match="'_rowid' is added by searches"):
        ask(filled, columns={"_rowid": "id"})


# -- the form of the answer ------------------------------------------------------------------------


def test_dictionaries_of_several_fragments_fit_in_one_file(namespace: MemoryNamespace) -> None:
    first = pa.table({"d": pa.array(["a", "b", None]).dictionary_encode()})
    put(namespace, first)
    second = pa.table({"d": pa.array(["c", "a"]).dictionary_encode()})
    lance.write_dataset(second, dataset(namespace).uri, mode="append")
    assert ask(namespace).column("d").to_pylist() == ["a", "b", None, "c", "a"]


def test_a_reader_gives_batches_as_they_are_read(namespace: MemoryNamespace) -> None:
    create(namespace, TABLE, rows=100_000)
    reader = namespace.query_table_reader(request(k=0, filter="a % 2 = 0"))
    sizes = [batch.num_rows for batch in reader]
    assert len(sizes) > 1
    assert sum(sizes) == 50_000


def test_a_reader_raises_what_is_wrong_before_the_first_batch(filled: MemoryNamespace) -> None:
    with pytest.raises(errors.TableColumnNotFoundError, match="nope"):
        filled.query_table_reader(request(filter="nope = 1"))


# -- plans -----------------------------------------------------------------------------------------


def explain(ns: MemoryNamespace, **options: Any) -> str:
    query = {**_plain(), **options.pop("query", {})}
    return ns.explain_table_query_plan(
        api.ExplainTableQueryPlanRequest.model_validate({"query": query, **options})
    )


@pytest.mark.spec("operations.md#explaintablequeryplan")
def test_a_plan_of_another_table_than_the_request_names_is_refused(
    filled: MemoryNamespace,
) -> None:
    with pytest.raises(errors.InvalidInputError, match="another `id`"):
        explain(filled, id=[*TABLE[:-1], "Other"])
    with pytest.raises(errors.InvalidInputError, match="another `branch`"):
        explain(filled, id=TABLE, branch="a", query={"branch": "b"})
    with pytest.raises(errors.TableBranchNotFoundError, match="'a'"):
        explain(filled, branch="a")


def _plain() -> dict[str, Any]:
    return {"id": TABLE, "vector": {}, "k": 10}


def test_answers_of_two_requests_are_alike_however_they_are_read(
    filled: MemoryNamespace,
) -> None:
    asked = request(k=5, filter="id > 3", with_row_id=True)
    assert filled.query_table_reader(asked).read_all() == answer(filled.query_table(asked))
