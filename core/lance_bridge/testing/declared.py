"""Features read from what an implementation says about itself."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import fields, replace
from typing import Any, Protocol

from lance_namespace import LanceNamespace

from ..operations.compute import UNSUPPORTED, ComputeOperations
from .target import Features


class Rule(Protocol):
    """Which names a level takes."""

    @property
    def max_length(self) -> int:
        """Longest name, in characters."""


class Capabilities(Protocol):
    """What a catalog can do; a string that is not empty is the reason why it cannot."""

    @property
    def namespace_levels(self) -> Sequence[Rule]: ...
    @property
    def table_rule(self) -> Rule: ...
    @property
    def folds_case(self) -> bool: ...
    @property
    def no_namespace_changes(self) -> str: ...
    @property
    def no_alter(self) -> str: ...
    @property
    def no_managed_tables(self) -> str: ...
    @property
    def no_rename(self) -> str: ...
    @property
    def no_rename_across(self) -> str: ...


def from_capabilities(capabilities: Capabilities, base: Features | None = None) -> Features:
    """Return ``base`` with what the capabilities decide."""
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
    """Return why the features are not there that `from_capabilities` turns off, by their names."""
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
        raise ValueError(f"no such features: {unknown}; there are {sorted(switches)}")
    changes: dict[str, Any] = dict.fromkeys(names, False)
    return replace(features, **changes)


def inherited_operations(implementation: type[LanceNamespace]) -> frozenset[str]:
    """Return the operations that a class leaves as it found them, which is Unsupported.

    They are those of the trait, and those that need a compute engine.
    """
    operations = {name for name in vars(LanceNamespace) if not name.startswith("_")}
    unsupported = [
        *(vars(LanceNamespace)[name] for name in operations),
        *(vars(ComputeOperations)[name] for name in UNSUPPORTED),
    ]
    return frozenset(
        name for name in operations if getattr(implementation, name, None) in unsupported
    )
