"""``docs/index.md`` and ``docs/start.md``, from first line to last, on a real Hive Metastore."""

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

ADDRESSES = ("thrift://localhost:9083", "thrift://metastore:9083")
PAGES = {"index": ["Faust", "3"], "start": ["sales.articles", "films.silent"]}
"""What the blocks of a page must print, beside what their comments say."""
NOT_RUN = ("pip install ", "lance-bridge metastore start ")
"""What tests of the extras and of the README run."""


@pytest.fixture
def uri(metastores: Metastores) -> Iterator[str]:
    """The address of a metastore without the databases of the pages."""
    address = f"thrift://127.0.0.1:{metastores.get('2.3').port}"
    yield address
    with HiveNamespace(uri=address) as namespace:
        for name in ("sales", "films"):
            request = api.DropNamespaceRequest(id=[name], mode="Skip", behavior="Cascade")
            namespace.drop_namespace(request)


@pytest.mark.parametrize("page", PAGES)
def test_the_page_runs_from_top_to_bottom(
    page: str, uri: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("LANCE_BRIDGE_CONFIG", str(tmp_path / "config.yaml"))
    monkeypatch.chdir(tmp_path)
    reader, printed = Reader(tmp_path, dict.fromkeys(ADDRESSES, uri)), ""
    for block in blocks(REPOSITORY / "docs" / f"{page}.md"):
        if block.language == "python":
            printed += reader.follow(block)
        for line in block.text.splitlines() if block.language == "sh" else ():
            if not line.startswith(NOT_RUN):
                done = pasted(reader.here(line))
                assert done.exit_code == 0, f"{line}\n{done.output}"
                printed += done.output
    assert [text for text in PAGES[page] if text not in printed] == []
