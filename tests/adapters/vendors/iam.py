"""An evaluation of IAM's policies, as far as our session policies go.

Written from AWS's "Policy evaluation logic", "IAM JSON policy elements: Resource" and "Policy
variables"; `test_rights` compares it with their examples. What it cannot show: how AWS itself
decides.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from functools import lru_cache
from typing import Any

_TOKEN = re.compile(r"\$\{([^}]*)\}|([*?])|(.)", re.DOTALL)
_SPECIAL = "$*?"


def matches(pattern: str, value: str, context: Mapping[str, str] | None = None) -> bool:
    """Return whether a resource or a pattern of ``StringLike`` matches a value."""
    found = _expression(pattern, tuple(sorted((context or {}).items())))
    return found is not None and found.fullmatch(value) is not None


@lru_cache(maxsize=64)
def _expression(pattern: str, context: tuple[tuple[str, str], ...]) -> re.Pattern[str] | None:
    """Return a pattern as a regular expression; None with a variable that is unknown."""
    known, found = dict(context), ""
    for variable, wildcard, literal in _TOKEN.findall(pattern):
        if wildcard:
            found += ".*" if wildcard == "*" else "."
        elif variable and variable not in _SPECIAL:
            if variable not in known:
                return None
            found += re.escape(known[variable])
        else:
            found += re.escape(variable or literal)
    return re.compile(found, re.DOTALL)


def allows(policy: str, action: str, resource: str, **context: str) -> bool:
    """Return whether a policy allows an action: by a statement, and denied by none.

    Args:
        context: Keys of conditions, with ``_`` for ``:``.
    """
    keys = {key.replace("_", ":", 1): value for key, value in context.items()}
    variables = {key: value for key, value in keys.items() if key.startswith("aws:")}
    applying = [
        each["Effect"]
        for each in _statements(policy)
        if any(matches(a.lower(), action.lower()) for a in _list(each["Action"]))
        and any(matches(r, resource, variables) for r in _list(each["Resource"]))
        and all(_holds(o, k, v, keys) for o, c in each.get("Condition", {}).items()
                for k, v in c.items())
    ]  # fmt: skip
    return "Allow" in applying and "Deny" not in applying


@lru_cache(maxsize=8)
def _statements(policy: str) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = json.loads(policy)["Statement"]
    return found


def _holds(operator: str, key: str, values: Any, context: Mapping[str, str]) -> bool:
    if key not in context:
        return False
    if operator == "StringEquals":
        return context[key] in _list(values)
    assert operator == "StringLike"
    variables = {each: value for each, value in context.items() if each.startswith("aws:")}
    return any(matches(each, context[key], variables) for each in _list(values))


def _list(value: Any) -> list[Any]:
    return value if isinstance(value, list) else [value]
