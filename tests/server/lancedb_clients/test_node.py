"""LanceDB for Node.js, unmodified: every public method, and the lines of the document.

npm fetches its packages.
"""

from __future__ import annotations

import json
import re
import subprocess
from pathlib import Path

import lance_namespace as api
import pytest
from clients.fetched import node_packages
from server.lancedb_clients.operations_table import (
    SPEC,
    WORKS,
    reason_of,
    render,
    require_written,
)

from lance_bridge_hive import HiveNamespace

pytestmark = [
    pytest.mark.servers,
    pytest.mark.spec("server.md#lancedb", "server.md#operations-of-lancedb"),
]

SCRIPT = Path(__file__).parent / "node" / "operations.cjs"
TARGET = "Node.js"


@pytest.fixture(scope="module")
def packages() -> Path:
    return node_packages()


def _run(*arguments: object) -> str:
    """Run Node.js with these arguments; return what it prints."""
    command = ["node", *map(str, arguments)]
    done = subprocess.run(command, check=False, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_every_method_of_node_works_or_has_the_reason_that_is_documented(
    hive: HiveNamespace, url: str, packages: Path
) -> None:
    hive.create_namespace(api.CreateNamespaceRequest(id=["nodes"]))
    results = json.loads(_run(SCRIPT, packages, url, "nodes"))
    assert "connectCatalog" not in results.pop("exports")
    for part, found in results.items():
        reasons = {
            (name, TARGET): text if text == WORKS else reason_of(text)
            for name, text in found.items()
        }
        failures = [(name, found[name]) for (name, _), reason in reasons.items() if reason is None]
        assert failures == []
        require_written(f"node {part}", render({k: v or "" for k, v in reasons.items()}, [TARGET]))


def test_the_lines_for_node_run(
    hive: HiveNamespace, url: str, packages: Path, tmp_path: Path
) -> None:
    hive.create_namespace(api.CreateNamespaceRequest(id=["films"]))
    [lines] = re.findall(r"```js\n(.*?)```", SPEC.read_text(encoding="utf-8"), re.DOTALL)
    script = tmp_path / "lines.mjs"
    script.write_text(lines.replace("https://gateway.example.com", url))
    (tmp_path / "node_modules").symlink_to(packages / "node_modules")
    assert "Alien" in _run("--preserve-symlinks", script)
    hive.drop_table(api.DropTableRequest(id=["films", "t"]))
    hive.drop_namespace(api.DropNamespaceRequest(id=["films"]))
