"""Help of all commands, and the options that all have."""

from __future__ import annotations

import inspect
import logging
from pathlib import Path
from typing import Any

import pytest
import typer
from typer import rich_utils

from lance_bridge_cli.app import app
from lance_bridge_cli.help import EXIT_CODES, unwrap
from lance_bridge_cli.output import Verbosity, hint, log_messages, message, set_verbosity

from .program import COMMANDS, run, said

pytestmark = [
    pytest.mark.quick,
    pytest.mark.spec("cli.md#commands", "cli.md#output", "cli.md#exit-codes"),
]


def help_of(*words: str) -> str:
    """Return a help whose lines do not wrap."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(rich_utils, "MAX_WIDTH", 1000)
        return run(*words, "--help").stdout


def command_of(words: tuple[str, ...]) -> Any:
    """Return the command that has this name."""
    found: Any = typer.main.get_command(app)
    context = typer.Context(found)
    for word in words:
        found = found.get_command(context, word)
    return found


# -- help ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("words", [each for each in COMMANDS if each != ("check",)], ids=" ".join)
def test_help_wraps_paragraphs_once_and_has_the_exit_codes(words: tuple[str, ...]) -> None:
    shown = help_of(*words)
    documented = inspect.cleandoc(command_of(words).callback.__doc__)
    lines = {line.strip() for line in shown.splitlines()}
    for paragraph in documented.split("\n\n"):
        assert " ".join(paragraph.split("\n")) in lines, paragraph
    assert EXIT_CODES in lines
    assert "<bool>" not in shown
    assert run(*words, "-h").stdout == run(*words, "--help").stdout


@pytest.mark.parametrize("words", [[], ["table"], ["spark"], ["keys"], ["migrate"]], ids=" ".join)
def test_help_of_groups_has_no_type_of_a_flag(words: list[str]) -> None:
    shown = help_of(*words)
    assert "<bool>" not in shown
    assert "-h" in shown


def test_a_list_in_a_docstring_keeps_its_lines() -> None:
    text = """First of
    two lines.

    - one
    - two
    """
    assert unwrap(text) == "First of two lines.\n\n- one\n- two"


@pytest.mark.parametrize(
    ("typed", "meant"), [("doctr", "doctor"), ("tabel", "table"), ("serch", "search")]
)
def test_a_misspelt_command_gets_a_suggestion(typed: str, meant: str) -> None:
    error = " ".join(run(typed, code=2).stderr.split())
    assert f"'{meant}'" in error.partition("Did you mean ")[2]


# -- quiet and verbose -----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("verbosity", "expected"),
    [
        (Verbosity.QUIET, ["failed", "an error"]),
        (Verbosity.NORMAL, ["failed", "use --column", "retried", "an error"]),
        (
            Verbosity.VERBOSE,
            ["failed", "use --column", "connected with password=***", "retried", "an error"],
        ),
    ],
    ids=lambda each: each.name.lower() if isinstance(each, Verbosity) else "",
)
def test_the_verbosity_decides_which_messages_are_printed(
    verbosity: Verbosity, expected: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    ours = logging.getLogger("lance_bridge.test")
    with log_messages():
        set_verbosity(verbosity)
        message("failed")
        hint("use --column")
        ours.debug("connected with password=hunter2")
        ours.warning("retried")
        ours.error("an error")
        logging.getLogger("botocore").debug("Authorization: hunter2")
    shown = capsys.readouterr().err.splitlines()
    assert [each.removeprefix("lance-bridge: ") for each in shown] == expected
    assert not ours.isEnabledFor(logging.DEBUG)


@pytest.mark.parametrize("place", ["before", "after"])
def test_verbose_prints_the_causes_of_an_error(
    place: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").touch()
    monkeypatch.setenv("LANCE_BRIDGE_CONFIG", str(tmp_path / "file" / "catalogs.yaml"))
    command = ["config", "set", "prod", "impl=glue"]
    normal = said(run(*command, code=1).stderr)
    more = ["-v", *command] if place == "before" else [*command, "-v"]
    verbose = run(*more, code=1).stderr.splitlines()
    assert verbose[-1] == normal
    assert any("FileExistsError: " in line for line in verbose[:-1])
