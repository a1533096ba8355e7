"""lance-ray, unmodified: reads and writes by Ray's worker processes, on each catalog."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import lance
import lance_namespace as api
import lance_ray
import pyarrow as pa
import pyarrow.compute as pc
import pytest
import ray
from clients.catalogs import Database, rows

from lance_bridge.records import FOREIGN_COMMITS, ForeignCommits

pytestmark = [
    pytest.mark.clients,
    pytest.mark.usefixtures("ray_cluster"),
    pytest.mark.spec("clients.md#lance-ray"),
]

COUNT = 40


def write(database: Database, first: int = 0, **options: Any) -> None:
    data = ray.data.from_arrow([rows(COUNT // 2, first), rows(COUNT // 2, first + COUNT // 2)])
    lance_ray.write_lance(data, **database.by_name(), **options)


def test_workers_write_and_read_a_table(database: Database) -> None:
    write(database)
    assert database.open().count_rows() == COUNT
    write(database, COUNT, mode="append")
    found = lance_ray.read_lance(**database.by_name(), columns=["id"], filter="id >= 10")
    assert sorted(row["id"] for row in found.take_all()) == list(range(10, 2 * COUNT))
    write(database, mode="overwrite")
    assert database.open().count_rows() == COUNT


def new_transform() -> Callable[[pa.RecordBatch], pa.RecordBatch]:
    """Return a function that is sent to workers as it is: they cannot import this module."""

    def double(batch: pa.RecordBatch) -> pa.RecordBatch:
        return pa.RecordBatch.from_arrays([pc.multiply(batch["id"], 2)], ["twice"])

    return double


def test_workers_add_columns_compact_and_build_indices(database: Database) -> None:
    write(database)
    write(database, COUNT, mode="append")
    lance_ray.add_columns(**database.by_name(), transform=new_transform(), read_columns=["id"])
    assert database.open().to_table(filter="id = 4")["twice"].to_pylist() == [8]
    # First: fragments of different segments of an index are not compacted into one.
    lance_ray.compact_files(**database.by_name())
    assert len(database.open().get_fragments()) == 1
    assert database.open().count_rows() == 2 * COUNT
    lance_ray.create_scalar_index(**database.by_name(), column="id", index_type="BTREE")
    [index] = database.open().describe_indices()
    assert index.field_names == ["id"]


@pytest.fixture
def filled(managed: Database) -> Database:
    """A namespace whose tables the catalog manages, with a table `t`."""
    with managed.backend.connect() as namespace:
        lance.write_dataset(rows(COUNT), namespace_client=namespace, table_id=managed.id("t"))
    return managed


def past_the_catalog(database: Database) -> int:
    """Return how many versions of `t` were not committed through the catalog.

    Opening the table since may have quarantined them.
    """
    with database.backend.connect() as namespace:
        found = namespace.list_out_of_band_versions(database.id("t"))
    return len(found.versions) + len(found.quarantined)


def test_a_managed_table_is_read(filled: Database) -> None:
    assert lance_ray.read_lance(**filled.by_name()).count() == COUNT


CHANGES: dict[str, Callable[[Database], None]] = {
    "append": lambda db: write(db, COUNT, mode="append"),
    "columns": lambda db: lance_ray.add_columns(
        **db.by_name(), transform=new_transform(), read_columns=["id"]
    ),
    "index": lambda db: lance_ray.create_scalar_index(
        **db.by_name(), column="id", index_type="BTREE"
    ),
    "overwrite": lambda db: write(db, mode="overwrite"),
}
every_change = pytest.mark.parametrize("change", CHANGES)


@pytest.mark.spec("clients.md#which-writers-commit-through-the-catalog")
@every_change
def test_writes_to_a_managed_table_are_past_the_catalog(filled: Database, change: str) -> None:
    CHANGES[change](filled)
    dataset = filled.open()
    assert (dataset.version, dataset.count_rows()) == (1, COUNT)
    assert past_the_catalog(filled) == 1
    with filled.backend.connect() as namespace:
        namespace.adopt_out_of_band_versions(filled.id("t"))
        request = api.DescribeTableRequest(id=filled.id("t"), load_detailed_metadata=True)
        assert namespace.describe_table(request).version == 2


@every_change
def test_writes_are_adopted_where_the_table_says_so(filled: Database, change: str) -> None:
    with filled.backend.connect() as namespace:
        table = namespace.tables.load_by_id(filled.id("t"))
        table.set_properties({FOREIGN_COMMITS: ForeignCommits.ADOPT.value})
    CHANGES[change](filled)
    dataset = filled.open()
    assert dataset.version == 2
    assert dataset.count_rows() == (2 * COUNT if change == "append" else COUNT)
    assert past_the_catalog(filled) == 0
