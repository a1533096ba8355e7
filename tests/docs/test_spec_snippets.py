"""What the specs show works: their Python runs, and their configuration is read."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import lance_namespace as api
import pyarrow as pa
import pytest
import yaml
from core.memory_catalog import SERVERS

import lance_bridge
from lance_bridge import LanceBridgeNamespace
from lance_bridge_federated import FederatedNamespace
from lance_bridge_hive import HiveNamespace
from lance_bridge_unity import sql

from .operation_samples import TABLE, new_namespace
from .spec_facts import COMMON_SPEC, DOCUMENTS, OPERATIONS_SPEC, SPECS
from .spec_reader import Spec

pytestmark = pytest.mark.checks


def test_the_python_of_the_operations_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    snippets = OPERATIONS_SPEC.snippets("python")
    namespace, server = new_namespace(tmp_path / "lake")
    rows = pa.table({"id": [3000, 3001], "price": [300.0, 300.1]})
    with pa.ipc.new_stream(str(tmp_path / "rows.arrows"), rows.schema) as writer:
        writer.write_table(rows)
    monkeypatch.chdir(tmp_path)
    known = {"ns": namespace, "api": api, "table": TABLE}

    assert len(snippets) > 1
    for snippet in snippets:
        exec(compile(snippet, OPERATIONS_SPEC.path.name, "exec"), known)
    count = namespace.count_table_rows(api.CountTableRowsRequest(id=TABLE)).count
    assert count == 3002
    assert server.effects == ["create_table"]
    for name in [name for name, each in SERVERS.items() if each is server]:
        del SERVERS[name]


def configure(text: str, directory: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Make a text the configuration file."""
    (directory / "config.yaml").write_text(text, encoding="utf-8")
    monkeypatch.setenv("LANCE_BRIDGE_CONFIG", str(directory / "config.yaml"))


@pytest.mark.parametrize("spec", SPECS.values(), ids=SPECS)
def test_the_configuration_file_of_a_spec_is_read(
    spec: Spec, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    snippets = spec.snippets("yaml")
    configure("".join(snippets), tmp_path, monkeypatch)

    assert snippets
    for name in yaml.safe_load(snippets[0])["catalogs"]:
        connected = lance_bridge.connect(name)
        assert isinstance(connected, LanceBridgeNamespace)
        assert connected.impl == spec.name
        connected.close()


@pytest.mark.spec("common.md#storage-credentials")
def test_the_vendors_of_the_common_spec_are_configured(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    [snippet] = COMMON_SPEC.snippets("yaml")
    configure(snippet, tmp_path, monkeypatch)

    names = yaml.safe_load(snippet)["catalogs"]
    assert len(names) == 5
    for name in names:
        connected = lance_bridge.connect(name)
        assert isinstance(connected, LanceBridgeNamespace)
        assert connected.connection.credentials.is_configured("s3://archive/t.lance")
        connected.close()


def test_the_statements_that_unitys_spec_shows_are_those_that_are_sent() -> None:
    table, some = ("c", "s", "t"), "…"
    made = [
        sql.create_table(table, some, {"table_type": "lance"}),
        sql.set_location(table, some),
        sql.unset_properties(table, [some]),
        sql.set_properties(table, {some: some}),
        sql.rename_table(table, ("c", "s", "u")),
    ]
    [shown] = SPECS["unity"].snippets("sql")

    sent = [statement.replace(r"\u2026", some) for statement in made]
    assert shown.replace(", …)", ")").splitlines() == sent


# -- specs/federated.md ----------------------------------------------------------------------------


SPEC = DOCUMENTS["federated"]


@pytest.mark.spec("federated.md#connecting")
def test_the_configuration_file_connects(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    [text] = SPEC.snippets("yaml")
    configure(text, tmp_path, monkeypatch)
    for name in ("all", "federated"):
        namespace = lance_bridge.connect(name)
        assert isinstance(namespace, FederatedNamespace)
        assert namespace.catalogs == ["files", "prod"]


@pytest.mark.spec("federated.md#connecting")
def test_the_python_of_federations_runs(tmp_path: Path) -> None:
    [text] = SPEC.snippets("python")
    found: dict[str, Any] = {}
    code = text.replace("/srv/tables", str(tmp_path))
    exec(compile(code, SPEC.path.name, "exec"), found)
    assert str(tmp_path) in code
    assert isinstance(found["hive"], HiveNamespace)
    assert found["ns"].child("files").namespace_id()
