"""Migrations: plan, execute, record, verify and undo them.

endpoints = Endpoints(directory, namespace, directory.address, address_of(namespace))
plan = make_plan(migration_type("register"), endpoints, {"namespace": ["sales"]})
migration = Migrations().add(plan)
record = execute(migration_type("register"), endpoints, migration)

Names are imported on first use, because ``lance-bridge migrate --help`` needs none of them but
`Level`.
"""

from __future__ import annotations

from enum import Enum
from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .endpoints import Directory, Endpoints, address_of
    from .migration import MigrationType, NullProgress, Step, StepContext, Survey, migration_type
    from .plan import Address, Item, Options, Plan, Problem, Severity
    from .record import ItemState, Migration, Migrations, Record, State
    from .run import RunOptions, execute, make_plan, undo, verify

_MODULES = ("plan", "record", "endpoints", "migration", "run")
"""Each imports the ones before it, so that a name is looked for in this order."""

__all__ = [
    "Address", "Directory", "Endpoints", "Item", "ItemState", "Level", "Migration",
    "MigrationType", "Migrations", "NullProgress", "Options", "Plan", "Problem", "Record",
    "RunOptions", "Severity", "State", "Step", "StepContext", "Survey", "address_of", "execute",
    "make_plan", "migration_type", "undo", "verify",
]  # fmt: skip


class Level(str, Enum):
    """How thoroughly a table is verified; each level includes the ones before it."""

    NONE = "none"
    COUNTS = "counts"
    """Schema and number of rows."""
    SAMPLE = "sample"
    """Some rows, compared value by value."""
    CHECKSUMS = "checksums"
    """All rows, by a checksum of each column."""

    def includes(self, other: Level) -> bool:
        """Return whether this level is `other` or more thorough."""
        levels = list(Level)
        return levels.index(self) >= levels.index(other)


def __getattr__(name: str) -> Any:
    """Import a public name on first use (PEP 562)."""
    if name in __all__:
        for module in _MODULES:
            found = vars(import_module(f".{module}", __name__))
            if name in found:
                return globals().setdefault(name, found[name])
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
