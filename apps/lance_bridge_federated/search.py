"""Searches for a word in the names, columns and properties of all tables.

Matches are yielded while tables are read. What could not be searched is recorded, and never counts
as having no match.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from enum import Enum
from functools import partial
from itertools import islice

import lance_namespace as api
from lance_namespace import LanceNamespace
from lance_namespace.errors import (
    LanceNamespaceError,
    NamespaceNotFoundError,
    TableNotFoundError,
)
from lance_namespace_urllib3_client.models import JsonArrowField

from .children import Child
from .identifiers import describe, errors_of
from .listing import Path, all_paths
from .namespace import FederatedNamespace

_THREADS = 8
_CHUNK = 64
"""Tables that are described at once, before their matches are yielded."""
_LISTS = ("list", "large_list", "fixed_size_list")
"""Types whose only field is the item, which has no name of its own."""


class Scope(str, Enum):
    """The part of a table to search."""

    NAME = "name"
    COLUMN = "column"
    PROPERTY = "property"


@dataclass(frozen=True)
class Match:
    """One match: where it is, and the text that contains the word."""

    catalog: str
    table: Path
    scope: Scope
    text: str


@dataclass
class Search:
    """A search for a word, in any letter case. Iterate over it to get the matches.

    Args:
        catalogs: Name to a function that returns the catalog's namespace.
        word: A part of a name of the table or of its namespaces, of a column's name, or of a
            property's key or value.
        scopes: What to search. Columns require opening every table, properties a call per table.
    """

    catalogs: Mapping[str, Callable[[], LanceNamespace]]
    word: str
    scopes: frozenset[Scope] = frozenset(Scope)
    children: Sequence[Child] = ()
    """The catalogs of a federation, whose search ends if they do not respond."""
    unavailable: dict[str, str] = field(default_factory=dict)
    """Catalogs that could not be searched, or not completely, and why."""
    unread: dict[tuple[str, Path], str] = field(default_factory=dict)
    """Tables of which only the name was searched, by catalog and path, and why."""

    @classmethod
    def of(cls, namespace: LanceNamespace, name: str, word: str, scopes: Iterable[Scope]) -> Search:
        """Return a search in a namespace: in each of its catalogs if it is a federation.

        Args:
            name: The name of a namespace that is one catalog.
        """
        if isinstance(namespace, FederatedNamespace):
            catalogs = {each: partial(namespace.child, each) for each in namespace.catalogs}
            return cls(catalogs, word, frozenset(scopes), namespace.children)
        return cls({name: lambda: namespace}, word, frozenset(scopes))

    def __iter__(self) -> Iterator[Match]:
        runs = {each.name: each.run for each in self.children}
        for name, connect in self.catalogs.items():
            try:
                with errors_of(name, "search", [[]]):
                    chunks = self._chunks(name, connect)
                    take = partial(next, chunks, None)
                    run = runs.get(name)
                    while (found := run(take) if run else take()) is not None:
                        yield from found
            except LanceNamespaceError as error:
                self.unavailable[name] = describe(error)

    def _chunks(self, catalog: str, connect: Callable[[], LanceNamespace]) -> Iterator[list[Match]]:
        """Yield the matches of some tables of a catalog, then those of the next ones."""
        namespace = connect()
        paths = all_paths(namespace)
        with ThreadPoolExecutor(_THREADS) as threads:
            while chunk := list(islice(paths, _CHUNK)):
                found = threads.map(partial(self._details, catalog, namespace), chunk)
                yield [
                    match
                    for path, details in zip(chunk, found, strict=True)
                    for match in self._matches(catalog, path, details)
                ]

    def _matches(
        self, catalog: str, path: Path, details: Iterable[tuple[Scope, str]]
    ) -> Iterator[Match]:
        word = self.word.casefold()
        for scope, text in [(Scope.NAME, ".".join(path)), *details]:
            if scope in self.scopes and word in text.casefold():
                yield Match(catalog, path, scope, text)

    def _details(
        self, catalog: str, namespace: LanceNamespace, path: Path
    ) -> list[tuple[Scope, str]]:
        """Return the columns and properties of a table; nothing if it cannot be read."""
        if self.scopes == {Scope.NAME}:
            return []
        try:
            with errors_of(catalog, "describe_table", [path]):
                return list(self._describe(namespace, path))
        except (TableNotFoundError, NamespaceNotFoundError):
            return []  # dropped since it was listed
        except LanceNamespaceError as error:
            self.unread[catalog, path] = describe(error)
            return []

    def _describe(self, namespace: LanceNamespace, path: Path) -> Iterator[tuple[Scope, str]]:
        opens = Scope.COLUMN in self.scopes
        request = api.DescribeTableRequest(
            id=list(path), load_detailed_metadata=opens, vend_credentials=opens
        )
        found = namespace.describe_table(request)
        for key, value in sorted((found.properties or {}).items()):
            yield Scope.PROPERTY, f"{key}={value}"
        for column, type_name in _columns(found.var_schema.fields if found.var_schema else ()):
            yield Scope.COLUMN, f"{column}: {type_name}"


def _columns(fields: Iterable[JsonArrowField], parent: str = "") -> Iterator[tuple[str, str]]:
    """Yield the columns of a schema with their types, nested ones as ``outer.inner``."""
    for each in fields:
        name = f"{parent}{each.name}"
        yield name, each.type.type
        inner = each.type
        while inner.type in _LISTS and inner.fields:
            inner = inner.fields[0].type
        yield from _columns(inner.fields or (), f"{name}.")
