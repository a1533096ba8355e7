"""The model of a report, which is rendered as the page and written as JSON.

Sizes are in bytes, times in ISO 8601 and UTC, durations in seconds. Unknown values are None.
"""

from __future__ import annotations

from typing import Any, Final, Literal

from pydantic import Field

from lance_bridge.errors import display

from ..journal import Check
from ..plan import ItemType, Model
from ..record import State, StepState

FORMAT: Final = 1
"""The version of the JSON format."""
GENERATOR: Final = "lance-bridge migrate report"
"""Identifies a page or JSON file as a report."""


class StepLine(StepState):
    """One step of one table; ``seconds`` is the duration of the completed attempt."""

    name: str


class ItemLine(Model):
    """One table, or one namespace that had to be created.

    Attributes:
        source: The identifier of the source, or one location.
        target: The identifier of the target, or one location.
        location: The location of its data, if a step noted it.
        rows_before: Rows of the source.
        rows_written: Rows that the migration wrote.
        rows_found: Rows that verification counted in the target.
        bytes_before: Bytes of the source's data.
        bytes_written: Bytes that the migration wrote.
        bytes_after: Bytes of the target's data.
        orphaned_bytes_deleted: Bytes of interrupted loads that a later run deleted.
        orphaned_bytes_left: Bytes of files that no version referenced after the load.
        version: The version of the target, or, for copies, of the source.
        seconds: The duration of all completed steps; None if there are none.
        rows_per_second: Rows written per second of these steps; likewise bytes_per_second.
        verified: The level of the last verification.
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
        """The display name."""
        return display(self.target)

    @property
    def source_name(self) -> str:
        """The display name of the source; "" for a namespace."""
        return "" if self.type is ItemType.NAMESPACE else display(self.source)


class CheckLine(Check):
    """One comparison made by verification."""

    table: str


class ProblemLine(Model):
    """A blocker or warning of the plan, or the error of a table.

    Attributes:
        code: The error code of the Lance namespace spec.
    """

    severity: Literal["error", "blocker", "warning"]
    table: str
    column: str = ""
    text: str
    code: int | None = None


class RunLine(Model):
    """One run of the migration, or of its undo.

    Attributes:
        type: ``run`` or ``undo``.
        end: ``stopped`` by Ctrl-C; ``not noted`` if it was cut off or still runs.
        seconds: The time until its end, or else until the last recorded step.
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
        total: The sum; None if the value is known for no table.
        known: The number of tables whose value is known.
        tables: The number of all tables.
    """

    total: int | None = None
    known: int = 0
    tables: int = 0


class Totals(Model):
    """Sums over all tables.

    Attributes:
        rows_planned: Source rows of the tables to migrate; likewise bytes_planned.
        rows_written: Rows of completed tables; likewise the bytes.
        size_ratio: Bytes after divided by bytes before, for tables with both known.
        seconds: The duration of all runs, including verification, without undo.
        step_seconds: The duration of all steps, some of which ran in parallel.
        rows_per_second: Rows written per second of the runs; likewise the other rates.
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
    """A suggested next command."""

    purpose: str
    command: str


class Report(Model):
    """The report of a migration; see `report_of`.

    Attributes:
        made: The time at which the report was made.
        options: The options of the migration, without values that may be secret.
        counts: The number of items in each state.
        checks: All checks, failed ones first.
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
