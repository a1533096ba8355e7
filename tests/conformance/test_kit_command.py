"""``python -m lance_bridge.testing``: it checks first, and cleans up when it is interrupted."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from servers.processes import free_port

from lance_bridge import kit_options
from lance_bridge.testing import command
from lance_bridge.testing.results import Results


@pytest.fixture
def no_cases(monkeypatch: pytest.MonkeyPatch) -> list[object]:
    """Runs of pytest, which are not made but noted here."""
    runs: list[object] = []

    def run(arguments: object, _plugins: object) -> int:
        runs.append(arguments)
        return 0

    monkeypatch.setattr(pytest, "main", run)
    return runs


def in_directory(path: Path) -> list[str]:
    return ["dir", "-p", f"root={path}"]


def test_a_dead_server_is_reported_before_any_case_runs(
    no_cases: list[object], capsys: pytest.CaptureFixture[str]
) -> None:
    uri = f"uri=thrift://127.0.0.1:{free_port()}"
    assert command.main(["hive", "-p", uri, "-p", "client.retry-timeout=0"]) == 1
    message = capsys.readouterr().err
    assert "could not list the namespaces" in message
    assert uri.removeprefix("uri=thrift://") in message
    assert "Traceback" not in message
    assert no_cases == []


def test_a_missing_parent_is_reported_before_any_case_runs(
    no_cases: list[object], capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    assert command.main([*in_directory(tmp_path), "--parent", "no_such"]) == 1
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


def test_a_data_root_that_cannot_be_written_is_reported_before_any_case_runs(
    no_cases: list[object], capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    (tmp_path / "file").touch()
    given = [*in_directory(tmp_path / "root"), "--data-root", str(tmp_path / "file")]
    assert command.main(given) == 1
    message = capsys.readouterr().err
    assert f"--data-root {tmp_path / 'file'} cannot be written" in message
    assert "--storage-option" in message
    assert no_cases == []


def test_a_missing_store_is_reported_before_any_case_runs(
    no_cases: list[object], capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    given = [*in_directory(tmp_path), "--data-root", "nosuchscheme://bucket/place"]
    assert command.main(given) == 1
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
        # These only read a table, and share it. One whose creation is interrupted leaves files.
        [
            *(sys.executable, "-u", "-m", "lance_bridge.testing", *in_directory(root)),
            *("-k", "queries or searches"),
        ],
        env={
            **os.environ,
            "PYTHONPATH": os.pathsep.join(sys.path),
            "TMPDIR": str(temporary),
        },
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
    )
    assert running.stdout is not None
    seen = b""
    while not seen.endswith(b"\n."):  # the first case has passed
        more = running.stdout.read(1)
        assert more, seen
        seen += more
    assert list(root.rglob("*lbkit_*"))
    running.send_signal(signal.SIGTERM)
    rest, _ = running.communicate(timeout=60)
    assert running.returncode == 130, rest
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


# -- the outcome -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("of_pytest", "of_the_kit"),
    [
        (pytest.ExitCode.OK, 0),
        (pytest.ExitCode.TESTS_FAILED, 3),
        (pytest.ExitCode.NO_TESTS_COLLECTED, 2),
        (pytest.ExitCode.USAGE_ERROR, 2),
        (pytest.ExitCode.INTERNAL_ERROR, 1),
        (pytest.ExitCode.INTERRUPTED, 1),  # by what cannot be collected
    ],
)
def test_the_exit_code_is_that_of_all_commands(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, of_pytest: int, of_the_kit: int
) -> None:
    monkeypatch.setattr(pytest, "main", lambda _arguments, _plugins: of_pytest)
    assert command.main([*in_directory(tmp_path), "-k", "rename"]) == of_the_kit


def test_ctrl_c_has_an_exit_code_of_its_own(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    def run(_arguments: object, _plugins: object) -> int:
        try:
            os.kill(os.getpid(), signal.SIGINT)
            signal.pause()
        except KeyboardInterrupt:
            return int(pytest.ExitCode.INTERRUPTED)
        return 0

    monkeypatch.setattr(pytest, "main", run)
    assert command.main(in_directory(tmp_path)) == 130


@pytest.mark.parametrize(
    "arguments",
    [
        [],
        ["dir", "--no-such-option"],
        ["dir", "-p", "no-value"],
        ["dir", "--parent", "a..b"],
        ["dir", "-o", "yaml"],
    ],
)
def test_a_command_that_is_given_wrongly_is_refused(
    no_cases: list[object], arguments: list[str]
) -> None:
    with pytest.raises(SystemExit) as refused:
        command.main(arguments)
    assert (refused.value.code, no_cases) == (2, [])


def test_a_feature_that_does_not_exist_is_refused(
    no_cases: list[object], capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    assert command.main([*in_directory(tmp_path), "--without", "wings"]) == 2
    assert "wings" in capsys.readouterr().err
    assert no_cases == []


def test_a_catalog_that_does_not_exist_is_refused(
    no_cases: list[object], capsys: pytest.CaptureFixture[str]
) -> None:
    assert command.main(["no_such"]) == 1
    assert "no_such" in capsys.readouterr().err
    assert no_cases == []


def test_an_adapter_that_cannot_be_made_is_one_line(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], no_cases: list[object]
) -> None:
    def connect(*_: object) -> object:
        raise TypeError("Catalog must override rename_table")

    monkeypatch.setattr("lance_bridge.connect", connect)
    assert command.main(["unfinished"]) == 1
    shown = capsys.readouterr().err.strip().splitlines()
    assert len(shown) == 1
    assert "unfinished cannot be made: TypeError: Catalog must override rename_table" in shown[0]
    assert no_cases == []


def test_groups_are_listed_without_a_catalog(capsys: pytest.CaptureFixture[str]) -> None:
    assert command.main(["--list-groups"]) == 0
    lines = capsys.readouterr().out.splitlines()
    groups = [line.split()[0] for line in lines]
    assert {"namespaces", "tables", "rename", "managed", "data_operations", "rows"} <= set(groups)
    assert all(int(line.split()[1]) > 0 and len(line.split()) > 2 for line in lines)


def test_cases_are_selected_by_group_and_counted_with_the_reasons_of_what_is_skipped(
    tmp_path: Path,
) -> None:
    # No case has "declarations" in its own name.
    done = subprocess.run(
        [
            *(sys.executable, "-m", "lance_bridge.testing", *in_directory(tmp_path / "root")),
            *("-k", "declarations or (rename and under_the_old_name)", "--without", "rename"),
            *("--output", "json"),
        ],
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
        capture_output=True,
        text=True,
        check=False,
        timeout=100,
    )
    assert done.returncode == 0, done.stderr
    outcome = json.loads(done.stdout)
    assert (outcome["passed"], outcome["failed"]) == (1, [])
    reasons = outcome["skipped_by_reason"]
    assert set(reasons) == {
        "--without rename",
        "ConfiguredTarget has no lance_bridge.Catalog to test",
    }
    assert sum(reasons.values()) == outcome["skipped"]


def test_the_text_output_has_the_reasons_of_skips() -> None:
    results = Results("prod")
    results.passed, results.failed = 3, ["test_a"]
    results.skipped.update({"no server": 1, "rename: it has no call for that": 2})
    assert results.to_text().splitlines() == [
        "prod: 3 cases passed, 1 failed, 3 skipped",
        "     2 skipped: rename: it has no call for that",
        "     1 skipped: no server",
    ]


def test_features_are_missing_for_the_reasons_that_the_catalog_gives() -> None:
    target = command._target(kit_options.parse(["unity", "-p", "host=http://127.0.0.1:9"]))
    assert "no call that changes a table" in target.lacks("alter")
    assert "within their schema" in target.lacks("rename_across")
    assert "a Target of your own" in target.lacks("stop_server")
    assert target.lacks("register") == ""
