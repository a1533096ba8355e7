"""The lines to paste of ``docs/gateway-clients.md``, for the clients that have to be installed.

`tests/server/test_gateway_clients_page.py` has the others. Node.js and Java need those, Java Maven
as well.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from docs.gateway_pages import CLIENTS_PAGE, REPOSITORY, Block, Reader, blocks
from server.gateway_page import reader_of_clients_page
from servers.metastores import Metastores

pytestmark = [pytest.mark.server, pytest.mark.clients, pytest.mark.timeout(600)]

NODE_MODULES = REPOSITORY / ".cache" / "node" / "node_modules"
POM = """<project xmlns="http://maven.apache.org/POM/4.0.0">
<modelVersion>4.0.0</modelVersion>
<groupId>page</groupId><artifactId>page</artifactId><version>1</version>
<dependencies>{}</dependencies>
</project>"""
_CREATES = re.compile("create_table|write_dataset")
FETCH = "org.apache.maven.plugins:maven-dependency-plugin:3.6.1:copy-dependencies"


@pytest.fixture
def reader(tmp_path: Path, metastores: Metastores) -> Iterator[Reader]:
    """A reader who has come to these sections: the table `films` has three rows."""
    with reader_of_clients_page(tmp_path, metastores) as found:
        for block in blocks(CLIENTS_PAGE):
            is_python = block.section in ("pylance", "LanceDB for Python")
            if block.section == "curl" or (is_python and _CREATES.search(block.text)):
                found.follow(block)
        yield found


def section(title: str) -> list[Block]:
    return [each for each in blocks(CLIENTS_PAGE) if each.section == title]


def test_the_lines_for_node_run(reader: Reader) -> None:
    [block] = section("LanceDB for Node.js")
    script = reader.directory / "films.mjs"
    script.write_text(reader.here(block.text), encoding="utf-8")
    (reader.directory / "node_modules").symlink_to(NODE_MODULES)
    printed = reader.run(["node", "--preserve-symlinks", str(script)])
    assert printed.splitlines() == block.printed
    assert len(block.printed) == 2


def test_the_lines_for_java_run(reader: Reader) -> None:
    dependency, program = section("Java")
    pom, source = reader.directory / "pom.xml", reader.directory / "Films.java"
    pom.write_text(POM.format(dependency.text), encoding="utf-8")
    source.write_text(reader.here(program.text), encoding="utf-8")
    maven = ["mvn", "--quiet", "--batch-mode", "--file", str(pom), FETCH]
    reader.run([*maven, f"-DoutputDirectory={reader.directory}/jars"], HOME=os.environ["HOME"])
    printed = reader.run(["java", "-cp", f"{reader.directory}/jars/*", str(source)])
    assert printed.splitlines() == program.printed
    assert len(program.printed) == 2


@pytest.mark.parametrize("title", ["lance-ray", "daft-lance"])
def test_the_lines_for_engines_in_python_run(reader: Reader, title: str) -> None:
    reader.environment["RAY_USAGE_STATS_ENABLED"] = "0"
    [block] = section(title)
    reader.follow(block, own_process=True)
    assert block.printed
