"""Fixtures of the whole suite: real metastores, one of each release for all tests.

``LANCE_BRIDGE_TEST_METASTORES`` (``2.3=thrift://host:port,…``) names metastores that run already,
for example those of ``docker/``; the others are started from jars.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest
from servers.metastores import Metastores
from servers.sparks import SHORT_JVM

from lance_bridge import engine

pytest_plugins = ["ci_skips", "distribution"]

for variable, value in SHORT_JVM.items():
    os.environ.setdefault(variable, value)


def external_metastores() -> dict[str, str]:
    """Return the metastores that the environment names: release to URI."""
    text = os.environ.get("LANCE_BRIDGE_TEST_METASTORES", "")
    pairs = [item.split("=", 1) for item in text.split(",") if item.strip()]
    return {release.strip(): uri.strip() for release, uri in pairs}


FURTHER_RELEASES = {"4.0", "4.1"}
"""Of Hive: what they do is as on 4.2, so that cases of them are for ``make test-slow``."""


CHECKS = Path(__file__).parent / "docs"
NO_CHECKS = {"server", "spark", "slow", "documents"}
"""Marks of tests of documents that `make check` does not run."""


def pytest_itemcollected(item: pytest.Item) -> None:
    """Mark what another target runs: cases of further releases, and checks of documents.

    Each case of a further release starts a metastore of its own, and is slow.
    """
    if CHECKS in item.path.parents and NO_CHECKS.isdisjoint(m.name for m in item.iter_markers()):
        item.add_marker(pytest.mark.checks)
    callspec = getattr(item, "callspec", None)
    if callspec and any(
        each in FURTHER_RELEASES for each in callspec.params.values() if isinstance(each, str)
    ):
        item.add_marker(pytest.mark.slow)


@pytest.fixture(scope="session", autouse=True)
def ctrl_c() -> None:
    """Have Ctrl-C reach what tests start, also where a shell has started this in the background."""
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.fixture(scope="session")
def metastores(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Metastores]:
    """Metastores of every release, started when first asked for."""
    with Metastores(tmp_path_factory.mktemp("servers")) as servers:
        yield servers


@pytest.fixture(autouse=True)
def no_engine(request: pytest.FixtureRequest) -> Iterator[None]:
    """Keep the compute engine, which a process has one of, to tests of Spark."""
    if request.node.get_closest_marker("spark") is not None:
        yield
        return
    before = engine.current()
    engine.use(None)
    yield
    engine.use(before)
