"""A client writes to the storage of a managed table, past the catalog, while others commit."""

from __future__ import annotations

import time

import lance
import lance_namespace as api
import pytest
from managed.building import (
    FIRST,
    described,
    difference,
    location_of,
    require_true_reports,
    rows_of,
)
from managed.conftest import GLUE, NewTable
from managed.writer import row
from managed.writers import Writers

pytestmark = pytest.mark.server

FOREIGN = 666
PROCESSES, COMMITS = 4, 5
_POLL = 0.1


@pytest.mark.parametrize("catalog", [GLUE, pytest.param("2.3", marks=pytest.mark.slow)])
def test_rows_that_were_written_past_the_catalog_never_show_up(
    catalog: str, new_table: NewTable, writers: Writers
) -> None:
    table = new_table(catalog)
    with table.connect() as namespace:
        place = location_of(namespace, table)
        written = 0
        with writers.running(table.jobs(PROCESSES, COMMITS)) as work:
            latest = 0
            while not work.is_done:
                # Without a pause, the others would never commit.
                if table.state().version > latest:
                    latest = table.state().version
                    written += write_past_the_catalog(place)
                time.sleep(_POLL)
            reports = work.reports()
        print(catalog, written, described(reports))
        expected = [(writer, number) for writer in range(PROCESSES) for number in range(COMMITS)]
        rows = rows_of(namespace, table)
        wanted = sorted([FIRST, *expected])
        assert sorted(rows) == wanted, difference(rows, wanted)
        require_true_reports(rows, reports)
        assert written > 0
        found = namespace.list_out_of_band_versions(table.id)
        assert found.versions or found.quarantined
        namespace.discard_out_of_band_versions(table.id)
        latest = len(rows)
        assert table.state().version == latest
        listed = namespace.list_table_versions(api.ListTableVersionsRequest(id=table.id)).versions
        assert [each.version for each in listed] == list(range(1, latest + 1))


def write_past_the_catalog(place: str) -> bool:
    """Append a row where the data is; return whether that worked, for manifests may vanish."""
    try:
        lance.write_dataset(row(FOREIGN, 0), place, mode="append")
    except OSError:
        return False
    return True
