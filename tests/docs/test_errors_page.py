"""``docs/errors.md`` has every code, with its name and its status over HTTP."""

from __future__ import annotations

import re

import pytest
import typer
from lance_namespace.errors import ErrorCode

from lance_bridge_cli.app import app
from lance_bridge_server.errors import STATUS_BY_CODE

from .gateway_pages import REPOSITORY
from .spec_reader import Spec
from .test_cli_spec import commands

pytestmark = pytest.mark.checks

ROWS = Spec(REPOSITORY / "docs" / "errors.md").rows("Errors", "code")


def test_every_code_has_a_row_with_its_name_and_status() -> None:
    shown = [(int(code), name, int(status)) for code, name, status, *_ in ROWS]
    names = {code: code.name.title().replace("_", "") for code in ErrorCode}
    assert shown == [(int(code), names[code], STATUS_BY_CODE[code]) for code in ErrorCode]


def test_every_row_says_what_to_do() -> None:
    assert [
        row[0] for row in ROWS if len(row) != 5 or not all(cell.endswith(".") for cell in row[3:])
    ] == []


def test_commands_that_help_exist() -> None:
    known = set(commands(typer.main.get_command(app)))
    named = re.findall(r"`lance-bridge ([a-z ]+?) CATALOG", " ".join(row[4] for row in ROWS))
    assert len(named) > 5
    assert [each for each in named if each not in known] == []
