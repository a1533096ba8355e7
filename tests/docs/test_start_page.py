"""``docs/start.md``, from its first line to its last, on a real Hive Metastore."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import lance_namespace as api
import pytest
from cli.running import pasted
from servers.metastores import Metastores

from lance_bridge_hive import HiveNamespace

from .gateway_pages import REPOSITORY, Reader, blocks

pytestmark = [pytest.mark.server, pytest.mark.documents]

PAGE = REPOSITORY / "docs" / "start.md"
NOT_RUN = ("pip install ", "lance-bridge metastore start ")
"""What tests of the extras and of the README run."""


@pytest.fixture
def uri(metastores: Metastores) -> Iterator[str]:
    """The address of a metastore without the database of the page."""
    address = f"thrift://127.0.0.1:{metastores.get('2.3').port}"
    yield address
    with HiveNamespace(uri=address) as namespace:
        request = api.DropNamespaceRequest(id=["sales"], mode="Skip", behavior="Cascade")
        namespace.drop_namespace(request)


def test_the_page_runs_from_top_to_bottom(
    uri: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("LANCE_BRIDGE_CONFIG", str(tmp_path / "config.yaml"))
    monkeypatch.chdir(tmp_path)
    reader, printed = Reader(tmp_path, {"thrift://localhost:9083": uri}), ""
    for block in blocks(PAGE):
        if block.language == "python":
            printed += reader.follow(block)
        for line in block.text.splitlines() if block.language == "sh" else ():
            if not line.startswith(NOT_RUN):
                done = pasted(reader.here(line))
                assert done.exit_code == 0, f"{line}\n{done.output}"
                printed += done.output
    assert "Faust" in printed
    assert "sales.articles" in printed
    assert printed.splitlines()[-1] == "3"
