"""``python -m lance_bridge.testing``: it looks before it begins, and cleans up when it is ended."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from lance_bridge.testing import __main__ as command


@pytest.fixture
def no_cases(monkeypatch: pytest.MonkeyPatch) -> list[object]:
    """Runs of pytest, which are not made but noted here."""
    runs: list[object] = []

    def run(arguments: object, _plugins: object) -> int:
        runs.append(arguments)
        return 0

    monkeypatch.setattr(pytest, "main", run)
    return runs


def closed_port() -> int:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return int(listener.getsockname()[1])


def in_directory(path: Path) -> list[str]:
    return ["dir", "-p", f"root={path}"]


def test_a_dead_server_is_told_before_any_case_runs(
    no_cases: list[object], capsys: pytest.CaptureFixture[str]
) -> None:
    uri = f"uri=thrift://127.0.0.1:{closed_port()}"
    assert command.main(["hive", "-p", uri, "-p", "client.retry-timeout=0"]) == 2
    message = capsys.readouterr().err
    assert "does not answer" in message
    assert uri.removeprefix("uri=thrift://") in message
    assert "Traceback" not in message
    assert no_cases == []


def test_a_parent_that_does_not_exist_is_told_before_any_case_runs(
    no_cases: list[object], capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    assert command.main([*in_directory(tmp_path), "--parent", "no_such"]) == 2
    assert "--parent" in capsys.readouterr().err
    assert no_cases == []


@pytest.mark.parametrize(
    "place", ["relative/place", "./here", "s3:/bucket", "file:relative", "file://host/place", ""]
)
def test_a_data_root_is_an_absolute_path_or_a_uri(
    no_cases: list[object], capsys: pytest.CaptureFixture[str], tmp_path: Path, place: str
) -> None:
    assert command.main([*in_directory(tmp_path), "--data-root", place]) == 2
    assert "--data-root must be an absolute path or a URI" in capsys.readouterr().err
    assert no_cases == []


def test_a_data_root_that_cannot_be_written_is_told_before_any_case_runs(
    no_cases: list[object], capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    (tmp_path / "file").touch()
    given = [*in_directory(tmp_path / "root"), "--data-root", str(tmp_path / "file")]
    assert command.main(given) == 2
    message = capsys.readouterr().err
    assert f"--data-root {tmp_path / 'file'} cannot be written" in message
    assert "--storage-option" in message
    assert no_cases == []


def test_a_store_that_is_not_there_is_told_before_any_case_runs(
    no_cases: list[object], capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    given = [*in_directory(tmp_path), "--data-root", "nosuchscheme://bucket/place"]
    assert command.main(given) == 2
    assert "cannot be written" in capsys.readouterr().err
    assert no_cases == []


@pytest.mark.parametrize("prefix", ["", "file://"])
def test_a_good_place_is_left_as_it_was(
    no_cases: list[object], tmp_path: Path, prefix: str
) -> None:
    place = tmp_path / "data"
    place.mkdir()
    given = [*in_directory(tmp_path / "root"), "--data-root", f"{prefix}{place}"]
    assert command.main(given) == 0
    assert len(no_cases) == 1
    assert list(place.iterdir()) == []


def test_sigterm_cleans_up_as_ctrl_c_does(tmp_path: Path) -> None:
    temporary = tmp_path / "temporary"
    temporary.mkdir()
    root = tmp_path / "root"
    running = subprocess.Popen(
        [sys.executable, "-u", "-m", "lance_bridge.testing", *in_directory(root)],
        env={
            **os.environ,
            "PYTHONPATH": os.pathsep.join(sys.path),
            "TMPDIR": str(temporary),
        },
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
    )
    assert running.stdout is not None
    seen = running.stdout.read(1)
    while seen.count(b"\n") < 3 or not seen.rpartition(b"\n")[2]:
        more = running.stdout.read(1)
        assert more, seen
        seen += more
    running.send_signal(signal.SIGTERM)
    rest, _ = running.communicate(timeout=60)
    assert running.returncode == 2, rest
    assert b"KeyboardInterrupt" in rest
    assert list(temporary.iterdir()) == []
    assert [path.name for path in root.rglob("*lbkit_*")] == []


def test_the_command_leaves_the_handling_of_signals_as_it_was(
    no_cases: list[object], tmp_path: Path
) -> None:
    before = signal.getsignal(signal.SIGTERM)
    assert command.main(in_directory(tmp_path)) == 0
    assert len(no_cases) == 1
    assert signal.getsignal(signal.SIGTERM) is before
