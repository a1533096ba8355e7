"""daft-lance, unmodified, on each catalog."""

from __future__ import annotations

from typing import Any

import daft
import daft_lance
import lance
import pytest
from clients.catalogs import Backend, Database, rows
from clients.conftest import NewDatabase

pytestmark = [pytest.mark.server, pytest.mark.clients, pytest.mark.timeout(600)]


def by_name(database: Database) -> dict[str, Any]:
    """Return the arguments that say which table."""
    return {
        "namespace_impl": database.backend.class_path,
        "namespace_properties": database.properties,
        "table_id": database.id("t"),
    }


def write(database: Database, first: int = 0, **options: Any) -> None:
    daft_lance.write_lance(daft.from_arrow(rows(20, first)), **by_name(database), **options)


def open_dataset(database: Database) -> Any:
    with database.backend.connect() as namespace:
        return lance.dataset(namespace_client=namespace, table_id=database.id("t"))


def test_a_frame_is_written_and_read(database: Database) -> None:
    write(database)
    write(database, 20, mode="append")
    frame = daft_lance.read_lance(**by_name(database))
    found = frame.where(daft.col("id") >= 35).select("id").sort("id").to_pydict()
    assert found == {"id": [35, 36, 37, 38, 39]}
    write(database, mode="overwrite")
    assert open_dataset(database).count_rows() == 20


def test_indices_are_built_and_files_compacted(database: Database) -> None:
    write(database)
    write(database, 20, mode="append")
    daft_lance.create_scalar_index(**by_name(database), column="id", index_type="BTREE")
    assert len(open_dataset(database).describe_indices()) == 1
    daft_lance.compact_files(**by_name(database))
    assert len(open_dataset(database).get_fragments()) == 1


@pytest.fixture(params=["hive", "glue"])
def managed(request: pytest.FixtureRequest, new_database: NewDatabase) -> Database:
    """A namespace whose tables the catalog manages."""
    backend: Backend = request.getfixturevalue(request.param)
    return new_database(backend, managed_by="impl")


def test_commits_to_a_managed_table_go_through_the_catalog(managed: Database) -> None:
    write(managed)
    write(managed, 20, mode="append")
    assert open_dataset(managed).count_rows() == 40
    with managed.backend.connect() as namespace:
        assert namespace.list_out_of_band_versions(managed.id("t")).versions == ()
