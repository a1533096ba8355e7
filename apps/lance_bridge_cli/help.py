"""What all commands share: how their help is shown, the exit codes in it, and ``-q`` and ``-v``."""

from __future__ import annotations

import inspect
from functools import cache
from typing import Annotated, Any

import typer

from .arguments import take_default
from .output import Verbosity, set_verbosity

HELP_OPTIONS = ["--help", "-h"]
EXIT_CODES = (
    "Exit codes: 0 done; 1 the catalog or the storage refused or failed; 2 wrong usage; 3 a check "
    "found something; 130 Ctrl-C; 141 the reader of the output ended first."
)
QUIET_HELP = "Print no warnings and no progress."
VERBOSE_HELP = "Also print what is done, and the full causes of errors."
_LIST_MARKS = tuple(" -*\b")
"""First characters of lines that are not part of a paragraph."""


def prepare(command: Any) -> None:
    """Add to a command what all share. Does nothing if that was done before."""
    if command.epilog == EXIT_CODES:
        return
    command.epilog = EXIT_CODES
    command.help = unwrap(command.help or "")
    if not command.context_settings.get("ignore_unknown_options"):
        command.params = [*command.params, *_verbosity_options()]
    take_default(command)
    hide_flag_types(command)


def unwrap(text: str) -> str:
    """Return a docstring whose paragraphs are one line each: the terminal's width wraps them."""
    paragraphs = inspect.cleandoc(text).split("\n\n")
    return "\n\n".join(
        each
        if any(line.startswith(_LIST_MARKS) for line in each.split("\n"))
        else each.replace("\n", " ")
        for each in paragraphs
    )


def hide_flag_types(command: Any) -> None:
    """Hide ``<bool>``, the type of options that take no value, in a command's help."""
    context = typer.Context(command, help_option_names=HELP_OPTIONS)
    for each in command.get_params(context):
        if getattr(each, "is_flag", False):
            each.metavar = ""


def _be_quiet(*, given: bool) -> None:
    if given:
        set_verbosity(Verbosity.QUIET)


def _be_verbose(*, given: bool) -> None:
    if given:
        set_verbosity(Verbosity.VERBOSE)


@cache
def _verbosity_options() -> list[Any]:
    """Return the options for one command, which can have them after its arguments."""
    app = typer.Typer(add_completion=False)

    @app.command()
    def _options(
        *,
        _quiet: Annotated[
            bool,
            typer.Option("--quiet", "-q", help=QUIET_HELP, callback=_be_quiet, expose_value=False),
        ] = False,
        _verbose: Annotated[
            bool,
            typer.Option(
                "--verbose", "-v", help=VERBOSE_HELP, callback=_be_verbose, expose_value=False
            ),
        ] = False,
    ) -> None: ...

    return list(typer.main.get_command(app).params)
