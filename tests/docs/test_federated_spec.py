"""What ``specs/federated.md`` shows works, and its properties are those that the code takes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import lance_bridge
from lance_bridge_federated import FederatedNamespace
from lance_bridge_federated import config as federation
from lance_bridge_hive import HiveNamespace

from .spec_facts import DOCUMENTS

pytestmark = [pytest.mark.checks, pytest.mark.spec("federated.md#connecting")]

SPEC = DOCUMENTS["federated"]
ROOT = "/srv/tables"


def test_the_configuration_file_connects(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    [text] = SPEC.snippets("yaml")
    path = tmp_path / "config.yaml"
    path.write_text(text, encoding="utf-8")
    monkeypatch.setenv("LANCE_BRIDGE_CONFIG", str(path))
    for name in ("all", "federated"):
        namespace = lance_bridge.connect(name)
        assert isinstance(namespace, FederatedNamespace)
        assert namespace.catalogs == ["files", "prod"]


def test_the_python_runs(tmp_path: Path) -> None:
    [text] = SPEC.snippets("python")
    assert ROOT in text
    found: dict[str, Any] = {}
    exec(compile(text.replace(ROOT, str(tmp_path)), SPEC.path.name, "exec"), found)
    assert isinstance(found["hive"], HiveNamespace)
    assert found["ns"].child("files").namespace_id()


def test_the_properties_are_those_that_the_code_takes() -> None:
    listed = [row[0].strip("`") for row in SPEC.rows("Connecting", "property")]
    prefix = f"{federation.PREFIX}<name>"
    assert listed == [federation.CATALOGS, f"{prefix}.impl", f"{prefix}.<property>"]
