"""What a catalog is and can do: what an adapter declares, and core and the kit read."""

from __future__ import annotations

import re
from dataclasses import dataclass


@dataclass(frozen=True)
class NameRule:
    """The names that a level allows; checked before any call is sent."""

    noun: str
    """What the catalog calls the level, for messages: ``database``."""
    pattern: re.Pattern[str]
    """Must match the whole name."""
    allowed: str
    """The pattern in words, for messages: ``letters, digits and '_'``."""
    max_length: int
    """In characters."""


@dataclass(frozen=True)
class NamespaceWords:
    """A catalog's names for namespace properties that engines know under standard names."""

    comment: str = "comment"
    location: str = "location"
    owner: str = ""
    """Empty if the owner is not a property."""


@dataclass(frozen=True)
class Capabilities:
    """What a catalog is and can do; read by core and by the conformance kit.

    A string field holds the reason why the catalog cannot do something, or ``""`` if it can.
    """

    namespace_levels: tuple[NameRule, ...]
    """One rule per namespace level, outermost first; the innermost level holds tables."""
    table_rule: NameRule
    namespace_words: tuple[NamespaceWords, ...] = ()
    """The property names of each level, outermost first; empty for the standard names."""
    folds_case: bool = False
    """Names are stored in lower case, and found in any case."""
    atomic_restrict: bool = False
    """The catalog itself refuses to drop a namespace that is not empty."""
    compares_drops: bool = False
    """`Catalog.drop_table` compares the entry's identity or revision in the step that removes it,
    and refuses another table that has got the name."""
    makes_directories: bool = False
    """The catalog creates a new table's directory, and deletes it with all its content if it fails
    to create the entry. Core prevents this by creating the directory first."""
    renames_by_copy: bool = False
    """The catalog has no rename: core copies the entry with `Catalog.copy_table`, and removes the
    old one."""
    has_partitions: bool = False
    """An entry that is not Lance's may have partitions with their own locations: the adapter sets
    `TableRecord.is_partitioned`, and implements `Catalog.partition_locations`."""
    hides_tables: bool = False
    """The server may hold tables that no namespace of this catalog lists: the adapter implements
    `Catalog.scan_hidden_tables`."""
    publishes_columns: bool = False
    """An entry has columns that other tools read: `Catalog.alter_table` stores
    `TableRecord.published`."""
    no_namespace_changes: str = ""
    """Why namespaces cannot be created or dropped."""
    no_outer_namespace_changes: str = ""
    """Why namespaces above the innermost level cannot be created or dropped."""
    no_rename: str = ""
    """Why a table cannot be renamed. If empty, the adapter implements `Catalog.rename_table`, or,
    with `renames_by_copy`, `Catalog.copy_table`."""
    no_rename_across: str = ""
    """Why a table cannot be renamed into another namespace."""
    no_alter: str = ""
    """Why an entry's properties and location cannot change."""
    no_managed_tables: str = ""
    """Why the catalog cannot hold a table's latest version: it cannot compare and set an entry.
    If empty, the adapter implements `Catalog.commit_guard`."""

    @property
    def levels(self) -> int:
        """Number of names in the identifier of the namespace that holds a table."""
        return len(self.namespace_levels)
