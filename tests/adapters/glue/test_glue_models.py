"""What botocore reads of AWS's services: once for the process, not for each namespace."""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, ClassVar

import pytest
from botocore.loaders import JSONFileLoader
from servers.glue_server import ROLE, GlueServer

from lance_bridge_glue import GlueConfig, session

from .building import Connect

THREADS = 8


class CountingLoader(JSONFileLoader):  # type: ignore[misc]  # botocore has no types
    """Notes which files it has read."""

    read: ClassVar[list[str]] = []

    def load_file(self, file_path: str) -> Any:
        found = super().load_file(file_path)
        if found is not None:
            self.read.append("/".join(Path(file_path).parts[-3::2]))
        return found


@pytest.fixture
def read(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[str]]:
    """The models that are read during the test, as if it were the first in the process."""
    monkeypatch.setattr(session._Models, "FILE_LOADER_CLASS", CountingLoader)
    monkeypatch.setattr(CountingLoader, "read", [])
    session._models.cache_clear()
    session._models(None)
    yield CountingLoader.read
    session._models.cache_clear()


@pytest.mark.servers
def test_models_are_read_once_for_all_namespaces_and_threads(
    connect: Connect, server: GlueServer, read: list[str]
) -> None:
    start = threading.Barrier(THREADS)

    def work(_: int) -> bool:
        calls = connect(assume_role_arn=ROLE, assume_role_endpoint=server.endpoint)
        start.wait()
        return calls.all_namespaces([]) is not None

    with ThreadPoolExecutor(THREADS) as pool:
        assert all(pool.map(work, range(THREADS)))
    assert read.count("glue/service-2") == 1
    assert read.count("glue/paginators-1") == 1
    assert read.count("sts/service-2") == 1


@pytest.mark.quick
def test_sessions_leave_nothing_behind_in_what_they_share() -> None:
    before = list(session._models(None).search_paths)
    for _ in range(3):
        session.Session(GlueConfig(region="us-east-1"))
    assert session._models(None).search_paths == before


@pytest.mark.quick
def test_models_of_the_callers_own_come_first(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_DATA_PATH", os.pathsep.join(["/mine", "/ours"]))
    made = session._create_session(GlueConfig(region="us-east-1"))
    assert made.get_component("data_loader").search_paths[:2] == ["/mine", "/ours"]
