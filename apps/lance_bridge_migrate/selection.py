"""Which tables a migration takes: by patterns on their names."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from fnmatch import fnmatchcase

from pydantic import Field

from lance_bridge.catalog import Path
from lance_bridge.entry import TableEntry
from lance_bridge.errors import display
from lance_bridge.tables import Tables

from .migration import Options


class Selection(Options):
    """Options of migrations that take many tables.

    Attributes:
        include: Patterns of the shell (``*``, ``?``, ``[…]``) on a table's names joined with dots,
            such as ``sales.*``; in any letter case. A table is taken that fits one of them.
        exclude: The same; a table that fits one of them is left out.
    """

    include: tuple[str, ...] = Field(default=("*",), min_length=1)
    exclude: tuple[str, ...] = ()

    def takes(self, names: Iterable[str]) -> bool:
        """Return whether a table of these names is taken."""
        name = display(tuple(names)).lower()
        return _fits(name, self.include) and not _fits(name, self.exclude)


def _fits(name: str, patterns: Iterable[str]) -> bool:
    return any(fnmatchcase(name, pattern.lower()) for pattern in patterns)


def entries_of(
    tables: Tables, selection: Selection, *, lance_only: bool = False
) -> Iterator[TableEntry]:
    """Yield the selected entries of a whole catalog, Lance's or not, by namespace and name."""
    for namespace in tables.namespaces():
        if may_hold(namespace, selection):
            entries = tables.scan(namespace, lance_only=lance_only)
            yield from (each for each in entries if selection.takes(each.path))


def may_hold(namespace: Path, selection: Selection) -> bool:
    """Return False where no table of the namespace can be selected: then it is not read.

    A pattern that begins with the namespace's names and a dot, or with a wildcard, may fit.
    """
    prefix = display(namespace).lower() + "."
    return any(_may_begin(prefix, pattern.lower()) for pattern in selection.include)


def _may_begin(prefix: str, pattern: str) -> bool:
    plain = pattern[: min((pattern.find(c) for c in "*?[" if c in pattern), default=len(pattern))]
    return plain.startswith(prefix) or prefix.startswith(plain)
