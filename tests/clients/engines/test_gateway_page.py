"""The lines to paste of ``docs/gateway-clients.md`` for engines.

`make test-engines` installs them. `tests/server/test_gateway_clients_page.py` has those for Python.
"""

from __future__ import annotations

import shutil
import sys
from collections.abc import Iterator

import duckdb
import pytest
from clients.conftest import RAY_ENVIRONMENT
from clients.duckdb_extension import extension_file
from docs.gateway_pages import Reader, reader_after_python, section
from servers.metastores import Metastores

pytestmark = pytest.mark.engines

SECTIONS = {"DuckDB": 3, "lance-ray": 1, "daft-lance": 1}
"""How many blocks of Python each has."""
PROGRESS = "elapsed)"
"""Part of the bar that DuckDB prints while a query takes long."""


@pytest.fixture(scope="module")
def reader(tmp_path_factory: pytest.TempPathFactory, metastores: Metastores) -> Iterator[Reader]:
    with reader_after_python(tmp_path_factory.mktemp("page"), metastores) as found:
        found.environment |= RAY_ENVIRONMENT
        install_extension(found)
        yield found


def install_extension(reader: Reader) -> None:
    """Put the extension where DuckDB's `INSTALL lance` puts it, which downloads it."""
    [(platform,)] = duckdb.execute("PRAGMA platform").fetchall()
    target = reader.directory / ".duckdb" / "extensions" / f"v{duckdb.__version__}" / platform
    target.mkdir(parents=True)
    shutil.copy(extension_file(), target)


@pytest.mark.parametrize("title", SECTIONS)
def test_the_lines_run(reader: Reader, title: str) -> None:
    found = [each for each in section(title) if each.language == "python"]
    assert len(found) == SECTIONS[title]
    for block in found:
        printed = reader.run([sys.executable, "-c", reader.here(block.text)]).splitlines()
        assert [line for line in printed if line.strip() and PROGRESS not in line] == block.printed
        assert block.printed
