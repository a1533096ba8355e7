"""DeleteFromTable, and what update and delete share: predicates, branches, other writers."""

from __future__ import annotations

import os
from pathlib import Path

import lance
import lance_namespace as api
import pyarrow as pa
import pyarrow.compute as pc
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis_profiles import examples
from lance_namespace import errors

from lance_bridge.testing.concurrency import answers_only, race

from .changing import OLD, column, delete, update
from .memory_catalog import MemoryNamespace, MemoryServer
from .writing import dataset, directory, ipc, make, place, rows, unchanged

pytestmark = [
    pytest.mark.quick,
    pytest.mark.spec("operations.md#deletefromtable", "operations.md#updatetable"),
]

# -- predicates ------------------------------------------------------------------------------------

BAD_PREDICATES = ["id", "id + 1", "id = 'x'", "1 / (n - n) > 0", "cast(word as int) = 7"]
"""`test_expressions_everywhere` has what is no expression."""


@pytest.mark.parametrize("predicate", BAD_PREDICATES)
def test_a_bad_predicate_is_invalid_input_and_changes_nothing(
    namespace: MemoryNamespace, server: MemoryServer, predicate: str
) -> None:
    make(namespace, OLD)
    with unchanged(server, errors.InvalidInputError):
        delete(namespace, predicate)
    with unchanged(server, errors.InvalidInputError):
        update(namespace, ("n", "1"), predicate=predicate)


VALUES = st.lists(st.one_of(st.none(), st.integers(-3, 3)), max_size=12)


@examples(25, share_fixtures=True)
@given(values=VALUES, operator=st.sampled_from(["<", ">=", "=", "!="]), bound=st.integers(-3, 3))
def test_delete_and_update_agree_with_pyarrow(
    namespace: MemoryNamespace,
    server: MemoryServer,
    values: list[int | None],
    operator: str,
    bound: int,
) -> None:
    table = pa.table({"n": pa.array(values, pa.int64())})
    if not server.tables:
        make(namespace, table)
    lance.write_dataset(table, place(server), mode="overwrite")
    functions = {"<": pc.less, ">=": pc.greater_equal, "=": pc.equal, "!=": pc.not_equal}
    mask = pc.fill_null(functions[operator](table["n"], bound), False)
    predicate = f"n {operator} {bound}"
    answer = update(namespace, ("n", "n + 100"), predicate=predicate)
    assert answer.updated_rows == pc.sum(mask).as_py() or not values
    changed = pc.if_else(mask, pc.add(table["n"], 100), table["n"])
    assert sorted(rows(server), key=repr) == sorted(pa.table({"n": changed}).to_pylist(), key=repr)
    lance.write_dataset(table, place(server), mode="overwrite")
    delete(namespace, predicate)
    kept = table.filter(pc.invert(mask)).to_pylist()
    assert sorted(rows(server), key=repr) == sorted(kept, key=repr)


def test_the_answers_are_those_of_pylances_directory_namespace(
    namespace: MemoryNamespace, server: MemoryServer, tmp_path: Path
) -> None:
    theirs = directory(tmp_path / "theirs")
    make(namespace, OLD)
    theirs.create_table(api.CreateTableRequest(id=["t"]), ipc(OLD))
    ours = update(namespace, ("n", "n + 1"), predicate="id < 3")
    pairs = [["n", "n + 1"]]
    request = api.UpdateTableRequest(id=["t"], updates=pairs, predicate="id < 3")
    expected = theirs.update_table(request)
    assert (ours.updated_rows, ours.version) == (expected.updated_rows, expected.version)
    deleted = theirs.delete_from_table(api.DeleteFromTableRequest(id=["t"], predicate="n = 2"))
    assert delete(namespace, "n = 2").version == deleted.version
    left = lance.dataset(str(tmp_path / "theirs" / "t.lance")).to_table().to_pylist()
    assert rows(server) == sorted(left, key=repr)


# -- branches, declared tables, other writers, storage ---------------------------------------------


def test_threads_that_update_lose_nothing(namespace: MemoryNamespace, server: MemoryServer) -> None:
    make(namespace, OLD)

    def work(_: int) -> None:
        for _ in range(4):
            update(namespace, ("id", "id + 10"), predicate="word = 'a'")

    answers_only(race(work, 3))
    assert column(server, "id") == [2, 3, 121]


def test_a_failure_of_storage_is_service_unavailable(
    namespace: MemoryNamespace, server: MemoryServer
) -> None:
    make(namespace, OLD)
    data = os.path.join(place(server), "data")
    for name in os.listdir(data):
        os.remove(os.path.join(data, name))
    with pytest.raises(errors.ServiceUnavailableError, match="Orders"):
        delete(namespace, "id = 1")
    with pytest.raises(errors.ServiceUnavailableError, match="Orders"):
        update(namespace, ("n", "id"))
    assert dataset(server).version == 1
