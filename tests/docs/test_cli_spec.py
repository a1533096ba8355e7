"""``specs/cli.md`` says what the code does: commands, exit codes and findings are compared."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
import typer

from lance_bridge import exit_codes
from lance_bridge_cli.app import app
from lance_bridge_doctor import Kind

from .spec_facts import DOCUMENTS
from .spec_links import names_used_for

pytestmark = [
    pytest.mark.checks,
    pytest.mark.spec("cli.md#commands", "cli.md#exit-codes", "cli.md#findings"),
]

CLI_SPEC = DOCUMENTS["cli"]
OTHERS = ("migrate",)
"""Groups that another document describes."""


def commands(group: Any, *names: str) -> Iterator[str]:
    context = typer.Context(group)
    for name in group.list_commands(context):
        command = group.get_command(context, name)
        if hasattr(command, "commands"):
            if name not in OTHERS:
                yield from commands(command, *names, name)
        else:
            yield " ".join((*names, name))


def first_cells(title: str, first: str) -> list[str]:
    return [row[0].strip("`") for row in CLI_SPEC.rows(title, first)]


def test_every_command_is_documented() -> None:
    listed = first_cells("Commands", "command")

    assert sorted(listed) == sorted(commands(typer.main.get_command(app)))
    assert len(listed) > 28


def test_exit_codes_are_those_of_the_code() -> None:
    codes = (
        0,
        exit_codes.FAILED,
        exit_codes.MISUSED,
        exit_codes.FOUND,
        exit_codes.INTERRUPTED,
    )

    assert first_cells("Exit Codes", "code") == [str(code) for code in codes]


def test_every_kind_of_finding_is_documented_and_tested() -> None:
    rows = CLI_SPEC.rows("Findings", "finding")

    assert [row[0].strip("`") for row in rows] == [kind.value for kind in Kind]
    used = {name for names in names_used_for("cli.md#findings").values() for name in names}
    assert [kind for kind in Kind if not used & {kind.name, kind.value}] == []
