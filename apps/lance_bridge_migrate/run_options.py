"""How a plan is carried out."""

from __future__ import annotations

from pydantic import Field

from .kind import Options
from .levels import Level
from .record import Record


class RunOptions(Options):
    """How a plan is carried out; kept with each run, and taken over by the next.

    Attributes:
        at_once: How many items are worked on at the same time.
        verify: How thoroughly each item is verified once it is done.
        skip_blocked: Leave out what is blocked, and carry out the rest.
        stop_on_error: Begin no other item once one has failed.
    """

    at_once: int = Field(default=8, ge=1, le=64)
    verify: Level = Level.COUNTS
    skip_blocked: bool = False
    stop_on_error: bool = False


def options_of_last_run(record: Record) -> RunOptions:
    """Return how the plan was carried out last, or the defaults."""
    runs = [run for run in record.runs if run.event == "run"]
    return RunOptions.model_validate(runs[-1].options) if runs else RunOptions()
