"""Tables of Lance are written as Parquet by a real session, and taken back."""

from __future__ import annotations

from pathlib import Path

import pytest
from migrate.export_checks import CHECKS
from migrate.sessions import hive_session
from servers.metastores import Metastores

pytestmark = [pytest.mark.server, pytest.mark.spark, pytest.mark.timeout(1500), pytest.mark.matrix]


def test_all_checks_hold_in_a_session_beside_a_metastore(
    metastores: Metastores, tmp_path: Path
) -> None:
    found = hive_session(metastores.get("2.3").uri, "migrate.export_checks", tmp_path, list(CHECKS))
    assert not found, "\n".join(f"{name}:\n{trace}" for name, trace in found.items())
