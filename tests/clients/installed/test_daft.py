"""daft-lance, unmodified, on each catalog."""

from __future__ import annotations

from typing import Any

import daft
import daft_lance
import pytest
from clients.catalogs import Database, rows

pytestmark = [
    pytest.mark.clients,
    pytest.mark.spec(
        "clients.md#daft-lance", "clients.md#which-writers-commit-through-the-catalog"
    ),
]


def write(database: Database, first: int = 0, **options: Any) -> None:
    daft_lance.write_lance(daft.from_arrow(rows(20, first)), **database.by_name(), **options)


def test_a_frame_is_written_and_read(database: Database) -> None:
    write(database)
    write(database, 20, mode="append")
    frame = daft_lance.read_lance(**database.by_name())
    found = frame.where(daft.col("id") >= 35).select("id").sort("id").to_pydict()
    assert found == {"id": [35, 36, 37, 38, 39]}
    write(database, mode="overwrite")
    assert database.open().count_rows() == 20


def test_indices_are_built_and_files_compacted(database: Database) -> None:
    write(database)
    write(database, 20, mode="append")
    daft_lance.create_scalar_index(**database.by_name(), column="id", index_type="BTREE")
    assert len(database.open().describe_indices()) == 1
    daft_lance.compact_files(**database.by_name())
    assert len(database.open().get_fragments()) == 1


def test_commits_to_a_managed_table_go_through_the_catalog(managed: Database) -> None:
    write(managed)
    write(managed, 20, mode="append")
    assert managed.open().count_rows() == 40
    with managed.backend.connect() as namespace:
        assert namespace.list_out_of_band_versions(managed.id("t")).versions == ()
