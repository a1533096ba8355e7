"""``python -m lance_bridge.testing``: it checks first, and cleans up when it is interrupted."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import SimpleNamespace
from typing import Any, NoReturn

import pytest

from lance_bridge import kit_options
from lance_bridge.testing import command, concurrency
from lance_bridge.testing.catalog.workspace import skip_if
from lance_bridge.testing.concurrency import THREADS, race
from lance_bridge.testing.features import Features, without
from lance_bridge.testing.results import Results

pytestmark = pytest.mark.spec("cli.md#check")


def in_directory(path: Path) -> list[str]:
    return ["dir", "-p", f"root={path}"]


IN_DIRECTORY = ["dir", "-p", "root={path}/root"]
DEAD = "127.0.0.1:9"
NOT_A_ROOT = "--data-root must be an absolute path or a URI"


@pytest.mark.quick
@pytest.mark.parametrize(
    ("code", "arguments", "said"),
    [
        (1, ["no_such"], ["no_such"]),
        (
            1,
            ["hive", "-p", f"uri=thrift://{DEAD}", "-p", "client.retry-timeout=0"],
            ["could not list the namespaces", DEAD],
        ),
        (1, [*IN_DIRECTORY, "--parent", "no_such"], ["--parent"]),
        (
            1,
            [*IN_DIRECTORY, "--data-root", "{path}/file"],
            ["--data-root {path}/file cannot be written", "--storage-option"],
        ),
        (1, [*IN_DIRECTORY, "--data-root", "nosuchscheme://bucket/x"], ["cannot be written"]),
        (2, [*IN_DIRECTORY, "--without", "wings"], ["wings"]),
        *(
            (2, [*IN_DIRECTORY, "--data-root", each], [NOT_A_ROOT])
            for each in ("relative/place", "./here", "s3:/bucket", "file:here", "file://host/x", "")
        ),
    ],
)
def test_what_cannot_be_tested_is_reported_before_any_case_runs(
    runs: list[object],
    capsys: pytest.CaptureFixture[str],
    tmp_path: Path,
    *,
    code: int,
    arguments: list[str],
    said: list[str],
) -> None:
    (tmp_path / "file").touch()
    assert command.main([each.format(path=tmp_path) for each in arguments]) == code
    message = capsys.readouterr().err
    assert all(each.format(path=tmp_path) in message for each in said), message
    assert "Traceback" not in message
    assert runs == []


@pytest.mark.quick
@pytest.mark.parametrize("prefix", ["", "file://"])
def test_a_good_place_is_left_as_it_was(runs: list[object], tmp_path: Path, prefix: str) -> None:
    place = tmp_path / "data"
    place.mkdir()
    given = [*in_directory(tmp_path / "root"), "--data-root", f"{prefix}{place}"]
    assert command.main(given) == 0
    assert len(runs) == 1
    assert list(place.iterdir()) == []


STOPPED_IN_A_CASE = """
import sys, time
from pathlib import Path
from lance_bridge.testing import command, concurrency

def race(call):
    Path(sys.argv[1]).touch()
    time.sleep(60)

concurrency.race = race
sys.exit(command.main(sys.argv[2:]))
"""


@pytest.mark.servers
def test_sigterm_cleans_up_as_ctrl_c_does(tmp_path: Path) -> None:
    temporary, root, reached = (tmp_path / name for name in ("temporary", "root", "reached"))
    temporary.mkdir()
    running = subprocess.Popen(
        [
            *(sys.executable, "-u", "-c", STOPPED_IN_A_CASE, str(reached), *in_directory(root)),
            *("-k", "answered_about_its_own_table"),  # it has made tables when it starts threads
        ],
        env={
            **os.environ,
            "PYTHONPATH": os.pathsep.join(sys.path),
            "TMPDIR": str(temporary),
        },
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
    )
    while not reached.exists():
        assert running.poll() is None
        time.sleep(0.01)
    assert len(list(root.rglob("*lbkit_*"))) >= THREADS
    running.send_signal(signal.SIGTERM)
    rest, _ = running.communicate(timeout=60)
    assert running.returncode == 130, rest
    assert b"KeyboardInterrupt" in rest
    assert list(temporary.iterdir()) == []
    assert [path.name for path in root.rglob("*lbkit_*")] == []


@pytest.mark.quick
@pytest.mark.timeout(30)
def test_an_interrupt_while_threads_start_does_not_wait_for_the_others(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    class Interrupted(ThreadPoolExecutor):
        def map(self, fn: Callable[..., Any], *_: Iterable[Any], **__: object) -> NoReturn:
            self.submit(fn, 0)
            raise KeyboardInterrupt

    monkeypatch.setattr(concurrency, "ThreadPoolExecutor", Interrupted)
    with pytest.raises(KeyboardInterrupt):
        race(lambda number: number)


@pytest.mark.quick
def test_the_command_leaves_the_handling_of_signals_as_it_was(
    runs: list[object], tmp_path: Path
) -> None:
    before = signal.getsignal(signal.SIGTERM)
    assert command.main(in_directory(tmp_path)) == 0
    assert len(runs) == 1
    assert signal.getsignal(signal.SIGTERM) is before


@pytest.mark.quick
def test_without_a_feature_the_cases_of_the_adapter_skip_too() -> None:
    target = command.ConfiguredTarget("hive", {})
    target.features = without(Features(), "rename")
    target.reasons = {"rename": "--without rename"}
    able = SimpleNamespace(no_rename="", no_alter="")
    workspace: Any = SimpleNamespace(capabilities=able, target=target)
    skip_if(workspace, "no_alter")
    with pytest.raises(pytest.skip.Exception, match="--without rename"):
        skip_if(workspace, "no_alter", "no_rename")


# -- the outcome -----------------------------------------------------------------------------------


@pytest.mark.quick
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


@pytest.mark.quick
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


@pytest.mark.quick
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
    runs: list[object], arguments: list[str]
) -> None:
    with pytest.raises(SystemExit) as refused:
        command.main(arguments)
    assert (refused.value.code, runs) == (2, [])


@pytest.mark.quick
def test_an_adapter_that_cannot_be_made_is_one_line(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], runs: list[object]
) -> None:
    def connect(*_: object) -> object:
        raise TypeError("Catalog must override rename_table")

    monkeypatch.setattr("lance_bridge.connect", connect)
    assert command.main(["unfinished"]) == 1
    shown = capsys.readouterr().err.strip().splitlines()
    assert len(shown) == 1
    assert "unfinished cannot be made: TypeError: Catalog must override rename_table" in shown[0]
    assert runs == []


@pytest.mark.quick
def test_groups_are_listed_without_a_catalog(capsys: pytest.CaptureFixture[str]) -> None:
    assert command.main(["--list-groups"]) == 0
    lines = capsys.readouterr().out.splitlines()
    groups = [line.split()[0] for line in lines]
    assert {"namespaces", "tables", "rename", "managed", "data_operations", "smoke"} <= set(groups)
    assert all(int(line.split()[1]) > 0 and len(line.split()) > 2 for line in lines)


@pytest.mark.servers
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


@pytest.mark.quick
def test_the_text_output_has_the_reasons_of_skips() -> None:
    results = Results("prod")
    results.passed, results.failed = 3, ["test_a"]
    results.skipped.update({"no server": 1, "rename: it has no call for that": 2})
    assert results.to_text().splitlines() == [
        "prod: 3 cases passed, 1 failed, 3 skipped",
        "     2 skipped: rename: it has no call for that",
        "     1 skipped: no server",
    ]


@pytest.mark.quick
def test_features_are_missing_for_the_reasons_that_the_catalog_gives() -> None:
    target = command._target(kit_options.parse(["unity", "-p", "host=http://127.0.0.1:9"]))
    assert "no call that changes a table" in target.lacks("alter")
    assert "within their schema" in target.lacks("rename_across")
    assert "a Target of your own" in target.lacks("stop_server")
    assert target.lacks("register") == ""
