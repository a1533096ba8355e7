"""Processes commit to one table at once: every commit is a version of its own, and is there.

On real metastores of all releases, and on moto's Glue, which compares VersionId as AWS's does: see
`servers.glue_moto`.
"""

from __future__ import annotations

import pytest
from managed.building import described, require_exactly, require_nothing_left, require_true_reports
from managed.conftest import GLUE, GLUE_S3, NewTable
from managed.writers import Writers

pytestmark = pytest.mark.server


@pytest.mark.parametrize(
    ("catalog", "processes", "commits"),
    [
        (GLUE, 4, 5),
        (GLUE_S3, 4, 3),
        ("2.3", 4, 5),
        ("3.1", 4, 3),
        pytest.param(GLUE, 8, 25, marks=pytest.mark.slow),
        pytest.param("2.3", 8, 25, marks=pytest.mark.slow),
        pytest.param("4.2", 8, 25, marks=pytest.mark.slow),
        # They compare as 2.3 does.
        pytest.param("4.0", 4, 10, marks=pytest.mark.slow),
        pytest.param("4.1", 4, 10, marks=pytest.mark.slow),
    ],
)
def test_no_commit_of_many_writers_is_lost_or_made_twice(
    catalog: str, processes: int, commits: int, new_table: NewTable, writers: Writers
) -> None:
    table = new_table(catalog)
    reports = writers.run(table.jobs(processes, commits))
    print(catalog, described(reports))
    expected = [(writer, number) for writer in range(processes) for number in range(commits)]
    rows = require_exactly(table, expected)
    require_true_reports(rows, reports)
    require_nothing_left(table)
