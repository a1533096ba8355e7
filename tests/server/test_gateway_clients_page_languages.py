"""The lines to paste of ``docs/gateway-clients.md`` for Node.js and Java, which are fetched.

`test_gateway_clients_page.py` has those for Python, and `tests/clients/engines` those for engines.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from clients.fetched import java_client, node_packages
from docs.gateway_pages import REPOSITORY, Reader
from servers.metastores import Metastores

from .gateway_page import reader_after_python, section

pytestmark = pytest.mark.documents

POM = REPOSITORY / "tests" / "clients" / "java" / "pom.xml"


@pytest.fixture(scope="module")
def reader(tmp_path_factory: pytest.TempPathFactory, metastores: Metastores) -> Iterator[Reader]:
    with reader_after_python(tmp_path_factory.mktemp("page"), metastores) as found:
        yield found


def test_the_lines_for_node_run(reader: Reader) -> None:
    [block] = section("LanceDB for Node.js")
    script = reader.directory / "films.mjs"
    script.write_text(reader.here(block.text), encoding="utf-8")
    (reader.directory / "node_modules").symlink_to(node_packages() / "node_modules")
    printed = reader.run(["node", "--preserve-symlinks", str(script)])
    assert printed.splitlines() == block.printed
    assert len(block.printed) == 2


def test_the_lines_for_java_run(reader: Reader) -> None:
    dependency, program = section("Java")
    assert _joined(dependency.text) in _joined(POM.read_text(encoding="utf-8"))
    source: Path = reader.directory / "Films.java"
    source.write_text(reader.here(program.text), encoding="utf-8")
    printed = reader.run(["java", "-cp", f"{java_client()}/*", str(source)])
    assert printed.splitlines() == program.printed
    assert len(program.printed) == 2


def _joined(text: str) -> str:
    return " ".join(text.split())
