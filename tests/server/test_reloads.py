"""Reloads at awkward moments: during the start, and when another package's code fails."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from servers.processes import wait_until

from .authenticated import children, serve, write_config

pytestmark = [pytest.mark.servers, pytest.mark.spec("server.md#stop-and-reload")]

_AUTHORIZER = """
import multiprocessing
import os
import signal
from pathlib import Path

from lance_bridge_server.authorization import AllowAll


def make(directory):
    hang_up = Path(directory, "hang-up")
    if hang_up.exists() and multiprocessing.parent_process() is not None:
        hang_up.unlink()
        os.kill(os.getpid(), signal.SIGHUP)
    if Path(directory, "fail").exists():
        raise RuntimeError("the service of permissions does not answer")
    return AllowAll()
"""


@pytest.fixture
def authorizer(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """Install a package with an authorizer; return the settings that use it.

    It sends a worker process SIGHUP once if there is a file ``hang-up``, and fails while there is a
    file ``fail``.
    """
    packages = tmp_path / "packages"
    about = packages / "flaky-1.0.dist-info"
    about.mkdir(parents=True)
    (about / "METADATA").write_text("Metadata-Version: 2.1\nName: flaky\nVersion: 1.0\n")
    (about / "entry_points.txt").write_text("[lance_bridge.authorizers]\nflaky = flaky:make\n")
    (packages / "flaky.py").write_text(_AUTHORIZER)
    path = os.pathsep.join(filter(None, [str(packages), os.environ.get("PYTHONPATH")]))
    monkeypatch.setenv("PYTHONPATH", path)
    return {"method": "flaky", "options": {"directory": str(tmp_path)}}


@pytest.fixture
def write(tmp_path: Path) -> Callable[..., Path]:
    """Return a function that writes a configuration with one catalog."""

    def write(name: str, **settings: Any) -> Path:
        catalogs = {name: {"impl": "dir", "root": f"{tmp_path}/lake"}}
        return write_config(tmp_path, catalogs=catalogs, listeners=[{"port": 0}], **settings)

    return write


@pytest.mark.parametrize("workers", [1, 2])
def test_an_authorizer_that_raises_anything_ends_no_process(
    workers: int, tmp_path: Path, authorizer: dict[str, Any], write: Callable[..., Path]
) -> None:
    settings = {"workers": workers, "authorization": authorizer}
    with serve("--config", str(write("before", **settings))) as served:
        wait_until(lambda: served.printed().count("Application startup complete") == workers)
        write("after", **settings)
        (tmp_path / "fail").touch()
        served.process.send_signal(signal.SIGHUP)
        wait_until(lambda: "was not reloaded" in served.printed() or served.process.poll())
        assert "RuntimeError: the service of permissions" in served.printed()
        assert children(served.url) == ["before"]
        (tmp_path / "fail").unlink()
        served.process.send_signal(signal.SIGHUP)
        wait_until(lambda: children(served.url) == ["after"])
        assert served.stop()[0] == 0


_RELOADED_EARLY = """
import os
import signal
from pathlib import Path

from lance_bridge_cli.app import app
from lance_bridge_server.configuration.source import SettingsSource

read = SettingsSource.read


def read_once(source):
    SettingsSource.read = read
    settings = read(source)
    source.file.write_text(source.file.read_text().replace("before", "after"))
    os.kill(os.getpid(), signal.SIGHUP)
    return settings


SettingsSource.read = read_once
app()
"""


@pytest.mark.parametrize("workers", [1, 2])
def test_a_reload_during_the_start_is_made_after_it(
    workers: int, write: Callable[..., Path]
) -> None:
    config = write("before", workers=workers)
    program = [sys.executable, "-c", _RELOADED_EARLY]
    with serve("--config", str(config), program=program) as served:
        wait_until(lambda: children(served.url) == ["after"])
        code, _, error = served.stop()
    assert code == 0
    assert "died" not in error


def test_a_reload_during_the_start_of_a_worker_is_made_after_it(
    tmp_path: Path, authorizer: dict[str, Any], write: Callable[..., Path]
) -> None:
    settings = {"workers": 2, "authorization": authorizer}
    config = write("before", **settings)
    (tmp_path / "hang-up").touch()
    with serve("--config", str(config)) as served:
        wait_until(lambda: "The configuration was reloaded" in served.printed())
        assert served.stop()[0] == 0
