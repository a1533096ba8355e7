"""Adapters of the small service that are wrong in one way each, to see that the kit finds it.

Each class is one mistake that an author has made or could make; its docstring says which.
"""

from __future__ import annotations

from importlib import import_module

from ..adapter import TinyCatalog

GROUPS = (
    "connections",
    "entries",
    "faults",
    "guards",
    "listings",
    "namespaces",
    "properties",
    "renames",
    "shared_locations",
)

_mutants: list[type[TinyCatalog]] = []


def mutant(kind: type[TinyCatalog]) -> type[TinyCatalog]:
    """Add a class to the mutants."""
    _mutants.append(kind)
    return kind


def all_mutants() -> dict[str, type[TinyCatalog]]:
    """Return every mutant by its name."""
    for group in GROUPS:
        import_module(f"{__name__}.{group}")
    return {kind.__name__: kind for kind in _mutants}
