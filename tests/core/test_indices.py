"""Indices are built, listed, described and dropped."""

from __future__ import annotations

import json
from typing import Any

import lance
import lance_namespace as api
import pytest
from lance_namespace import errors

from lance_bridge.extended_requests import ReplacingIndexRequest

from .building import DATASET, TABLE, create
from .evolving import (
    ROWS,
    build_index,
    dataset,
    last_transaction,
    list_indices,
    rows,
)
from .memory_catalog import MemoryNamespace

pytestmark = pytest.mark.quick


def names(ns: MemoryNamespace, **more: Any) -> list[str]:
    return [index.index_name for index in list_indices(ns, **more).indexes]


def describe(
    ns: MemoryNamespace, name: str | None, **more: Any
) -> api.DescribeTableIndexStatsResponse:
    request = api.DescribeTableIndexStatsRequest(id=TABLE, index_name=name, **more)
    return ns.describe_table_index_stats(request)


def drop_index(ns: MemoryNamespace, name: str | None, **more: Any) -> str | None:
    request = api.DropTableIndexRequest(id=TABLE, index_name=name, **more)
    return ns.drop_table_index(request).transaction_id


# -- create --------------------------------------------------------------------------------------


def test_a_nested_column_can_be_indexed(ns: MemoryNamespace) -> None:
    build_index(ns, "st.`a.b`", "BTREE", name="nested")
    (index,) = list_indices(ns).indexes
    assert (index.index_name, index.columns) == ("nested", ["st.`a.b`"])


@pytest.mark.spec("operations.md#createtableindex", "operations.md#createtablescalarindex")
@pytest.mark.parametrize("more", [{}, {"name": "id_idx"}])
def test_a_name_is_taken_once(ns: MemoryNamespace, more: dict[str, str]) -> None:
    build_index(ns, "id", "BTREE")
    with pytest.raises(errors.TableIndexAlreadyExistsError, match="'id_idx'"):
        build_index(ns, "id", "BITMAP", **more)
    assert dataset(ns).version == 2


@pytest.mark.spec("server.md#sorting-and-replacing-indices")
def test_an_index_of_the_same_column_is_replaced_where_that_is_asked_for(
    ns: MemoryNamespace,
) -> None:
    def replace(column: str, index_type: str, **more: str) -> None:
        request = {"id": TABLE, "column": column, "index_type": index_type, "replace": True, **more}
        ns.create_table_index(ReplacingIndexRequest.model_validate(request))

    replace("st.`a.b`", "BTREE")
    replace("st.`a.b`", "BITMAP")
    (index,) = list_indices(ns).indexes
    assert (index.index_name, index.index_type) == ("st.`a.b`_idx", "BITMAP")
    with pytest.raises(errors.TableIndexAlreadyExistsError, match=r"'st\.`a\.b`_idx'"):
        replace("id", "BTREE", name="st.`a.b`_idx")
    assert [each.index_type for each in list_indices(ns).indexes] == ["BITMAP"]


@pytest.mark.spec("operations.md#createtableindex")
@pytest.mark.parametrize("name", ["", "a\0b", "\ud800", "__lance_frag_reuse", "__lance_mem_wal"])
def test_a_name_that_an_index_cannot_have_changes_nothing(ns: MemoryNamespace, name: str) -> None:
    with pytest.raises(errors.InvalidInputError, match="name"):
        build_index(ns, "id", "BTREE", name=name)
    assert dataset(ns).version == 1


@pytest.mark.spec("operations.md#createtableindex", "operations.md#createtablescalarindex")
def test_a_missing_column_is_not_found(ns: MemoryNamespace) -> None:
    with pytest.raises(errors.TableColumnNotFoundError, match="nope"):
        build_index(ns, "nope", "BTREE")
    with pytest.raises(errors.TableColumnNotFoundError, match="ID"):
        build_index(ns, "ID", "BTREE")


@pytest.mark.spec("operations.md#createtablescalarindex")
def test_scalar_indices_have_a_request_of_their_own(ns: MemoryNamespace) -> None:
    def request(column: str, kind: str) -> api.CreateTableIndexRequest:
        return api.CreateTableIndexRequest(id=TABLE, column=column, index_type=kind)

    answer = ns.create_table_scalar_index(request("text", "FTS"))
    assert answer.transaction_id == last_transaction(ns)
    with pytest.raises(errors.InvalidInputError, match="use CreateTableIndex"):
        ns.create_table_scalar_index(request("vector", "IVF_FLAT"))
    assert names(ns) == ["text_idx"]


@pytest.mark.spec("operations.md#createtableindex", "operations.md#createtablescalarindex")
def test_a_commit_in_between_is_a_concurrent_modification(
    ns: MemoryNamespace, monkeypatch: pytest.MonkeyPatch
) -> None:
    behind, uri = lance.dataset, dataset(ns).uri
    lance.write_dataset(rows(), uri, mode="overwrite")
    monkeypatch.setattr(lance, "dataset", lambda *_, **__: behind(uri, version=1))
    with pytest.raises(errors.ConcurrentModificationError):
        build_index(ns, "id", "BTREE")


# -- list ----------------------------------------------------------------------------------------


def test_the_list_is_that_of_the_directory_namespace(ns: MemoryNamespace, tmp_path: Any) -> None:
    for column, kind in (("id", "BTREE"), ("text", "FTS"), ("vector", "IVF_FLAT")):
        build_index(ns, column, kind)
    place = tmp_path / "dir/t.lance"
    dataset(ns).deep_clone(str(place), dataset(ns).version)
    directory = api.connect("dir", {"root": str(place.parent)})
    theirs = directory.list_table_indices(api.ListTableIndicesRequest(id=["t"])).indexes
    for ours, other in zip(list_indices(ns).indexes, theirs, strict=True):
        left, right = ours.to_dict(), other.to_dict()
        for answer in (left, right):
            # The specification has BTREE where the directory namespace says BTree, and so on.
            answer["index_type"] = answer["index_type"].upper().replace("INVERTED", "FTS")
            answer["index_details"] = json.loads(answer["index_details"])
        assert left == right
    assert [describe(ns, name).index_type for name in names(ns)] == ["BTREE", "FTS", "IVF_FLAT"]


def test_indices_come_in_pages_by_name(ns: MemoryNamespace) -> None:
    for name in ("c", "a", "b"):
        build_index(ns, "id", "BTREE", name=name)
    first = list_indices(ns, limit=2)
    assert [index.index_name for index in first.indexes] == ["a", "b"]
    rest = list_indices(ns, limit=2, page_token=first.page_token)
    assert [index.index_name for index in rest.indexes] == ["c"]
    assert rest.page_token is None
    create(ns, [*DATASET, "other"])
    with pytest.raises(errors.InvalidInputError, match="page_token"):
        ns.list_table_indices(
            api.ListTableIndicesRequest(id=[*DATASET, "other"], page_token=first.page_token)
        )
    with pytest.raises(errors.InvalidInputError, match="limit"):
        list_indices(ns, limit=0)


def test_lance_s_own_indices_are_not_listed(ns: MemoryNamespace) -> None:
    uri = dataset(ns).uri
    lance.write_dataset(rows(5), uri, mode="append")
    build_index(ns, "id", "BTREE")
    lance.dataset(uri).optimize.compact_files(defer_index_remap=True)
    assert len(dataset(ns).describe_indices()) == 2
    assert names(ns) == ["id_idx"]


# -- describe ------------------------------------------------------------------------------------


def test_statistics_of_a_vector_index_have_its_distance(ns: MemoryNamespace) -> None:
    build_index(ns, "vector", "IVF_FLAT", distance_type="dot", name="v")
    lance.write_dataset(rows(5), dataset(ns).uri, mode="append")
    answer = describe(ns, "v")
    assert (answer.distance_type, answer.index_type) == ("dot", "IVF_FLAT")
    assert (answer.num_indexed_rows, answer.num_unindexed_rows) == (ROWS, 5)
    assert answer.num_indices == 1


def test_statistics_agree_with_lance_s_own(ns: MemoryNamespace) -> None:
    build_index(ns, "id", "BTREE")
    uri = dataset(ns).uri
    lance.write_dataset(rows(5), uri, mode="append")
    lance.dataset(uri).optimize.optimize_indices(num_indices_to_merge=0)
    lance.dataset(uri).delete("id < 10")
    lance.write_dataset(rows(7), uri, mode="append")
    answer, expected = describe(ns, "id_idx"), dataset(ns).stats.index_stats("id_idx")
    for key in ("num_indexed_rows", "num_unindexed_rows", "num_indices"):
        assert getattr(answer, key) == expected[key], key
    assert answer.distance_type is None


# -- drop ----------------------------------------------------------------------------------------


@pytest.mark.spec("operations.md#describetableindexstats", "operations.md#droptableindex")
@pytest.mark.parametrize("call", [describe, drop_index])
def test_a_missing_index_is_not_found(ns: MemoryNamespace, call: Any) -> None:
    for name in ("nope", "", "__lance_frag_reuse"):
        with pytest.raises(errors.TableIndexNotFoundError, match="no index"):
            call(ns, name)
    with pytest.raises(errors.InvalidInputError, match="index_name"):
        call(ns, None)
    assert dataset(ns).version == 1


def test_a_branch_has_indices_of_its_own(ns: MemoryNamespace) -> None:
    dataset(ns).create_branch("dev")
    build_index(ns, "id", "BTREE", branch="dev")
    assert names(ns, branch="dev") == ["id_idx"]
    assert names(ns) == []
    assert describe(ns, "id_idx", branch="dev").num_indexed_rows == ROWS
    drop_index(ns, "id_idx", branch="dev")
    assert names(ns, branch="dev") == []
    with pytest.raises(errors.TableBranchNotFoundError):
        names(ns, branch="other")
