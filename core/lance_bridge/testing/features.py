"""What a catalog can do: declared by a target, or read from what an implementation declares."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields, replace
from typing import Any

from lance_namespace import LanceNamespace

from ..capabilities import Capabilities
from ..operations.compute import UNSUPPORTED, ComputeOperations

HOSTILE_NAMES = (
    "a/b",
    "../a",
    "..",
    ".",
    "a\\b",
    "a'b",
    'a"b',
    "a`b",
    "a;drop table b",
    "a\nb",
    "a\tb",
    "a\x00b",
    "a b",
    " a",
    "a%2Fb",
    "a*",
    "a$b",
    "@a#b",
    "a?x=1#y",
)


@dataclass(frozen=True)
class Features:
    """What the catalog declares about itself. Cases that need a missing feature are skipped.

    The defaults are those of a leveled catalog in which everything works.
    """

    folds_case: bool = False
    """Names are kept in lower case and looked up in any."""
    fixed_depth: bool = True
    """Every table identifier has the same number of names; any other number is InvalidInput."""
    namespace_changes: bool = True
    """Namespaces can be created and dropped under the target's parent."""
    nested_namespaces: bool = False
    """A namespace that holds tables may hold namespaces too."""
    namespace_properties: bool = True
    table_properties: bool = True
    rename: bool = True
    rename_across: bool = True
    """A table can be renamed into another namespace."""
    register: bool = True
    alter: bool = True
    """An entry's properties and location can change, as by RegisterTable with Overwrite."""
    chosen_location: bool = True
    """DeclareTable honours the location in the request."""
    shared_locations: bool = True
    """Two entries can have one location, or one inside the other's."""
    cascade: bool = True
    list_all: bool = True
    declare_again: bool = True
    """A table without data can be declared again, with the same response, so that a failed first
    write can be retried. False: TableAlreadyExists."""
    create_completes: bool = True
    """CreateTable in mode Create fills a declared table without data. False: TableAlreadyExists."""
    exclusive_changes: bool = True
    """Exactly one of several concurrent callers that drop or rename a table succeeds. False: more
    than one may succeed, but the result must be right."""
    managed_tables: bool = True
    """The catalog can hold a table's latest version: ``managed_by=impl`` among the properties. Each
    commit compares and sets the entry. False: Unsupported (0)."""
    pickles: bool = False
    """A client object can be pickled."""
    delimiter: str = "$"
    """Joins the names of an identifier in the response of ListAllTables."""
    good_names: Sequence[str] = ("a", "_a", "a_b", "a1", "1a", "select", "table", "a" * 60)
    """Odd names, in the catalog's own spelling, that must work for namespaces and tables."""
    hostile_names: Sequence[str] = HOSTILE_NAMES
    """Names that must be refused as InvalidInput."""
    max_namespace_name: int | None = None
    """Longest accepted name, in characters; one more is InvalidInput. None: unlimited."""
    max_table_name: int | None = None
    absent: frozenset[str] = frozenset()
    """Operations (method names of ``LanceNamespace``) that must raise Unsupported (0)."""


@dataclass(frozen=True)
class StatefulBounds:
    """How long the stateful case runs: ``examples`` sequences of at most ``steps`` operations."""

    examples: int = 5
    steps: int = 25
    derandomize: bool = True
    """Use the same sequences in every run. False tries new ones, for long manual runs."""
    shrink: bool = True
    """Shorten a failing sequence before it is reported, which repeats it many times."""


def from_capabilities(capabilities: Capabilities, base: Features | None = None) -> Features:
    """Return ``base`` with the features that the capabilities decide."""
    return replace(
        base or Features(),
        folds_case=capabilities.folds_case,
        namespace_changes=not capabilities.no_namespace_changes,
        alter=not capabilities.no_alter,
        managed_tables=not (capabilities.no_alter or capabilities.no_managed_tables),
        rename=not capabilities.no_rename,
        rename_across=not (capabilities.no_rename or capabilities.no_rename_across),
        max_namespace_name=capabilities.namespace_levels[-1].max_length,
        max_table_name=capabilities.table_rule.max_length,
    )


def reasons_from(capabilities: Capabilities) -> dict[str, str]:
    """Return the features that `from_capabilities` turns off, with the reasons."""
    no_managed = capabilities.no_managed_tables or capabilities.no_alter
    reasons = {
        "namespace_changes": capabilities.no_namespace_changes,
        "alter": capabilities.no_alter,
        "managed_tables": no_managed,
        "rename": capabilities.no_rename,
        "rename_across": capabilities.no_rename or capabilities.no_rename_across,
    }
    return {name: f"{name}: {reason}" for name, reason in reasons.items() if reason}


def without(features: Features, *names: str) -> Features:
    """Return the features with these turned off.

    Raises:
        ValueError: a name is not that of a feature that is on or off.
    """
    switches = {field.name for field in fields(Features) if field.type == "bool"}
    unknown = sorted(set(names) - switches)
    if unknown:
        raise ValueError(f"unknown features: {unknown}; known are {sorted(switches)}")
    changes: dict[str, Any] = dict.fromkeys(names, False)
    return replace(features, **changes)


def inherited_operations(implementation: type[LanceNamespace]) -> frozenset[str]:
    """Return the operations that a class does not override, and that are therefore Unsupported.

    They are those of ``LanceNamespace``, and those that need a compute engine.
    """
    operations = {name for name in vars(LanceNamespace) if not name.startswith("_")}
    unsupported = [
        *(vars(LanceNamespace)[name] for name in operations),
        *(vars(ComputeOperations)[name] for name in UNSUPPORTED),
    ]
    return frozenset(
        name for name in operations if getattr(implementation, name, None) in unsupported
    )
