"""Fixtures of the whole suite: real metastores, one of each release for all tests.

``LANCE_BRIDGE_TEST_METASTORES`` (``2.3=thrift://host:port,…``) names metastores that run already,
for example those of ``docker/``; the others are started from jars.
"""

from __future__ import annotations

import gc
import os
import shutil
import signal
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from servers.metastores import Metastores
from servers.processes import end_children_with_this_process, remove_settings
from servers.sparks import SHORT_JVM

from lance_bridge import engine
from lance_bridge_spark import set_java_home

gc.disable()  # What is imported and collected stays: looking through it costs seconds
pytest_plugins = ["ci_skips", "cpu_budget", "distribution", "hypothesis_profiles", "tiers"]

remove_settings(pytest.MonkeyPatch(), "LANCE_BRIDGE_")  # and tests set their own

for variable, value in SHORT_JVM.items():
    os.environ.setdefault(variable, value)
if "JAVA_HOME" not in os.environ and shutil.which("java") is None:
    set_java_home()


def external_metastores() -> dict[str, str]:
    """Return the metastores that the environment names: release to URI."""
    text = os.environ.get("LANCE_BRIDGE_TEST_METASTORES", "")
    pairs = [item.split("=", 1) for item in text.split(",") if item.strip()]
    return {release.strip(): uri.strip() for release, uri in pairs}


def pytest_collection_finish() -> None:
    """Collect garbage of tests only."""
    gc.freeze()
    gc.enable()


def pytest_configure() -> None:
    """Have no server outlive this process, which is pytest or one of its workers."""
    end_children_with_this_process()


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


@pytest.fixture
def reads_of(monkeypatch: pytest.MonkeyPatch) -> Callable[..., list[Path]]:
    """A function of files: returns a list that gets each of them whenever it is read as text."""

    def watch(*files: Path) -> list[Path]:
        opened: list[Path] = []
        read_text = Path.read_text

        def counted(path: Path, *args: str, **more: str) -> str:
            opened.extend([path] if path in files else [])
            return read_text(path, *args, **more)

        monkeypatch.setattr(Path, "read_text", counted)
        return opened

    return watch


@pytest.fixture(autouse=True)
def no_engine(request: pytest.FixtureRequest) -> Iterator[None]:
    """Keep the compute engine, which a process has one of, to tests with the session of Spark."""
    if "spark" in request.fixturenames:
        yield
        return
    before = engine.current()
    engine.use(None)
    yield
    engine.use(before)
