"""Functions and jobs in a client of Spark Connect, which has no JVM."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from servers.sparks import Remote, Spark

pytestmark = [
    pytest.mark.matrix,
    pytest.mark.spark,
    pytest.mark.timeout(600),
    pytest.mark.spec("docs/how-to/spark.md#what-was-run", "spark.md#spark-connect"),
]

EXPECTED: dict[str, dict[str, Any]] = {
    "functions": {
        "count": 10,
        "read": [0, 1, 2],
        "update": 2,
        "delete": 1,
        "merge": [2, 2],
        "rows": list(range(1, 12)),
        "versions": 5,
        "take": [2, 1],
        "restored": 10,
    },
    "searches": {"nearest": [0], "full_text": [3], "batch": [9]},
    "jobs": {
        "compact": 1,
        "index": "id_idx",
        "backfill": [2 * i for i in range(10)],
        "refresh": False,
        "view": [8, 9, 90],
        "clean_up": 0,
    },
}


@pytest.fixture(scope="module")
def remote(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Remote]:
    with Spark().connect(tmp_path_factory.mktemp("connect")) as found:
        yield found


@pytest.mark.parametrize("what", EXPECTED)
def test_a_client_of_spark_connect_does_all_that_a_session_does(
    remote: Remote, tmp_path: Path, what: str
) -> None:
    found = remote.run(
        f"spark.connect_jobs:{what}", tmp_path, seconds=500.0, directory=str(tmp_path)
    )
    assert found == EXPECTED[what]
