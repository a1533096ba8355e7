"""Running the command line: in this process, or as the installed program in one of its own."""

from __future__ import annotations

import io
import json
import os
import pty
import re
import shlex
import signal
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import typer
from servers.processes import run_command
from typer import rich_utils
from typer.testing import CliRunner, Result

from lance_bridge_cli.app import app

PROGRAM = str(Path(sys.executable).with_name("lance-bridge"))
_SECONDS = 120.0
_AT_TERMINAL = """
import fcntl, os, sys, termios
fcntl.ioctl(0, termios.TIOCSCTTY, 0)
os.execv(sys.argv[1], sys.argv[1:])
"""
"""Makes its terminal the one whose Ctrl-C reaches it."""
_WITHOUT = """
import json, sys
packages, commands = json.loads(sys.argv[1])
sys.modules.update(dict.fromkeys(packages))  # to Python, None is a package that is not installed
from typer.testing import CliRunner
from lance_bridge_cli.app import app
for command in commands:
    done = CliRunner().invoke(app, command)
    print(json.dumps([done.exit_code, done.stdout, done.stderr]))
"""


def run(*arguments: str, code: int = 0, answer: str | None = None) -> Result:
    """Run a command in this process, and check its exit code."""
    done = CliRunner().invoke(app, list(arguments), input=answer)
    assert done.exit_code == code, f"{arguments}: {done.exit_code}\n{done.output}\n{done.exception}"
    return done


def said(error: str) -> str:
    """Return the one line of an error output that has no other."""
    [line] = error.splitlines()
    return line


def completion(*words: str) -> dict[str, str]:
    """Return what bash gives to the program, to complete the last word."""
    return {
        "_LANCE_BRIDGE_COMPLETE": "complete_bash",
        "COMP_WORDS": " ".join(["lance-bridge", *words]),
        "COMP_CWORD": str(len(words)),
    }


def offered(*words: str) -> list[str]:
    """Return what bash is offered for the last word, by this process."""
    done = CliRunner().invoke(app, [], env=completion(*words), prog_name="lance-bridge")
    assert done.exit_code == 0, done.output
    assert done.stderr == ""
    return done.stdout.split()


def answer_of(*arguments: str, code: int = 0) -> Any:
    """Run a command for a program, and return what it answered."""
    return json.loads(run(*arguments, "--output", "json", code=code).stdout)


def program(
    *arguments: str,
    stdin: str = "",
    environment: dict[str, str] | None = None,
    seconds: float = _SECONDS,
) -> subprocess.CompletedProcess[str]:
    """Run the installed program to its end."""
    given = {**os.environ, **(environment or {})}
    return run_command(PROGRAM, *arguments, code=None, seconds=seconds, input=stdin, env=given)


class Terminal(io.StringIO):
    """What is typed or shown at a terminal."""

    def isatty(self) -> bool:
        return True


@dataclass
class Done:
    """A command that has ended."""

    code: int
    stdout: str
    stderr: str


def run_without(packages: Sequence[str], *commands: Sequence[str]) -> list[Done]:
    """Run commands one after the other, in one process where packages cannot be imported."""
    done = run_command(sys.executable, "-c", _WITHOUT, json.dumps([packages, commands]))
    return [Done(*json.loads(line)) for line in done.stdout.splitlines()]


def pasted(command: str, answer: str = "") -> Result:
    """Run in this process what a person would paste into a shell.

    These are commands of this program, one after another with ``&&``. Each start of the program
    costs seconds, most of them to import what it stands on.
    """
    words = shlex.split(command)
    while True:
        end = words.index("&&") if "&&" in words else len(words)
        assert words[0] == "lance-bridge"
        done = CliRunner().invoke(app, words[1:end], input=answer or None)
        words = words[end + 1 :]
        if done.exit_code or not words:
            return done


def commands(group: Any, *names: str) -> Iterator[tuple[str, ...]]:
    """Yield every command below a group, as its words; those of migrations have their own spec."""
    context = typer.Context(group)
    for name in sorted(group.list_commands(context)):
        command = group.get_command(context, name)
        if not hasattr(command, "commands"):
            yield (*names, name)
        elif name != "migrate":
            yield from commands(command, *names, name)


COMMANDS = list(commands(typer.main.get_command(app)))


def examples(*words: str) -> list[str]:
    """Return the examples in the help of a command."""
    with pytest.MonkeyPatch.context() as patch:
        # Wide enough for a line; typer reads the environment once a process.
        patch.setattr(rich_utils, "MAX_WIDTH", 400)
        shown = run(*words, "--help").stdout
    return re.findall(r"Example: (lance-bridge .*?)\s*$", shown, re.MULTILINE)


@dataclass
class Running:
    """The program in a process of its own."""

    process: subprocess.Popen[str]

    def interrupt(self) -> tuple[int, str, str]:
        """Send what Ctrl-C sends; return the exit code, and what was printed."""
        self.process.send_signal(signal.SIGINT)
        out, error = self.process.communicate(timeout=_SECONDS)
        return self.process.returncode, out, error


@contextmanager
def started(*arguments: str) -> Iterator[Running]:
    """Start the program, and end it at the latest when the block is left."""
    process = subprocess.Popen(
        [PROGRAM, *arguments],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        yield Running(process)
    finally:
        if process.poll() is None:
            process.kill()
        process.communicate()


def at_terminal(arguments: Sequence[str], typed: str) -> tuple[int, str]:
    """Run the program at a terminal; type when it asks. Return the exit code and what it showed.

    Ctrl-C is typed as the character that it is, ``\\x03``.
    """
    terminal, other = pty.openpty()
    with subprocess.Popen(
        [sys.executable, "-c", _AT_TERMINAL, PROGRAM, *arguments],
        stdin=other,
        stdout=other,
        stderr=other,
        start_new_session=True,
    ) as process:
        os.close(other)
        shown = ""
        try:
            while chunk := _read(terminal):
                shown += chunk
                if typed and shown.rstrip().endswith(("[y/N]", "=")):
                    os.write(terminal, typed.encode())
                    typed = ""
        finally:
            os.close(terminal)
        return process.wait(_SECONDS), shown


def _read(terminal: int) -> str:
    try:
        return os.read(terminal, 4096).decode(errors="replace")
    except OSError:  # the program has ended
        return ""
