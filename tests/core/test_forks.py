"""Forked children: threads of the parent hold locks, and wait for answers, at the fork."""

from __future__ import annotations

import threading
from collections.abc import Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor

import pytest

from lance_bridge.catalog import Path, TableRecord
from lance_bridge.credentials import CredentialCache
from lance_bridge.forks import restart_in_children

from .building import TABLE, raising
from .forking import returns_in_child
from .memory_catalog import MemoryCatalog, MemoryNamespace, MemoryServer
from .vending import BEFORE, described, put

pytestmark = [pytest.mark.quick, pytest.mark.spec("common.md#concurrency-and-crash-safety")]

WAIT = 20


class Held:
    """An object whose lock is held at the fork."""

    def __init__(self) -> None:
        self.restart_in_child()
        restart_in_children(self)

    def restart_in_child(self) -> None:
        self.lock = threading.Lock()


def test_objects_restart_in_children_and_in_their_children() -> None:
    held = Held()

    def lock() -> None:
        assert held.lock.acquire(timeout=WAIT)

    def lock_and_fork() -> None:
        with held.lock:
            assert returns_in_child(lock)

    with held.lock:
        assert returns_in_child(lock_and_fork)
    assert held.lock.acquire(blocking=False)


def test_a_child_requests_credentials_that_its_parent_waits_for() -> None:
    cache, started, gate = CredentialCache(), threading.Event(), threading.Event()

    def vend() -> Mapping[str, str]:
        started.set()
        gate.wait(WAIT)
        return {"key": "parent's"}

    def ask_in_child() -> None:
        assert cache.get("table", lambda: {"key": "child's"}, most_seconds=60) == {"key": "child's"}

    with ThreadPoolExecutor(1) as threads:
        waiting = threads.submit(cache.get, "table", vend, most_seconds=60)
        assert started.wait(WAIT)
        try:
            assert returns_in_child(ask_in_child)
        finally:
            gate.set()
        assert waiting.result(WAIT) == {"key": "parent's"}


def test_a_child_has_the_credentials_that_its_parent_cached(
    vending: MemoryNamespace, log: str
) -> None:
    options = described(vending)

    def ask_in_child() -> None:
        BEFORE[log] = raising(AssertionError("The child has called the vendor"))
        assert described(vending) == options

    assert returns_in_child(ask_in_child)


def test_a_child_reads_the_locations_that_its_parent_is_reading(
    vending: MemoryNamespace, server: MemoryServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    started, gate, scan = threading.Event(), threading.Event(), MemoryCatalog.scan_tables
    put(server, "other", "s3://lake/tables/other.lance")

    def scan_slowly(self: MemoryCatalog, namespace: Path, **more: bool) -> Iterable[TableRecord]:
        started.set()
        gate.wait(WAIT)
        return scan(self, namespace, **more)  # type: ignore[arg-type]  # what it was called with

    def ask_in_child() -> None:
        monkeypatch.setattr(MemoryCatalog, "scan_tables", scan)
        assert described(vending, "other")

    monkeypatch.setattr(MemoryCatalog, "scan_tables", scan_slowly)
    with ThreadPoolExecutor(1) as threads:
        waiting = threads.submit(described, vending, TABLE[-1])
        assert started.wait(WAIT)
        try:
            assert returns_in_child(ask_in_child)
        finally:
            gate.set()
        assert waiting.result(WAIT)
