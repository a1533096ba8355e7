"""Reading a whole catalog, namespace by namespace.

A namespace that cannot be read is a result like others: what reads the catalog decides whether to
go on without it, or to refuse because of what it may hold. See `errors.OF_ONE_OBJECT`.

A listing is not the whole truth: servers leave out what the caller has no right to list, though it
may exist, and the caller may even be its owner. So whatever a caller can name is read by its name,
in addition to what is listed.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import NoReturn

from lance_namespace.errors import (
    InvalidTableStateError,
    LanceNamespaceError,
    NamespaceNotFoundError,
    PermissionDeniedError,
    TableNotFoundError,
)

from . import locations
from .catalog import Capabilities, Catalog, NameRule, Path, TableRecord
from .errors import OF_ONE_OBJECT, display, marking_other_entries

_THREADS = 8
"""Namespaces that are read at once."""
_SUFFIX = re.compile(r"-[0-9a-f]{8}$")
"""What a default location ends with if the location without it was occupied."""

UNREADABLE = (NamespaceNotFoundError, *OF_ONE_OBJECT)
"""Errors of a namespace that cannot be read; `why_unreadable` says whether it exists."""

Unreadable = Callable[[Path, LanceNamespaceError], None]
"""Called with a namespace that cannot be read, and why; it may raise."""


def raise_error(_: Path, error: LanceNamespaceError) -> NoReturn:
    """Raise the error: an `Unreadable` that goes no further."""
    raise error


def innermost_namespaces(
    catalog: Catalog,
    parent: Path = (),
    unreadable: Unreadable = raise_error,
    named: Collection[Path] = (),
) -> Iterator[Path]:
    """Yield the sorted paths of all namespaces that can hold tables, except those just dropped.

    Args:
        parent: The namespace to begin at.
        unreadable: Called for a namespace below it whose own namespaces cannot be listed.
        named: Namespaces that are yielded even if the catalog does not list them. They need not
            exist.
    """
    if len(parent) == catalog.capabilities.levels:
        yield parent
        return
    below = [path for path in named if path[: len(parent)] == parent]
    children = {path[len(parent)] for path in below}
    try:
        children.update(catalog.list_namespaces(parent))
    except UNREADABLE as error:
        if not parent:
            raise
        reason = why_unreadable(catalog, parent, error)
        if reason is not None:
            unreadable(parent, reason)
    for child in sorted(children):
        yield from innermost_namespaces(catalog, (*parent, child), unreadable, named=below)


def why_unreadable(
    catalog: Catalog, namespace: Path, error: LanceNamespaceError
) -> LanceNamespaceError | None:
    """Return why a namespace cannot be read; None if it was dropped, or never existed.

    The catalog may call one missing that it lists: that was not dropped.

    Args:
        error: One of `UNREADABLE`, from reading it.
    """
    if not isinstance(error, NamespaceNotFoundError):
        return error
    parent = namespace[:-1]
    try:
        is_listed = namespace[-1] in catalog.list_namespaces(parent)
    except UNREADABLE as problem:
        return why_unreadable(catalog, parent, problem) if parent else None
    text = "its catalog lists it, and answers that it does not exist"
    return InvalidTableStateError(text) if is_listed else None


def error_of_check(error: LanceNamespaceError, message: str) -> LanceNamespaceError:
    """Return the error of a check for which something cannot be read, by the error of reading."""
    denied = isinstance(error, PermissionDeniedError)
    return (PermissionDeniedError if denied else InvalidTableStateError)(message)


@dataclass(frozen=True)
class Named:
    """What a check knows by name, and reads whatever the catalog lists. It need not exist."""

    namespaces: frozenset[Path] = frozenset()
    """The namespaces whose entries are read."""
    entries: frozenset[Path] = frozenset()
    """Entries that are read by name if no listing has them."""

    @classmethod
    def of(cls, record: TableRecord, capabilities: Capabilities, root: str | None) -> Named:
        """Return what a table's entry and its location name, without the entry itself.

        Args:
            root: The directory of default locations, if one is configured.
        """
        namespace = record.path[:-1]
        suggested = entries_named_by(record.location or "", namespace, capabilities, root)
        entries = frozenset(
            path for path in suggested if path not in (record.path, record.link_path)
        )
        of_link = () if record.link_path is None else (record.link_path[:-1],)
        return cls(frozenset({namespace, *of_link, *(path[:-1] for path in entries)}), entries)

    def within(self, namespaces: Collection[Path]) -> Named:
        """Return the part of this that is in some namespaces."""
        return Named(
            frozenset(path for path in self.namespaces if path in namespaces),
            frozenset(path for path in self.entries if path[:-1] in namespaces),
        )

    def valid_in(self, capabilities: Capabilities) -> Named:
        """Return the part of this that a catalog can have, by its levels and its rules of names."""
        return Named(
            frozenset(path for path in self.namespaces if is_namespace(path, capabilities)),
            frozenset(path for path in self.entries if _is_valid(path, capabilities)),
        )

    @classmethod
    def union(cls, parts: Iterable[Named]) -> Named:
        """Return all that the parts name."""
        parts = list(parts)
        return cls(
            frozenset(path for part in parts for path in part.namespaces),
            frozenset(path for part in parts for path in part.entries),
        )


def entries_named_by(
    location: str, namespace: Path, capabilities: Capabilities, root: str | None
) -> list[Path]:
    """Return the tables whose default location, with or without a suffix, this may be.

    Args:
        namespace: The namespace of a location that is not below the root.
        root: The directory of default locations, if one is configured.
    """
    key = locations.key(location) if location else ()
    name = key[-1].removesuffix(locations.TABLE_ENDING) if key else ""
    start = locations.key(root) if root is not None else None
    if start is not None and key[: len(start)] == start:
        *outer, innermost = key[len(start) : -1] or ("",)
        namespace = (*outer, innermost.removesuffix(locations.NAMESPACE_ENDING))
    paths = [(*namespace, each) for each in dict.fromkeys([name, _SUFFIX.sub("", name)])]
    if capabilities.folds_case:
        paths = [tuple(each.lower() for each in path) for path in paths]
    return [path for path in paths if _is_valid(path, capabilities)]


def is_namespace(path: Path, capabilities: Capabilities) -> bool:
    """Return whether a path can be that of a namespace with tables in a catalog."""
    return _follows(path, capabilities.namespace_levels)


def _is_valid(path: Path, capabilities: Capabilities) -> bool:
    return _follows(path, (*capabilities.namespace_levels, capabilities.table_rule))


def _follows(path: Path, rules: Sequence[NameRule]) -> bool:
    return len(path) == len(rules) and all(
        rule.pattern.fullmatch(name) and len(name) <= rule.max_length
        for name, rule in zip(path, rules, strict=True)
    )


def read_entry(catalog: Catalog, path: Path) -> TableRecord | None:
    """Return an entry by its name; None if the catalog reports that there is none.

    An entry that exists and may not be read is `TableRecord.unreadable`, and so is one of which it
    cannot be known.
    """
    try:
        return catalog.load_table(path)
    except (TableNotFoundError, NamespaceNotFoundError):
        return None
    except OF_ONE_OBJECT:
        return TableRecord.unreadable(path)


@dataclass(frozen=True)
class Scan:
    """The entries that have locations or cannot be read, and the namespaces that were read."""

    records: list[tuple[TableRecord, bool]]
    """Each with whether the catalog can load it."""
    namespaces: frozenset[Path]


@marking_other_entries()
def scan_locations(
    catalog: Catalog,
    named: Named,
    explain: Callable[[str, LanceNamespaceError], str],
    *,
    everywhere: bool,
) -> Scan:
    """Read the entries that have locations or cannot be read.

    Args:
        named: What is read whatever the catalog lists. What does not exist has no entries.
        everywhere: Whether to read the whole catalog, too, and the server's entries that it does
            not list.
        explain: Returns the message of an error from what cannot be read, and why.

    Raises:
        PermissionDeniedError: (15) a namespace may not be read.
        InvalidTableStateError: (19) a namespace cannot be read, and others can.
        LanceNamespaceError: Like these two, it is marked by `marking_other_entries`.
    """

    def refuse(what: str, error: LanceNamespaceError) -> NoReturn:
        raise error_of_check(error, explain(what, error)) from error

    def read(namespace: Path) -> list[TableRecord]:
        try:
            return _kept(catalog.scan_tables(namespace))
        except UNREADABLE as error:
            reason = why_unreadable(catalog, namespace, error)
            if reason is not None:
                refuse(f"'{display(namespace)}'", reason)
            return []

    scope: Iterable[Path] = named.namespaces
    if everywhere:
        scope = innermost_namespaces(
            catalog,
            unreadable=lambda path, error: refuse(f"'{display(path)}'", error),
            named=named.namespaces,
        )
    namespaces: list[Path] = []

    def noted() -> Iterator[Path]:
        for each in scope:
            namespaces.append(each)
            yield each

    with ThreadPoolExecutor(_THREADS) as threads:
        found = [(each, True) for records in threads.map(read, noted()) for each in records]
        unlisted = sorted(named.entries - {each.path for each, _ in found})
        entries = threads.map(lambda path: read_entry(catalog, path), unlisted)
        found += [(each, True) for each in _kept(each for each in entries if each is not None)]
    if everywhere:
        try:
            found += [(each, False) for each in _kept(catalog.scan_hidden_tables())]
        except OF_ONE_OBJECT as error:
            refuse("another catalog of the server", error)
    return Scan(found, frozenset(namespaces))


def _kept(records: Iterable[TableRecord]) -> list[TableRecord]:
    return [each for each in records if each.all_locations or not each.is_readable]
