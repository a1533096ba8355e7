"""Migrations: planned by reading, shown, carried out, recorded, verified, and undone.

ends = Ends(directory, namespace, directory.address, address_of(namespace))
plan = make_plan(kind_named("register"), ends, {"namespace": ["sales"]})
migration = Migrations().add(plan)
record = execute(kind_named("register"), ends, migration)

A name is imported when it is first used: ``lance-bridge migrate --help`` needs none of them.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .ends import Directory, address_of
    from .kind import Ends, Kind, Options, Step, Survey, Watcher, Work
    from .levels import Level
    from .plan import Address, Item, Plan, Problem, Severity
    from .record import ItemState, Record, State
    from .registry import kind_named
    from .run import execute, make_plan, verify
    from .run_options import RunOptions
    from .state import Migration, Migrations
    from .undoing import undo

__all__ = [
    "Address",
    "Directory",
    "Ends",
    "Item",
    "ItemState",
    "Kind",
    "Level",
    "Migration",
    "Migrations",
    "Options",
    "Plan",
    "Problem",
    "Record",
    "RunOptions",
    "Severity",
    "State",
    "Step",
    "Survey",
    "Watcher",
    "Work",
    "address_of",
    "execute",
    "kind_named",
    "make_plan",
    "undo",
    "verify",
]

_NAMES = {
    "ends": ("Directory", "address_of"),
    "kind": ("Ends", "Kind", "Options", "Step", "Survey", "Watcher", "Work"),
    "levels": ("Level",),
    "plan": ("Address", "Item", "Plan", "Problem", "Severity"),
    "record": ("ItemState", "Record", "State"),
    "registry": ("kind_named",),
    "run": ("execute", "make_plan", "verify"),
    "run_options": ("RunOptions",),
    "state": ("Migration", "Migrations"),
    "undoing": ("undo",),
}
"""Public names by the module that declares them."""
_MODULES = {name: module for module, names in _NAMES.items() for name in names}


def __getattr__(name: str) -> Any:
    """Import a public name when it is first used (PEP 562)."""
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(import_module(f".{_MODULES[name]}", __name__), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
