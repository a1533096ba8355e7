"""The README is true: its commands, options, extras and files exist.

`test_readme_in_order` runs it.
"""

from __future__ import annotations

import re
import subprocess
from importlib import metadata
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
from servers.unity import OPEN_SOURCE_0_6, UnityServer

import lance_bridge
from lance_bridge import kit_options

REPOSITORY = Path(__file__).parents[2]
README = (REPOSITORY / "README.md").read_text(encoding="utf-8")
CONTRIBUTING = (REPOSITORY / "CONTRIBUTING.md").read_text(encoding="utf-8")
URI = "thrift://metastore:9083"
UNITY = "http://unity:8080"
SNIPPETS = re.findall(r"```python\n(.*?)```", README, re.DOTALL)
PROSE = re.sub(r"```.*?```", "", README, flags=re.DOTALL)
COMMANDS = re.findall(r"^    (\S.*)$", PROSE, re.MULTILINE)


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


def printed_by(snippet: str) -> list[str]:
    """Return what a snippet says that it prints, in comments."""
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
    assert "localhost:9083" in lance_bridge.connect(name).namespace_id()


def test_every_make_target_that_is_named_exists() -> None:
    targets = set(re.findall(r"(?:^    |`)make ([a-z-]+)", PROSE + CONTRIBUTING, re.MULTILINE))
    assert {"demo", "test", "test-fast", "test-all", "check", "bench"} <= targets
    for target in targets:
        done = subprocess.run(
            ["make", "--dry-run", target], cwd=REPOSITORY, capture_output=True, check=False
        )
        assert done.returncode == 0, done.stderr


def test_every_command_of_the_readme_is_of_a_program_that_it_installs() -> None:
    known = ("lance-bridge ", "make ", "pip install '.[", "python -m lance_bridge.testing ")
    assert [each for each in COMMANDS if not each.startswith(known)] == []


def test_the_options_of_the_kit_exist(capsys: pytest.CaptureFixture[str]) -> None:
    (command,) = (each for each in COMMANDS if each.startswith("python -m"))
    with pytest.raises(SystemExit):
        kit_options.parse(["--help"])
    shown = capsys.readouterr().out
    for option in re.findall(r"(?<= )--?[a-z-]+", command.removeprefix("python -m")):
        assert option in shown


def test_every_extra_has_a_row_in_the_readme_and_every_install_line_names_extras() -> None:
    declared = set(metadata.metadata("lance-bridge").get_all("Provides-Extra") or [])
    rows = re.findall(r"^\| `([a-z-]+)` +\|", README.partition("## Install\n")[2], re.MULTILINE)
    assert set(rows[: len(declared)]) == declared
    named = re.findall(r"pip install '(?:\.|lance-bridge)\[([a-z,-]+)\]'", README)
    assert len(named) == 5
    wheels = re.findall(r"pip install '\./lance_bridge-0\.1\.0-py3-none-any\.whl\[", README)
    assert len(wheels) == 2
    assert {extra for each in named for extra in each.split(",")} <= declared


def test_an_install_line_is_given_for_a_clone_a_package_index_and_a_wheel() -> None:
    for section in ("A first table in a minute", "Install"):
        text = README.partition(f"## {section}\n")[2].partition("\n## ")[0]
        [clone] = re.findall(r"^    pip install '\.(\[.*?\])'$", text, re.MULTILINE)
        wanted = f"package index that has the package, it is `pip install 'lance-bridge{clone}'`"
        assert wanted in text
        assert f"`pip install './lance_bridge-0.1.0-py3-none-any.whl{clone}'`" in text


def test_every_file_that_is_named_exists() -> None:
    folders = "core|adapters|apps|specs|docs|examples|tests|docker|demo|bench|requirements"
    named = re.findall(rf"[`(]((?:{folders})/[\w./-]*)[`)]", README + CONTRIBUTING)
    known = {"core/lance_bridge/", "apps/lance_bridge_spark/", "docs/write-a-catalog.md"}
    assert known <= set(named)
    assert [path for path in named if not (REPOSITORY / path).exists()] == []
