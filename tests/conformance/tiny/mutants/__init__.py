"""Adapters of the small service that are wrong in one way each, to see that the kit finds it.

Each subclass of `Mutant` is one mistake that an author has made or could make; its docstring says
which. Where a function is enough, `wrong_answers` and `wrong_arguments` make the subclass.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from importlib import import_module
from typing import Any

from ..adapter import TinyCatalog

GROUPS = (
    "connections", "entries", "faults", "guards", "listings", "namespaces", "neighbours",
    "properties",
)  # fmt: skip
Mistakes = Mapping[str, Callable[..., Any]]
"""What is wrong, and the function that makes it so."""


class Mutant(TinyCatalog):
    """The correct adapter, of which each subclass makes one thing wrong."""


_made: list[type[Mutant]] = []


def wrong_answers(group: str, method: str, mistakes: Mistakes) -> None:
    """Make mutants whose functions get the right answer of a method, and then its arguments."""
    right = vars(TinyCatalog)[method]

    def override(change: Callable[..., Any]) -> Any:
        if isinstance(right, property):
            return property(lambda self: change(right.__get__(self)))
        return lambda self, *given, **named: change(right(self, *given, **named), *given)

    _make(group, method, {text: override(change) for text, change in mistakes.items()})


def wrong_arguments(group: str, method: str, mistakes: Mistakes) -> None:
    """Make mutants whose functions get the adapter and the arguments, and return others."""
    right = vars(TinyCatalog)[method]

    def override(change: Callable[..., Any]) -> Any:
        return lambda self, *given, **named: right(self, *change(self, *given), **named)

    _make(group, method, {text: override(change) for text, change in mistakes.items()})


def _make(group: str, method: str, overrides: Mistakes) -> None:
    for text, override in overrides.items():
        name = "".join(word.capitalize() for word in re.findall(r"\w+", text))
        members = {"__doc__": text, "__module__": group, method: override}
        _made.append(type(name, (Mutant,), members))


def all_mutants() -> dict[str, type[Mutant]]:
    """Return every mutant by its name."""
    for group in GROUPS:
        import_module(f"{__name__}.{group}")
    return {kind.__name__: kind for kind in Mutant.__subclasses__()}
