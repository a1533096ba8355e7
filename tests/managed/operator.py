"""An operator who runs each command that a message prints, through the program's own functions."""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from typer.testing import CliRunner

from lance_bridge_cli.app import app

PROGRAM = "lance-bridge"
_LONGEST = 4
"""How many commands are run of which each prints the next one."""
_QUOTED = re.compile(rf"`({PROGRAM} [^`]+)`")
_FULL = rf"{PROGRAM} [a-z]+ [a-z-]+ {{}} [^`;']*?(?=[.;,]? [A-Z]|[.;,]?$)"
"""A command with a catalog, up to the end of its sentence."""
_AGAIN = re.compile(r"again in a moment|retry in a moment|retry later|is being renamed or repaired")
_NEW_ENTRY = re.compile(r"deregister (?:it|the table),? and register it(?:s location| again)")
_DISCARD = re.compile(r"\bdiscard (?:them|it)\b")
_ADOPT = re.compile(r"\badopt or discard (?:them|it)\b")
_OF_NO_MATTER = {"clock-skew", "orphaned-data", "unknown-data"}
"""Kinds of findings that are not of a table's entry, or of the clocks that a test moves."""


@dataclass(frozen=True)
class Place:
    """A table's entry: the catalog in the configuration, the name there, and where it lies."""

    catalog: str
    name: str
    location: str


@dataclass
class Operator:
    """Runs what is printed, and keeps what was done and what it printed, for people.

    Attributes:
        choose: Chooses one of several ways out that a message has.
    """

    choose: Callable[[Sequence[str]], str]
    log: list[str] = field(default_factory=list)

    def run(self, line: str) -> tuple[int, str]:
        """Run a line of a shell; return the exit code and all that the last command printed."""
        code, text = 0, ""
        for each in line.split(" && "):
            words = shlex.split(each)
            assert words[0] == PROGRAM, line
            done = CliRunner().invoke(app, words[1:])
            code, text = done.exit_code, done.output
            known = done.exception is None or isinstance(done.exception, SystemExit)
            assert known, (each, done.exception)
            self.log.append(f"$ {each}\n{text.strip()} [{code}]")
            if code:
                break
        return code, text

    def obey(self, message: str, place: Place) -> None:
        """Run one of the ways out that a message has, and then what that prints if it fails.

        If it has none, as an error of pylance's own, the doctor is asked.
        """
        last = self._follow(message, place)
        if last:
            self.log.append(f"no way out: {last}")
            self.obey_doctor(place)

    def _follow(self, message: str, place: Place) -> str:
        """Run what a message prints, and so on; return the last message if it prints nothing."""
        for _ in range(_LONGEST):
            ways = ways_out(message, place)
            if not ways:
                return message
            code, message = self.run(self.choose(ways))
            if not code:
                break
        return ""

    def findings(self, place: Place) -> list[dict[str, Any]]:
        """Return what the doctor finds of tables in a namespace."""
        words = ["doctor", place.catalog, "--idle", "0m", "--output", "json"]
        done = CliRunner().invoke(app, words)
        assert done.exit_code in (0, 3), done.output
        found: list[dict[str, Any]] = json.loads(done.stdout)["findings"]
        inside = place.name.rpartition(".")[0] + "."
        return [
            each
            for each in found
            if each["kind"] not in _OF_NO_MATTER and each["subject"].startswith(inside)
        ]

    def obey_doctor(self, place: Place) -> bool:
        """Run the fix of each finding; return whether there were any."""
        found = self.findings(place)
        for each in found:
            place = Place(place.catalog, each["subject"], place.location)
            more = ways_out(each["message"], place)
            self.log.append(f"doctor: {each['message']}")
            code, text = self.run(self.choose([each["command"], *more]))
            if code:
                self._follow(text, place)
        return bool(found)


def ways_out(message: str, place: Place) -> list[str]:
    """Return the commands that a message prints, each as it is run for a table."""
    found = [_completed(each, place) for each in _commands(message, place)]
    words = f"{shlex.quote(place.catalog)} {shlex.quote(place.name)}"
    if _NEW_ENTRY.search(message):
        again = f"{PROGRAM} table register {words} {shlex.quote(place.location)}"
        found.append(f"{PROGRAM} table deregister {words} && {again}")
    if _ADOPT.search(message):
        found.append(f"{PROGRAM} managed adopt {words}")
    if _DISCARD.search(message):
        found.append(f"{PROGRAM} managed discard {words} --yes")
    return list(dict.fromkeys(found))


def asks_to_wait(message: str) -> bool:
    """Return whether a message says that the same call may succeed later."""
    return _AGAIN.search(message) is not None


def _commands(message: str, place: Place) -> list[str]:
    full = re.compile(_FULL.format(re.escape(place.catalog)), re.MULTILINE)
    return [*_QUOTED.findall(message), *full.findall(_QUOTED.sub("", message))]


def _completed(line: str, place: Place) -> str:
    """Return a command with the table that its message is about, if it names none."""
    words = shlex.split(line)
    if place.catalog not in words:
        words[3:3] = [place.catalog, place.name]
    if words[1:3] == ["managed", "discard"] and "--yes" not in words:
        words.append("--yes")
    return shlex.join(words)
