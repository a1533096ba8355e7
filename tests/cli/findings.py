"""Runs the doctor and its commands, and breaks tables for it."""

from __future__ import annotations

import json
import signal
import sys
from typing import Any

from commands import run_command
from servers.hive_raw import raw_client
from typer.testing import CliRunner

from lance_bridge_cli.app import app
from lance_bridge_doctor import Kind

from .conftest import Lake
from .running import pasted

NOW = ["--idle", "0m"]


def diagnosis(*more: str) -> dict[str, Any]:
    """What the doctor answers; its exit code says whether it found something."""
    done = CliRunner().invoke(app, ["doctor", "prod", *NOW, *more, "--output", "json"])
    answer: dict[str, Any] = json.loads(done.stdout)
    assert done.exit_code == (3 if answer["findings"] else 0), done.stderr
    return answer


def findings() -> list[dict[str, Any]]:
    """What the doctor finds."""
    found: list[dict[str, Any]] = diagnosis()["findings"]
    return found


def the_only(kind: Kind, said: str = "") -> dict[str, Any]:
    [found] = findings()
    assert found["kind"] == kind.value
    assert said in found["message"]
    return found


def fix(found: dict[str, Any], answer: str = "") -> None:
    """Run the command of a finding; it must help."""
    done = pasted(found["command"], answer)
    assert done.exit_code == 0, f"{found['command']}\n{done.output}"
    assert findings() == []


DYING = """
import os, signal, sys
import pyarrow as pa
from lance_namespace import CreateTableRequest
from lance_bridge.testing.build import ipc
from lance_bridge.dataset import create
from lance_bridge_hive import HiveNamespace
uri, root, database = sys.argv[1:]
create.{step}  # else there is no such step any more
create.{step} = lambda *_, **__: os.kill(os.getpid(), signal.SIGKILL)
with HiveNamespace(uri=uri, root=root) as namespace:
    namespace.create_table(CreateTableRequest(id=[database, "t"]), ipc(pa.table({{"a": [1]}})))
"""


def die_at(lake: Lake, step: str) -> None:
    """Create a table in a process that is killed at a step."""
    arguments = [lake.metastore.uri, str(lake.root), lake.database]
    program = DYING.format(step=step)
    run_command(sys.executable, "-c", program, *arguments, code=-signal.SIGKILL)


def mark(lake: Lake, table: str, entry_type: str | None = None, **properties: str) -> None:
    """Change an entry as others do."""
    with raw_client(lake.metastore.port) as client:
        found = client.get_table(lake.database, table)
        found.parameters.update(properties)
        if entry_type is not None:
            found.tableType = entry_type
            found.parameters.pop("EXTERNAL", None)
        client.alter_table(lake.database, table, found)
