"""The lines to paste of ``docs/gateway-clients.md``, for the clients that are always installed.

`test_gateway_clients_page_languages.py` has those for Node.js and Java, and
`tests/clients/engines/test_gateway_page.py` those for engines.
"""

from __future__ import annotations

import json
from collections.abc import Iterator

import pytest
from docs.gateway_pages import CLIENTS_PAGE, Block, Reader, blocks
from servers.metastores import Metastores

from .gateway_page import reader_of_clients_page

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


@pytest.fixture(scope="module")
def reader(tmp_path_factory: pytest.TempPathFactory, metastores: Metastores) -> Iterator[Reader]:
    with reader_of_clients_page(tmp_path_factory.mktemp("page"), metastores) as found:
        yield found


def here() -> list[Block]:
    return [each for each in blocks(CLIENTS_PAGE) if each.section in SECTIONS]


@pytest.mark.documents
@pytest.mark.spark
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
