"""The README is true: its Python runs against a real metastore, its commands and files exist."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml
from lance_namespace import (
    CreateNamespaceRequest,
    DeclareTableRequest,
    ListNamespacesRequest,
    ListTablesRequest,
)
from servers.glue_server import GlueServer
from servers.metastores import Metastores
from servers.unity import OPEN_SOURCE_0_6, UnityServer

import lance_bridge
from lance_bridge_hive import HiveNamespace

REPOSITORY = Path(__file__).parents[2]
README = (REPOSITORY / "README.md").read_text(encoding="utf-8")
URI = "thrift://metastore:9083"
UNITY = "http://unity:8080"
IN_SPARK = README.partition("## In Spark\n")[2].partition("\n## ")[0]
"""Its snippets run in one session, which `test_spark_spec` starts."""
SNIPPETS = re.findall(r"```python\n(.*?)```", README.replace(IN_SPARK, ""), re.DOTALL)
PROSE = re.sub(r"```.*?```", "", README, flags=re.DOTALL)
COMMANDS = re.findall(r"^    (\S.*)$", PROSE, re.MULTILINE)
MIGRATIONS = "lance-bridge migrate "
"""What such commands begin with; `migrate.test_cli_spark` runs them."""
OURS = [
    command
    for command in COMMANDS
    if command.startswith("lance-bridge ") and not command.startswith(MIGRATIONS)
]


@pytest.mark.server
def test_glue_and_unity_answer_as_the_readme_connects_to_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with GlueServer() as glue, UnityServer(OPEN_SOURCE_0_6) as unity:
        unity.add_catalog("lake")
        for key, value in glue.properties.items():
            monkeypatch.setenv(f"LANCE_BRIDGE_GLUE_{key.upper()}", value)
        snippets = {"glue": ("", ""), "unity": (UNITY, unity.url)}
        for name, (old, new) in snippets.items():
            (snippet,) = (text for text in SNIPPETS if f'connect("{name}"' in text)
            found: dict[str, Any] = {}
            exec(snippet.replace(old, new), found)
            namespace = found["ns"]
            namespace.create_namespace(CreateNamespaceRequest(id=["sales"]))
            assert namespace.list_namespaces(ListNamespacesRequest()).namespaces == ["sales"]
            place = f"{tmp_path}/{name}"
            namespace.declare_table(DeclareTableRequest(id=["sales", "t"], location=place))
            assert namespace.list_tables(ListTablesRequest(id=["sales"])).tables == ["t"]


@pytest.mark.server
def test_every_python_snippet_runs_in_the_order_of_the_readme(
    metastores: Metastores, tmp_path: Path
) -> None:
    uri = metastores.get("2.3").uri
    with HiveNamespace(uri=uri) as namespace:
        namespace.create_namespace(CreateNamespaceRequest(id=["sales"], mode="ExistOk"))
    assert len(SNIPPETS) == 10
    assert len(_said("".join(SNIPPETS))) == 8
    for number, snippet in enumerate(SNIPPETS):
        script = tmp_path / f"snippet_{number}.py"
        script.write_text(snippet.replace(URI, uri), encoding="utf-8")
        done = subprocess.run(
            [sys.executable, str(script)],
            cwd=tmp_path,
            capture_output=True,
            text=True,
            timeout=200,
            check=False,
        )
        assert done.returncode == 0, f"{snippet}\n{done.stderr[-3000:]}"
        assert done.stdout.splitlines() == _said(snippet), snippet
    told = [_run_command(command.replace(URI, uri)) for command in OURS]
    assert [code for code, _ in told[:-1]] == [3, 0, 0, 0] + 5 * [0]
    assert "version 3 was not committed" in told[0][1]
    assert '"amount": 2' in told[-3][1]
    assert told[-1][0] in (0, 3), "other tests may have left something for the doctor"


def _run_command(command: str) -> tuple[int, str]:
    """Run the installed command; return its exit code and what it printed."""
    program = Path(sys.executable).with_name("lance-bridge")
    done = subprocess.run(
        [str(program), *command.split()[1:]], capture_output=True, text=True, check=False
    )
    return done.returncode, done.stdout


def _said(snippet: str) -> list[str]:
    """What a snippet says that it prints, in comments."""
    return re.findall(r"^print\(.*\)  # (.*)$", snippet, re.MULTILINE)


def test_the_configuration_file_of_the_readme_is_taken(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (text,) = re.findall(r"```yaml\n(.*?)```", README, re.DOTALL)
    path = tmp_path / "catalogs.yaml"
    path.write_text(text, encoding="utf-8")
    monkeypatch.setenv("LANCE_BRIDGE_CONFIG", str(path))
    (name,) = yaml.safe_load(text)["catalogs"]
    assert f'lance_bridge.connect("{name}")' in README
    assert "metastore-2:9083" in lance_bridge.connect(name).namespace_id()


def test_every_make_target_of_the_readme_exists() -> None:
    targets = set(re.findall(r"(?:^    |`)make ([a-z-]+)", PROSE, re.MULTILINE))
    assert {"demo", "test", "check", "bench"} <= targets
    for target in targets:
        done = subprocess.run(
            ["make", "--dry-run", target], cwd=REPOSITORY, capture_output=True, check=False
        )
        assert done.returncode == 0, done.stderr


def test_every_command_of_the_readme_is_one_that_a_test_knows() -> None:
    known = (
        *OURS,
        MIGRATIONS,
        "make demo",
        "make test",
        "pip install '.[",
        "python -m lance_bridge",
    )
    assert [c for c in COMMANDS if not c.startswith(known)] == []


@pytest.mark.parametrize("module", ["lance_bridge_hive.embedded", "lance_bridge.testing"])
def test_the_options_of_the_commands_exist(module: str) -> None:
    (command,) = (c for c in COMMANDS if c.startswith(f"python -m {module}"))
    shown = subprocess.run(
        [sys.executable, "-m", module, "--help"], capture_output=True, text=True, check=True
    ).stdout
    for option in re.findall(r"(?<= )--?[a-z-]+", command.removeprefix(f"python -m {module}")):
        assert option in shown


def test_every_extra_of_the_readme_is_declared() -> None:
    declared = (REPOSITORY / "pyproject.toml").read_text(encoding="utf-8")
    groups = re.findall(r"['`]\.\[([a-z,-]+)\]", README)
    assert len(groups) == 8
    for group in groups:
        for extra in group.split(","):
            assert re.search(rf"^{extra} = \[", declared, re.MULTILINE), extra


def test_every_file_of_the_readme_exists() -> None:
    for path in re.findall(r"`((?:core|adapters|specs|docker|demo)/[\w./]*)`", README):
        assert (REPOSITORY / path).exists(), path
