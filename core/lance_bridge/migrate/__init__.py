"""Migrations: planned by reading, shown, carried out, recorded, verified, and undone.

ends = Ends(directory, namespace, directory.address, address_of(namespace))
plan = make_plan(kind_named("register"), ends, {"namespace": ["sales"]})
migration = Migrations().add(plan)
record = execute(kind_named("register"), ends, migration)
"""

from .ends import Directory, address_of
from .kind import Ends, Kind, Level, Options, Step, Survey, Watcher, Work
from .plan import Address, Item, Plan, Problem, Severity
from .record import ItemState, Record, State
from .registry import kind_named
from .run import execute, make_plan, verify
from .run_options import RunOptions
from .state import Migration, Migrations
from .undo import undo

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
