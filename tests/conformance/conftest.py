"""Fixtures of the tests of the kit's command."""

from __future__ import annotations

import pytest


@pytest.fixture
def runs(monkeypatch: pytest.MonkeyPatch) -> list[object]:
    """Runs of pytest, which are not made but noted here."""
    runs: list[object] = []

    def run(arguments: object, _plugins: object) -> int:
        runs.append(arguments)
        return 0

    monkeypatch.setattr(pytest, "main", run)
    return runs
