"""Identifiers: lists of names, checked before anything is sent to a catalog.

Every name that leaves this module is safe in a filter, a URL and a path: each catalog's
:class:`~lance_bridge.catalog.NameRule` says what that is.
"""

from __future__ import annotations

from collections.abc import Sequence

from .catalog import Capabilities, NameRule, Path
from .errors import invalid

_SHOWN = 60


def parse_namespace(identifier: Sequence[str] | None, capabilities: Capabilities) -> Path:
    """Return the path of any namespace, the root included (``None`` and ``[]``).

    Raises:
        InvalidInputError: (13) more names than the catalog has levels, or a bad name.
    """
    names = tuple(identifier or ())
    rules = capabilities.namespace_levels
    if len(names) > len(rules):
        raise invalid(
            f"Namespace identifier {_format_names(names)} has {_format_count(names)}; "
            f"this catalog has {_format_levels(rules)}"
        )
    return _check_names(names, rules, capabilities)


def parse_table_namespace(
    identifier: Sequence[str] | None, capabilities: Capabilities, default: Path = ()
) -> Path:
    """Return the path of a namespace that can hold tables, the innermost level.

    Args:
        default: The namespace that the root stands for; empty for none.

    Raises:
        InvalidInputError: (13) any other number of names, or a bad name.
    """
    names = tuple(identifier or default)
    rules = capabilities.namespace_levels
    if len(names) != len(rules):
        raise invalid(
            f"Namespace identifier {_format_names(names)} has {_format_count(names)}; "
            f"tables are in {_format_levels(rules)}"
        )
    return _check_names(names, rules, capabilities)


def parse_table(
    identifier: Sequence[str] | None, capabilities: Capabilities, default: Path = ()
) -> Path:
    """Return the path of a table.

    Args:
        default: The namespace of a table that is given by its own name alone; empty for none.

    Raises:
        InvalidInputError: (13) no identifier, the wrong number of names, or a bad name.
    """
    if identifier is None:
        raise invalid("The request has no table identifier: set `id`")
    names = tuple(identifier)
    rules = (*capabilities.namespace_levels, capabilities.table_rule)
    if len(names) == 1 and default:
        names = (*default, *names)
    if len(names) != len(rules):
        hint = "" if default or len(names) != 1 else ". Set default-namespace to use one name"
        raise invalid(
            f"Table identifier {_format_names(names)} has {_format_count(names)}; "
            f"this catalog takes {_format_levels(rules)}{hint}"
        )
    return _check_names(names, rules, capabilities)


def _format_count(names: Path) -> str:
    return f"{len(names)} name{'' if len(names) == 1 else 's'}"


def _check_names(names: Path, rules: Sequence[NameRule], capabilities: Capabilities) -> Path:
    for name, rule in zip(names, rules, strict=False):
        _check(name, rule)
    return tuple(name.lower() for name in names) if capabilities.folds_case else names


def _check(name: str, rule: NameRule) -> None:
    noun = rule.noun.capitalize()
    if not isinstance(name, str):
        raise invalid(f"{noun} name {name!r} must be a string")
    if not name:
        raise invalid(f"{noun} name is empty")
    if len(name) > rule.max_length:
        raise invalid(
            f"{noun} name {_short(name)} has {len(name)} characters; "
            f"at most {rule.max_length} are allowed"
        )
    if not rule.pattern.fullmatch(name):
        raise invalid(f"{noun} name {_short(name)} must consist of {rule.allowed}")


def _format_levels(rules: Sequence[NameRule]) -> str:
    return f"{len(rules)}: [{', '.join(rule.noun for rule in rules)}]"


def _format_names(names: Path) -> str:
    return "[" + ", ".join(_short(name) for name in names[:6]) + (", …]" if names[6:] else "]")


def _short(name: object) -> str:
    text = repr(name)
    return text if len(text) <= _SHOWN else text[:_SHOWN] + "…'"
