"""Limits of JSON bodies: how much time and memory one may take until its request is a model.

A parser holds the interpreter while it reads a body, and a model keeps an error for each wrong
value. So a body may have many numbers only where they are a vector's, and few other values.
"""

from __future__ import annotations

import re
from typing import Any

from lance_bridge.errors import invalid

_MAX_CONTAINERS = 100_000
_MAX_VALUES = 2_000_000
"""Of a JSON body: the numbers of a thousand vectors are fewer."""
_MAX_OTHERS = 50_000
"""Values and members that are no numbers of vectors: a batch of 1000 operations has fewer."""
SMALL_BYTES = 2 * _MAX_OTHERS
"""A body of this size needs no check: each value takes two bytes."""
_MEMBER = re.compile(rb'"[ \t\r\n]*:')
_NUMBERS = {int, float}


def check_body(body: bytes) -> None:
    """Refuse a body that takes long to parse.

    Raises:
        InvalidInputError: (13)
    """
    if body.count(b"[") + body.count(b"{") > _MAX_CONTAINERS:
        raise invalid(f"The body has more than {_MAX_CONTAINERS} arrays and objects")
    if body.count(b",") > _MAX_VALUES:
        raise invalid(f"The body has more than {_MAX_VALUES} values")
    if body.count(b":") > _MAX_OTHERS and _has_many_members(body):
        raise invalid(f"The objects of the body have more than {_MAX_OTHERS} members")


def _has_many_members(body: bytes) -> bool:
    """Return whether the objects of a JSON body have too many members, without parsing it.

    Only a quote that ends a name is before a colon, or one that begins a text with a colon.
    """
    plain = body.replace(rb"\\", b"").replace(rb"\"", b"")
    return any(number >= _MAX_OTHERS for number, _ in enumerate(_MEMBER.finditer(plain)))


def check_values(fields: dict[str, Any]) -> None:
    """Refuse the object in a body if it has too many values besides the numbers of vectors.

    Raises:
        InvalidInputError: (13)
    """
    pending: list[dict[str, Any] | list[Any]] = [fields]
    count = 0
    while pending:
        each = pending.pop()
        count += len(each)
        if count > _MAX_OTHERS:
            raise invalid(
                f"The body has more than {_MAX_OTHERS} values besides the numbers of vectors"
            )
        values = each.items() if isinstance(each, dict) else ((None, value) for value in each)
        pending.extend(
            value
            for name, value in values
            if isinstance(value, (dict, list)) and not (name and _is_vector(name, value))
        )


def _is_vector(name: str, value: dict[str, Any] | list[Any]) -> bool:
    """Return whether a member is a vector, or several, of numbers alone."""
    return (name in ("vector", "single_vector") and _has_numbers(value)) or (
        name in ("vector", "multi_vector")
        and isinstance(value, list)
        and set(map(type, value)) <= {list}
        and all(map(_has_numbers, value))
    )


def _has_numbers(value: dict[str, Any] | list[Any]) -> bool:
    return isinstance(value, list) and set(map(type, value)) <= _NUMBERS
