"""The systemd unit: systemd's own checks, and that it fits the server. No systemd has run it."""

from __future__ import annotations

import re
import shutil
from collections import defaultdict
from pathlib import Path

import pytest
import yaml
from cli.program import run
from servers.processes import run_command

from lance_bridge_server.config import ServerSettings

pytestmark = pytest.mark.quick

REPOSITORY = Path(__file__).parents[2]
UNIT = REPOSITORY / "deploy" / "systemd" / "lance-bridge.service"
PAGE = (REPOSITORY / "docs" / "gateway.md").read_text(encoding="utf-8")
MOST_EXPOSURE = 2.0
"""Of 10, by the measure of ``systemd-analyze security``."""

needs_systemd = pytest.mark.skipif(
    shutil.which("systemd-analyze") is None, reason="systemd-analyze is not installed"
)


def settings() -> dict[str, list[str]]:
    """Return the settings of the service, each with its values."""
    found = defaultdict(list)
    for key, value in re.findall(r"^(\w+)=(.*)$", UNIT.read_text(encoding="utf-8"), re.MULTILINE):
        found[key].append(value)
    return found


@needs_systemd
def test_systemd_takes_every_setting(tmp_path: Path) -> None:
    text = UNIT.read_text(encoding="utf-8")
    unit = tmp_path / UNIT.name
    unit.write_text(text.replace("/opt/lance-bridge/bin/lance-bridge", shutil.which("true") or ""))
    assert run_command("systemd-analyze", "verify", unit).stderr == ""
    unit.write_text(text.replace("ProtectSystem=strict", "ProtectSystem=mostly"))
    done = run_command("systemd-analyze", "verify", unit, code=None)
    assert "Failed to parse protect system" in done.stderr


@needs_systemd
def test_the_service_is_hardly_exposed() -> None:
    options = ("--offline=true", "--no-pager")
    done = run_command("systemd-analyze", "security", *options, UNIT, code=None)
    [level] = re.findall(r"Overall exposure level for \S+: (\d+\.\d+)", done.stdout)
    assert float(level) < MOST_EXPOSURE


def test_it_waits_until_requests_are_completed() -> None:
    default = ServerSettings.model_fields["stop_seconds"].default
    assert int(settings()["TimeoutStopSec"][0]) >= default + 10


def test_it_runs_a_command_that_exists() -> None:
    [command] = settings()["ExecStart"]
    program, *arguments = command.split()
    assert Path(program).name == "lance-bridge"
    done = run(*arguments, code=2)
    assert "/etc/lance-bridge/server.yaml cannot be read" in done.output.replace("\n", " ")
    assert settings()["RestartPreventExitStatus"] == ["2"]


@pytest.mark.spec("server.md#stop-and-reload")
def test_a_reload_during_the_start_restarts_it() -> None:
    """The program cannot handle SIGHUP before Python runs; for systemd, it is a clean end."""
    assert settings()["RestartForceExitStatus"] == ["SIGHUP"]


def test_credentials_are_those_of_the_page() -> None:
    [text] = [
        each
        for each in re.findall(r"```yaml\n(.*?)```", PAGE, re.DOTALL)
        if "/run/credentials/" in each
    ]
    named = set(re.findall(r"/run/credentials/lance-bridge\.service/([\w.]+)", text))
    assert named == {each.partition(":")[0] for each in settings()["LoadCredential"]}
    content = ServerSettings.model_validate(yaml.safe_load(text))
    assert content.workers >= 2, "ExecReload would end a server of one process"
