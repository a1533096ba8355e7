"""What a report says, as plain fields: the page shows them, and JSON has them all.

Sizes are in bytes, times in ISO 8601 and UTC, durations in seconds. What is not known is None.
"""

from __future__ import annotations

from typing import Any, Final, Literal

from pydantic import Field

from lance_bridge.errors import display

from ..journal import Check
from ..plan import ItemType, Model
from ..record import State, StepState

FORMAT: Final = 1
"""Of the JSON."""
GENERATOR: Final = "lance-bridge migrate report"
"""Marks a file as a report, as a page and as JSON."""


class StepLine(StepState):
    """One step of one table; ``seconds`` is of the attempt that finished."""

    name: str


class ItemLine(Model):
    """One table, or one namespace that had to be created.

    Attributes:
        source: Its names, or one location.
        target: The same.
        location: Of its data, if a step noted it.
        rows_before: Rows of the source.
        rows_written: Those that the migration wrote.
        rows_found: Those that verifying counted in the target.
        bytes_before: Bytes of the source's data.
        bytes_written: Those that the migration wrote.
        bytes_after: Bytes of the target's data.
        orphaned_bytes_deleted: Bytes of interrupted loads that a later run has deleted.
        orphaned_bytes_left: Bytes of files that no version names, when the load was done.
        version: Of the target, or of the source where that is what is copied.
        seconds: Of all steps that finished; None if none did.
        rows_per_second: Rows written in those seconds; bytes_per_second alike.
        verified: How thoroughly it was verified.
    """

    type: ItemType
    source: tuple[str, ...]
    target: tuple[str, ...]
    state: State
    nothing_to_do: str = ""
    location: str | None = None
    rows_before: int | None = None
    rows_written: int | None = None
    rows_deleted: int | None = None
    rows_found: int | None = None
    bytes_before: int | None = None
    bytes_written: int | None = None
    bytes_after: int | None = None
    orphaned_bytes_deleted: int | None = None
    orphaned_bytes_left: int | None = None
    version: int | None = None
    steps: tuple[StepLine, ...] = ()
    seconds: float | None = None
    rows_per_second: float | None = None
    bytes_per_second: float | None = None
    verified: str | None = None

    @property
    def name(self) -> str:
        """The name that people read."""
        return display(self.target)

    @property
    def source_name(self) -> str:
        """The name of the source; a namespace has none."""
        return "" if self.type is ItemType.NAMESPACE else display(self.source)


class CheckLine(Check):
    """One thing that verifying compared."""

    table: str


class ProblemLine(Model):
    """What keeps a table from being migrated, what may be unexpected about it, or what failed.

    Attributes:
        code: Of the error, as Lance numbers them.
    """

    severity: Literal["error", "blocker", "warning"]
    table: str
    column: str = ""
    text: str
    code: int | None = None


class RunLine(Model):
    """One run of the migration, or of its undoing.

    Attributes:
        type: ``run`` or ``undo``.
        end: ``stopped`` is Ctrl-C; ``not noted``: it was cut off, or still runs.
        seconds: Up to its end, or else up to the last step that it noted.
    """

    type: str
    started: str
    ended: str | None = None
    end: Literal["ended", "stopped", "not noted"]
    seconds: float | None = None
    at_once: int | None = None
    verify: str | None = None
    skip_blocked: bool | None = None


class Total(Model):
    """A sum over tables.

    Attributes:
        total: None if it is known for no table.
        known: For how many tables it is known.
        tables: Of how many there are.
    """

    total: int | None = None
    known: int = 0
    tables: int = 0


class Totals(Model):
    """Sums over all tables.

    Attributes:
        rows_planned: Of the tables that the plan has to do; bytes_planned alike.
        rows_written: Of the tables that are done; the bytes alike.
        size_ratio: Bytes after to bytes before, of the tables of which both are known.
        seconds: Of all runs, verifying included; undoing is not.
        step_seconds: Of all steps, several of which run at once.
        rows_per_second: Rows written in the seconds of the runs; the other speeds alike.
    """

    tables: int = 0
    tables_done: int = 0
    namespaces: int = 0
    rows_planned: Total
    bytes_planned: Total
    rows_written: Total
    bytes_before: Total
    bytes_written: Total
    bytes_after: Total
    size_ratio: float | None = None
    seconds: float | None = None
    step_seconds: float | None = None
    tables_per_second: float | None = None
    rows_per_second: float | None = None
    bytes_per_second: float | None = None


class CommandLine(Model):
    """A command that can be run next."""

    purpose: str
    command: str


class Report(Model):
    """All that a report says about a migration; see `report_of`.

    Attributes:
        made: When the report was made.
        options: Those of the migration, without values that may be secret.
        counts: How many items are in each state.
        checks: Those that differ first.
    """

    generator: Literal["lance-bridge migrate report"] = GENERATOR
    format: Literal[1] = FORMAT
    made: str
    migration: str
    type: str
    state: State
    created: str
    follows: str | None = None
    source: str
    target: str
    options: dict[str, Any] = Field(default_factory=dict)
    notes: tuple[str, ...] = ()
    counts: dict[str, int] = Field(default_factory=dict)
    runs: tuple[RunLine, ...] = ()
    totals: Totals
    problems: tuple[ProblemLine, ...] = ()
    checks: tuple[CheckLine, ...] = ()
    items: tuple[ItemLine, ...] = ()
    commands: tuple[CommandLine, ...] = ()
