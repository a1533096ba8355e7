"""Statistics of a table count what is there, and agree with Lance's directory namespace."""

from __future__ import annotations

from pathlib import Path

import lance
import lance_namespace as api
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis_profiles import examples
from lance_namespace import errors

from lance_bridge.dataset import SMALL_FRAGMENT
from lance_bridge.dataset.read import summarize_lengths

from .building import TABLE
from .evolving import build_index, create_table, dataset, rows
from .memory_catalog import MemoryNamespace

pytestmark = [pytest.mark.quick, pytest.mark.spec("operations.md#gettablestats")]

lengths_of_fragments = st.lists(st.integers(1, 3000), max_size=12)


def stats(ns: MemoryNamespace, branch: str | None = None) -> api.GetTableStatsResponse:
    return ns.get_table_stats(api.GetTableStatsRequest(id=TABLE, branch=branch))


def directory_stats(place: Path, lengths: list[int]) -> api.GetTableStatsResponse:
    """Return what the directory namespace says of a table with such fragments."""
    table = place / "t.lance"
    lance.write_dataset(pa.schema([("n", pa.int64())]).empty_table(), str(table), mode="overwrite")
    for length in lengths:
        lance.write_dataset(pa.table({"n": range(length)}), str(table), mode="append")
    namespace = api.connect("dir", {"root": str(place)})
    return namespace.get_table_stats(api.GetTableStatsRequest(id=["t"]))


@examples(15)
@given(lengths=lengths_of_fragments)
def test_the_spread_is_that_of_the_directory_namespace(
    tmp_path_factory: pytest.TempPathFactory, lengths: list[int]
) -> None:
    theirs = directory_stats(tmp_path_factory.mktemp("stats"), lengths).fragment_stats.lengths
    assert summarize_lengths(lengths) == theirs


def test_all_is_that_of_the_directory_namespace(ns_of_fragments: MemoryNamespace) -> None:
    place = Path(dataset(ns_of_fragments).uri)
    place.rename(place.with_name("same.lance"))
    directory = api.connect("dir", {"root": str(place.parent)})
    theirs = directory.get_table_stats(api.GetTableStatsRequest(id=["same"]))
    place.with_name("same.lance").rename(place)
    assert stats(ns_of_fragments) == theirs
    assert theirs.num_indices == 1


@pytest.fixture
def ns_of_fragments(namespace: MemoryNamespace) -> MemoryNamespace:
    create_table(namespace, rows(5))
    for count in (1, 40, 17):
        lance.write_dataset(rows(count), dataset(namespace).uri, mode="append")
    build_index(namespace, "id", "BTREE")
    return namespace


def test_deleted_rows_do_not_count(ns_of_fragments: MemoryNamespace) -> None:
    """The directory namespace counts them until a compaction."""
    lance.dataset(dataset(ns_of_fragments).uri).delete("id > 2")
    answer = stats(ns_of_fragments)
    assert answer.num_rows == dataset(ns_of_fragments).count_rows() == 10
    assert (answer.fragment_stats.lengths.min, answer.fragment_stats.lengths.max) == (1, 3)


def test_a_fragment_is_small_below_the_target_of_a_compaction(namespace: MemoryNamespace) -> None:
    create_table(namespace, pa.table({"n": pa.nulls(SMALL_FRAGMENT, pa.int8())}))
    assert stats(namespace).fragment_stats.num_small_fragments == 0
    lance.write_dataset(
        pa.table({"n": pa.nulls(1, pa.int8())}), dataset(namespace).uri, mode="append"
    )
    assert stats(namespace).fragment_stats.num_small_fragments == 1


def test_a_branch_has_statistics_of_its_own(ns_of_fragments: MemoryNamespace) -> None:
    branch = dataset(ns_of_fragments).create_branch("dev")
    branch.delete("true")
    assert stats(ns_of_fragments, "dev").num_rows == 0
    assert stats(ns_of_fragments, "main").num_rows == 63
    with pytest.raises(errors.TableBranchNotFoundError):
        stats(ns_of_fragments, "other")
