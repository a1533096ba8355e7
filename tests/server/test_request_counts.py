"""Requests that those who share a file count together."""

from __future__ import annotations

import os
import sqlite3
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from lance_namespace.errors import ServiceUnavailableError

from lance_bridge_server.request_counts import RequestCounts

pytestmark = [pytest.mark.quick, pytest.mark.spec("server.md#principal-limits")]

MINUTE = 60.0


def test_those_who_share_a_file_count_together(tmp_path: Path) -> None:
    file = tmp_path / "counts"

    def add_many(count: int) -> int:
        counts = RequestCounts(file)
        return sum(not counts.add("ann", 50, MINUTE) for _ in range(count))

    with ThreadPoolExecutor(4) as threads:
        assert sum(threads.map(add_many, [40] * 4)) == 50
    assert 0 < RequestCounts(file).add("ann", 50, MINUTE) <= MINUTE
    assert not RequestCounts(file).add("bob", 50, MINUTE)


def test_what_was_counted_long_ago_is_forgotten(tmp_path: Path) -> None:
    counts = RequestCounts(tmp_path / "counts")
    assert not counts.add("ann", 1, seconds=0.0)
    assert not counts.add("ann", 1, MINUTE)
    assert counts.wait("ann", 1)
    rows = sqlite3.connect(tmp_path / "counts").execute("SELECT count(*) FROM recent")
    assert rows.fetchone() == (1,)


def test_what_a_dead_process_has_begun_is_forgotten(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    counts, dead = RequestCounts(tmp_path / "counts"), os.getpid() + 1
    with monkeypatch.context() as other:
        other.setattr(os, "getpid", lambda: dead)
        assert RequestCounts(tmp_path / "counts").begin("ann", 2)
    assert counts.begin("ann", 2)
    assert not counts.begin("ann", 2)
    counts.forget_process(dead)
    assert counts.begin("ann", 2)
    assert not counts.begin("ann", 2)


def test_a_file_that_cannot_be_used_counts_nothing(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    counts = RequestCounts(tmp_path / "counts")
    assert counts.begin("ann", 1)
    other = sqlite3.connect(tmp_path / "counts", isolation_level=None)
    other.execute("BEGIN IMMEDIATE")
    with pytest.raises(ServiceUnavailableError, match="nothing was done"):
        counts.add("ann", 1, MINUTE)
    counts.end("ann")
    assert "limits cannot be checked" in caplog.text
    other.execute("ROLLBACK")
    assert not counts.add("ann", 1, MINUTE)
    assert not counts.begin("ann", 1)  # not uncounted yet
    assert counts.begin("ann", 2)
    counts.end("ann")
    assert counts.begin("ann", 1)
