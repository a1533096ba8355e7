"""Secrets from a file or a function that the properties name."""

from __future__ import annotations

import pickle
import traceback
from pathlib import Path
from typing import Any

import pytest
from lance_namespace.errors import InvalidInputError

from lance_bridge.config import load

from .memory_catalog import MemoryConfig, MemoryNamespace

pytestmark = pytest.mark.quick

SECRET = "s3cr3t-value"


@pytest.fixture
def module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """A module with a provider that works, and others that do not."""
    (tmp_path / "vaults.py").write_text(
        "def fetch(properties):\n"
        f"    return {{'token': '{SECRET}-' + properties['uri'], 'storage.sas_key': '{SECRET}'}}\n"
        f"def broken(properties):\n    raise RuntimeError('{SECRET}')\n"
        f"def text(properties):\n    return '{SECRET}'\n"
        f"def unknown(properties):\n    return {{'tokn': '{SECRET}'}}\n"
        f"def nested(properties):\n    return {{'token': ['{SECRET}']}}\n"
    )
    monkeypatch.syspath_prepend(str(tmp_path))
    return "vaults"


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "secrets.yaml"
    path.write_text(f"token: {SECRET}\nstorage.aws_secret_access_key: {SECRET}\n")
    return path


def token(config: MemoryConfig) -> str:
    assert config.token is not None
    return config.token.get_secret_value()


def test_a_file_and_a_function_give_properties(file: Path, module: str) -> None:
    of_file = load(MemoryConfig, "memory", {"uri": "x", "secrets.file": str(file)})
    assert token(of_file) == SECRET
    assert of_file.storage == {"aws_secret_access_key": SECRET}
    named = {"uri": "x", "secrets.file": str(file), "secrets.provider": f"{module}:fetch"}
    of_both = load(MemoryConfig, "memory", named)
    assert token(of_both) == f"{SECRET}-x"
    assert of_both.storage == {"aws_secret_access_key": SECRET, "sas_key": SECRET}


def test_given_properties_come_first_and_those_of_the_environment_last(
    file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("LANCE_BRIDGE_MEMORY_TOKEN", "environment")
    monkeypatch.setenv("LANCE_BRIDGE_MEMORY_SECRETS_FILE", str(file))
    assert token(load(MemoryConfig, "memory", {"uri": "x"})) == SECRET
    assert token(load(MemoryConfig, "memory", {"uri": "x", "token": "given"})) == "given"


def test_a_pickle_carries_where_the_secrets_are_and_none_of_them(
    file: Path, caplog: pytest.LogCaptureFixture, request: pytest.FixtureRequest
) -> None:
    namespace = MemoryNamespace(uri=request.node.nodeid, **{"secrets.file": str(file)})
    content = pickle.dumps(namespace)
    assert SECRET.encode() not in content
    assert SECRET not in repr(namespace.connection)
    assert token(pickle.loads(content).connection.config) == SECRET
    assert not caplog.records
    file.unlink()
    with pytest.raises(InvalidInputError, match=r"secrets\.file.*No such file"):
        pickle.loads(content)


@pytest.mark.parametrize(
    ("properties", "said"),
    [
        ({"secrets.file": "/nowhere/x.yaml"}, "No such file"),
        ({"secrets.provider": "vaults"}, "module:function"),
        ({"secrets.provider": "vaults:missing"}, "cannot be imported"),
        ({"secrets.provider": "no_such_module:x"}, "cannot be imported"),
        ({"secrets.provider": ".vaults:fetch"}, "cannot be imported"),
        ({"secrets.provider": "..:fetch"}, "cannot be imported"),
        ({"secrets.provider": "vaults:broken"}, "failed with RuntimeError"),
        ({"secrets.provider": "vaults:text"}, "must return a mapping"),
        ({"secrets.provider": "vaults:unknown"}, "did you mean 'token'"),
        ({"secrets.provider": "vaults:nested"}, "'token' must be a string"),
    ],
)
@pytest.mark.usefixtures("module")
def test_a_source_that_gives_nothing_is_refused_and_no_value_shown(
    properties: dict[str, Any], said: str
) -> None:
    with pytest.raises(InvalidInputError, match=said) as caught:
        load(MemoryConfig, "memory", {"uri": "x", **properties})
    shown = traceback.format_exception_only(caught.value)
    assert SECRET not in "".join(shown)


@pytest.mark.parametrize(
    "text",
    [
        SECRET,
        f"token: [{SECRET}",
        f"- {SECRET}",
        "secrets.file: x",
        f"token: {SECRET}\ntoken: {SECRET}",
        f"1: {SECRET}",
    ],
)
def test_a_file_that_is_no_mapping_is_refused_and_no_line_shown(tmp_path: Path, text: str) -> None:
    path = tmp_path / "bad.yaml"
    path.write_text(text)
    with pytest.raises(InvalidInputError, match=r"secrets\.file") as caught:
        load(MemoryConfig, "memory", {"uri": "x", "secrets.file": str(path)})
    assert SECRET not in "".join(traceback.format_exception(caught.value))
