"""``specs/cli.md`` says what the code does: commands, exit codes and findings are compared."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import typer

from lance_bridge import exit_codes
from lance_bridge_cli.app import app
from lance_bridge_doctor import Kind

from .spec_facts import CLI_SPEC
from .spec_reader import named_tests

TEXT = CLI_SPEC.path.read_text(encoding="utf-8")
OTHERS = ("migrate",)
"""Groups that another document describes."""
SHOWN_BELOW = ("What All Commands Share", "Groups")


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


def test_every_command_is_listed() -> None:
    told = first_cells("Commands", "command")

    assert sorted(told) == sorted(commands(typer.main.get_command(app)))
    assert len(told) > 28


def test_exit_codes_are_those_of_the_code() -> None:
    codes = (
        0,
        exit_codes.FAILED,
        exit_codes.MISUSED,
        exit_codes.FOUND,
        exit_codes.INTERRUPTED,
    )

    assert first_cells("Exit Codes", "code") == [str(code) for code in codes]


def test_every_kind_of_finding_is_listed_with_its_tests() -> None:
    rows = CLI_SPEC.rows("Findings", "finding")

    assert [row[0].strip("`") for row in rows] == [kind.value for kind in Kind]
    assert [row[0] for row in rows if not named_tests(row[-1])] == []


def test_every_section_is_shown_by_cases() -> None:
    sections = [name for part in SHOWN_BELOW for name in CLI_SPEC.below(part)]

    assert len(sections) > 12
    assert [name for name in sections if not named_tests(CLI_SPEC.body(name))] == []
