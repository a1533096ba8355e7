"""The lines to paste of ``docs/gateway-clients.md``, also for clients that npm and Maven fetch.

`tests/clients/engines/test_engines.py` has those for engines.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from clients.fetched import java_client, node_packages
from docs.gateway_pages import (
    CLIENTS_PAGE,
    REPOSITORY,
    Block,
    Reader,
    blocks,
    reader_after_python,
    reader_of_clients_page,
    section,
)
from servers.metastores import Metastores

pytestmark = pytest.mark.documents

SECTIONS = {
    "curl": ["sh"],
    "pylance": ["python"] * 2,
    "Python without pylance": ["python"],
    "LanceDB for Python": ["python"] * 5,
    "Spark": ["python"],
}
"""The languages of the blocks that are run here, by section."""
ELSEWHERE = {"LanceDB for Node.js", "Java", "DuckDB", "lance-ray", "daft-lance"}
NOT_TESTED = {"Not tested"}
"""The section that says what could not be run, and with which settings it would be."""
POM = REPOSITORY / "tests" / "clients" / "java" / "pom.xml"


@pytest.fixture
def reader(tmp_path: Path, metastores: Metastores) -> Iterator[Reader]:
    with reader_of_clients_page(tmp_path, metastores) as found:
        yield found


def here() -> list[Block]:
    return [each for each in blocks(CLIENTS_PAGE) if each.section in SECTIONS]


def test_the_lines_run_from_top_to_bottom(reader: Reader) -> None:
    reader.environment["SPARK_LOCAL_IP"] = "127.0.0.1"
    reader.environment["PYSPARK_SUBMIT_ARGS"] = "--conf spark.ui.enabled=false pyspark-shell"
    for block in here():
        printed = reader.follow(block, own_process=block.section == "Spark")
        if block.language == "sh":
            assert '"namespaces":["prod"]' in printed.replace(" ", "")
        else:
            assert block.printed, "it says nothing of what it prints"


@pytest.mark.servers
def test_every_section_is_run_somewhere() -> None:
    found: dict[str, list[str]] = {}
    for block in here():
        found.setdefault(block.section, []).append(block.language)
    assert found == SECTIONS
    assert {each.section for each in blocks(CLIENTS_PAGE)} - set(SECTIONS) == ELSEWHERE | NOT_TESTED


@pytest.mark.servers
def test_no_line_works_without_a_key(reader: Reader) -> None:
    wrong = "lbk_0000000000000000_" + "x" * 43
    command = ["sh", "-c", reader.here(here()[0].text).replace("-fsS", "-sS")]
    answers = reader.run(command, LANCE_KEY=wrong).replace("}{", "}\n{").splitlines()
    assert [json.loads(each)["code"] for each in answers] == [16, 16]


# -- Node.js and Java -----------------------------------------------------------------------------


@pytest.fixture(scope="module")
def later_reader(
    tmp_path_factory: pytest.TempPathFactory, metastores: Metastores
) -> Iterator[Reader]:
    with reader_after_python(tmp_path_factory.mktemp("page"), metastores) as found:
        yield found


def test_the_lines_for_node_run(later_reader: Reader) -> None:
    [block] = section("LanceDB for Node.js")
    script = later_reader.directory / "films.mjs"
    script.write_text(later_reader.here(block.text), encoding="utf-8")
    (later_reader.directory / "node_modules").symlink_to(node_packages() / "node_modules")
    printed = later_reader.run(["node", "--preserve-symlinks", str(script)])
    assert printed.splitlines() == block.printed
    assert len(block.printed) == 2


def test_the_lines_for_java_run(later_reader: Reader) -> None:
    dependency, program = section("Java")
    assert _joined(dependency.text) in _joined(POM.read_text(encoding="utf-8"))
    source: Path = later_reader.directory / "Films.java"
    source.write_text(later_reader.here(program.text), encoding="utf-8")
    printed = later_reader.run(["java", "-cp", f"{java_client()}/*", str(source)])
    assert printed.splitlines() == program.printed
    assert len(program.printed) == 2


def _joined(text: str) -> str:
    return " ".join(text.split())
