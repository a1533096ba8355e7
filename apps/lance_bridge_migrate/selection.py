"""The selection of a migration's tables by patterns on their names."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import suppress
from fnmatch import fnmatchcase

from lance_namespace.errors import NamespaceNotFoundError
from pydantic import Field

from lance_bridge.catalog import Capabilities, Path
from lance_bridge.entry import TableEntry
from lance_bridge.errors import display
from lance_bridge.tables import Tables

from .migration import Options


class Selection(Options):
    """Options of migrations that select tables.

    Attributes:
        include: Shell patterns (``*``, ``?``, ``[…]``) on a table's names joined with dots, such
            as ``sales.*``; case-insensitive. Tables that match one of them are selected.
        exclude: Patterns of the same form. Tables that match one of them are left out.
    """

    include: tuple[str, ...] = Field(default=("*",), min_length=1)
    exclude: tuple[str, ...] = ()

    def selects(self, names: Iterable[str]) -> bool:
        """Return whether a table with these names is selected."""
        name = display(tuple(names)).lower()
        return _matches(name, self.include) and not _matches(name, self.exclude)


def _matches(name: str, patterns: Iterable[str]) -> bool:
    return any(fnmatchcase(name, pattern.lower()) for pattern in patterns)


def entries_of(
    tables: Tables, selection: Selection, *, lance_only: bool = False
) -> Iterator[TableEntry]:
    """Yield the selected entries of a catalog, by namespace and name.

    A namespace that a pattern names is read even if the catalog does not list it.

    Args:
        lance_only: Whether to leave out entries that are not Lance tables.
    """
    named = named_namespaces(selection, tables.connection.capabilities)
    for namespace in tables.namespaces(named=named):
        if may_match(namespace, selection):
            with suppress(NamespaceNotFoundError):
                entries = tables.scan(namespace, lance_only=lance_only)
                yield from (each for each in entries if selection.selects(each.path))


def named_namespaces(selection: Selection, capabilities: Capabilities) -> list[Path]:
    """Return the namespaces that patterns name without a wildcard, such as ``sales.*``."""
    levels = capabilities.levels
    names = (tuple(pattern.split(".")) for pattern in selection.include)
    return [
        tuple(name.lower() for name in each[:levels]) if capabilities.folds_case else each[:levels]
        for each in names
        if len(each) == levels + 1
        and all(
            rule.pattern.fullmatch(name)
            for rule, name in zip(capabilities.namespace_levels, each, strict=False)
        )
    ]


def may_match(namespace: Path, selection: Selection) -> bool:
    """Return False if no table of the namespace can be selected, so that it need not be read.

    A pattern may match if its text before the first wildcard is consistent with the namespace.
    """
    prefix = display(namespace).lower() + "."
    return any(_may_match_prefix(prefix, pattern.lower()) for pattern in selection.include)


def _may_match_prefix(prefix: str, pattern: str) -> bool:
    plain = pattern[: min((pattern.find(c) for c in "*?[" if c in pattern), default=len(pattern))]
    return plain.startswith(prefix) or prefix.startswith(plain)
