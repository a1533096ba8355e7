"""``python -m lance_bridge_metastore``: what it warns of, and mistakes it answers in a line."""

from __future__ import annotations

import fcntl
import os
import signal
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from lance_bridge_metastore import Metastore, MetastoreStartError
from lance_bridge_metastore import __main__ as command

pytestmark = pytest.mark.quick


@pytest.fixture(autouse=True)
def _signals_as_they_were() -> Iterator[None]:
    before = signal.getsignal(signal.SIGTERM)
    yield
    signal.signal(signal.SIGTERM, before)


@pytest.fixture
def no_start(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let every start fail before it begins."""

    def start(_: Metastore) -> Metastore:
        raise MetastoreStartError("not now")

    monkeypatch.setattr(Metastore, "start", start)


def test_sigterm_stops_the_metastore_and_is_no_failure(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`test_embedded` sends it to a command whose metastore runs."""
    stops: list[Metastore] = []

    def stop(metastore: Metastore) -> None:
        stops.append(metastore)

    monkeypatch.setattr(Metastore, "is_running", property(lambda _: True))
    monkeypatch.setattr(Metastore, "stop", stop)
    monkeypatch.setattr(time, "sleep", lambda _: os.kill(os.getpid(), signal.SIGTERM))
    assert command.main(["--port", "0", "--directory", str(tmp_path)]) == 0
    assert len(stops) == 1


def error_line(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> str:
    """Return the one line of a mistake, without the warning of who may connect."""
    assert command.main(["--version", "4.0", *arguments]) == 2
    lines = capsys.readouterr().err.splitlines()
    assert len(lines) == 1, lines
    return lines[0]


@pytest.mark.usefixtures("no_start")
@pytest.mark.parametrize("arguments", [[], ["--version", "2.3"], ["--version", "3.1"]])
def test_tls_that_listens_on_every_address_is_warned_of(
    arguments: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert command.main([*arguments, "--setting", "hive.metastore.use.SSL=true"]) == 1
    warning = capsys.readouterr().err.splitlines()[0]
    assert warning.startswith("Warning: ")
    assert "every address of this machine" in warning
    assert "authentication" in warning


@pytest.mark.usefixtures("no_start")
@pytest.mark.parametrize("version", ["2.3", "3.1", "4.0", "4.1", "4.2"])
def test_listening_on_the_loopback_address_gives_no_warning(
    version: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert command.main(["--version", version]) == 1
    assert "Warning" not in capsys.readouterr().err


@pytest.mark.parametrize("port", ["99999", "65536", "-1"])
def test_an_invalid_port_is_refused(port: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert "--port must be between 0 and 65535" in error_line([f"--port={port}"], capsys)


@pytest.mark.parametrize("inside", ["", "deeper/still"])
def test_a_directory_that_is_a_file_is_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], inside: str
) -> None:
    file = tmp_path / "file"
    file.write_text("kept")
    line = error_line(["--directory", str(file / inside)], capsys)
    assert f"Directory {file / inside} cannot be used: " in line
    assert file.read_text() == "kept"


def test_a_directory_that_cannot_be_written_is_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(Path, "mkdir", refuse)
    line = error_line(["--directory", str(tmp_path / "state")], capsys)
    assert line.endswith("cannot be used: Permission denied")


def test_a_directory_whose_files_cannot_be_written_is_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("lance_bridge_metastore.server.jars_of", lambda *_, **__: tmp_path)
    (tmp_path / "conf").write_text("in the way")
    line = error_line(["--port", "0", "--directory", str(tmp_path)], capsys)
    assert f"Directory {tmp_path} cannot be used: " in line


def test_a_directory_in_use_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with (tmp_path / "lock").open("w") as other:
        fcntl.flock(other, fcntl.LOCK_EX)
        line = error_line(["--directory", str(tmp_path)], capsys)
    assert f"Directory {tmp_path} is in use by another metastore" in line
