"""What a catalog is and can do: what an adapter declares, and core and the kit read."""

from __future__ import annotations

import re
from dataclasses import dataclass


@dataclass(frozen=True)
class NameRule:
    """Which names a level takes; checked before any call is sent."""

    noun: str
    """What the catalog calls the level, for messages: ``database``."""
    pattern: re.Pattern[str]
    """Must match the whole name."""
    allowed: str
    """What the pattern says, for people: ``letters, digits and '_'``."""
    max_length: int
    """In characters."""


@dataclass(frozen=True)
class NamespaceWords:
    """What a catalog calls properties of a namespace that engines know by plain words."""

    comment: str = "comment"
    location: str = "location"
    owner: str = ""
    """Empty if the owner is not a property."""


@dataclass(frozen=True)
class Capabilities:
    """What a catalog is and can do; read by core and by the conformance kit.

    A field that is a string holds the reason why the catalog can not do it, or ``""`` if it can.
    """

    namespace_levels: tuple[NameRule, ...]
    """One rule per namespace level, outermost first; a table sits under the innermost."""
    table_rule: NameRule
    namespace_words: tuple[NamespaceWords, ...] = ()
    """For each level what its properties are called, outermost first; none for plain words."""
    folds_case: bool = False
    """Names are stored in lower case, and looked up in any."""
    atomic_restrict: bool = False
    """The catalog itself refuses to drop a namespace with anything in it."""
    makes_directories: bool = False
    """The catalog makes a new table's directory, and deletes it again, with all that is in it by
    then, where the entry cannot be made. Core keeps it from doing so by making it first."""
    renames_by_copy: bool = False
    """The catalog has no rename: core has the entry copied by `Catalog.copy_table`, and removes the
    old one."""
    has_partitions: bool = False
    """An entry of others may have partitions with locations of their own: the adapter sets
    `TableRecord.is_partitioned`, and has `Catalog.partition_locations`."""
    hides_tables: bool = False
    """The server may hold tables that no namespace of this catalog lists: the adapter has
    `Catalog.scan_hidden_tables`."""
    no_namespace_changes: str = ""
    """Why namespaces cannot be created or dropped."""
    no_outer_namespace_changes: str = ""
    """Why namespaces above the innermost level cannot be created or dropped."""
    no_rename: str = ""
    """Why a table cannot get another name. Else the adapter has `Catalog.rename_table`, or, with
    `renames_by_copy`, `Catalog.copy_table`."""
    no_rename_across: str = ""
    """Why a table cannot be renamed into another namespace."""
    no_alter: str = ""
    """Why an entry's properties and location cannot change."""
    no_managed_tables: str = ""
    """Why the catalog cannot hold a table's latest version: it cannot compare and set an entry.
    Else the adapter has `Catalog.commit_guard`."""

    @property
    def levels(self) -> int:
        """Number of names in the identifier of the namespace that holds a table."""
        return len(self.namespace_levels)
