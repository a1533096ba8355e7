"""Governed tables keep every acknowledged row, in any order of commits, clean-ups and repairs."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, Phase, settings
from hypothesis.stateful import run_state_machine_as_test
from servers.glue_server import GlueServer
from servers.metastores import Metastores

from .stateful import GovernedTableMachine
from .tables import new_home

pytestmark = [
    pytest.mark.hypothesis,
    pytest.mark.filterwarnings("ignore:optimize.cleanup_older_than=0:UserWarning"),
    pytest.mark.spec(
        "managed.md#out-of-band-versions",
        "managed.md#commits-that-bypass-the-catalog",
        "managed.md#a-latest-version-that-is-gone",
    ),
]

EXAMPLE = Path(__file__).parents[2] / "examples" / "sqlite-catalog" / "src"
FEW = 8
MANY = int(os.environ.get("LANCE_BRIDGE_TEST_EXAMPLES", "2000"))
"""How many sequences the slow test tries in SQLite; on each real catalog, a tenth of them."""
STEPS = 20


@pytest.fixture(autouse=True)
def example(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """The catalog of the examples, in a configuration of the test's own."""
    monkeypatch.syspath_prepend(str(EXAMPLE))
    monkeypatch.setenv("LANCE_BRIDGE_CONFIG", str(tmp_path / "config.yaml"))


def run(directory: Path, count: int, properties: Mapping[str, str] | None = None) -> None:
    """Try sequences, on a catalog with these properties, or on new ones in SQLite files."""
    factory: Any = lambda: GovernedTableMachine(lambda: new_home(directory, properties))  # noqa: E731 - Any
    run_state_machine_as_test(
        factory,
        settings=settings(
            max_examples=count,
            stateful_step_count=STEPS,
            report_multiple_bugs=False,
            suppress_health_check=list(HealthCheck),
            phases=[Phase.generate, Phase.shrink],
        ),
    )


@pytest.mark.servers
def test_no_row_is_lost_in_a_few_sequences(tmp_path: Path) -> None:
    run(tmp_path, FEW)


@pytest.mark.slow
@pytest.mark.timeout(14400)
def test_no_row_is_lost_in_many_sequences(tmp_path: Path) -> None:
    run(tmp_path, MANY)


@pytest.mark.slow
@pytest.mark.timeout(7200)
@pytest.mark.parametrize("release", ["2.3", "3.1", "4.2"])
def test_no_row_is_lost_on_hive(release: str, metastores: Metastores, tmp_path: Path) -> None:
    uri = f"thrift://127.0.0.1:{metastores.get(release).port}"
    run(tmp_path, MANY // 10, {"impl": "hive", "uri": uri})


@pytest.mark.slow
@pytest.mark.timeout(7200)
def test_no_row_is_lost_on_glue(glue_server: GlueServer, tmp_path: Path) -> None:
    run(tmp_path, MANY // 10, {"impl": "glue", **glue_server.properties})
