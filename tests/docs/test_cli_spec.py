"""``specs/cli.md`` says what the code does: commands, exit codes and findings are compared."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import typer

from lance_bridge import exit_codes
from lance_bridge_cli.app import app
from lance_bridge_doctor import Kind

from .spec_facts import DOCUMENTS
from .spec_reader import function_links

CLI_SPEC = DOCUMENTS["cli"]
OTHERS = ("migrate",)
"""Groups that another document describes."""


def commands(group: Any, *names: str) -> Iterator[str]:
    for name, command in group.commands.items():
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
    assert [row[0] for row in rows if not function_links(row[-1])] == []
