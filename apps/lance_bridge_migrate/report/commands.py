"""What can be done with a migration from where it stands, as commands."""

from __future__ import annotations

import shlex
from collections.abc import Iterator

from ..record import Record, State
from .model import CommandLine

_OVER = (State.DONE, State.DIFFERS, State.NOTHING_TO_DO)


def commands_of(record: Record, state_directory: str | None = None) -> Iterator[CommandLine]:
    """Yield the commands that a migration can be gone on with."""

    def command(purpose: str, verb: str, *options: str) -> CommandLine:
        place = ("--state", state_directory) if state_directory else ()
        words = ("lance-bridge", "migrate", verb, record.plan.id, *options, *place)
        return CommandLine(purpose=purpose, command=shlex.join(words))

    if _is_to_resume(record):
        begun = bool(record.runs)
        purpose = "Go on with what is not done" if begun else "Carry it out"
        blocked = ("--skip-blocked",) if _needs_to_skip(record) else ()
        yield command(purpose, "resume", *blocked)
    if any(each.is_done and not each.undo_begun for each in record.items.values()):
        purpose = "Compare what was made with its source, by all values"
        yield command(purpose, "verify", "--level", "checksums")
    if any(each.has_begun and not each.is_undone for each in record.items.values()):
        purpose = "Go on undoing it" if record.undo_has_begun else "Take back what it did"
        yield command(purpose, "undo")
    yield command("Show where it stands", "show")


def _is_to_resume(record: Record) -> bool:
    """Return whether a run would have anything to do: an undone migration is not run again."""
    to_do = [each for each in record.items.values() if each.item.is_to_do]
    return not record.undo_has_begun and any(each.state not in _OVER for each in to_do)


def _needs_to_skip(record: Record) -> bool:
    """Return whether blocked tables must be left out by name: a run takes over the last one's."""
    runs = [each for each in record.runs if each.event == "run"]
    return bool(record.plan.blocked) and not (runs and runs[-1].options.get("skip_blocked"))
