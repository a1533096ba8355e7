"""Durations as options have them: a number and a unit."""

from __future__ import annotations

from datetime import timedelta

from .common import misused

_UNITS = {"m": "minutes", "h": "hours", "d": "days"}
_LONGEST = 6


def duration(option: str, text: str) -> timedelta:
    """Return what an option says, such as 90m or 14d; end the command where it is malformed."""
    number, unit = text[:-1], text[-1:]
    if unit not in _UNITS or not number.isdecimal() or len(number) > _LONGEST:
        raise misused(f"{option} is a number and a unit, such as 90m, 36h or 14d")
    return timedelta(**{_UNITS[unit]: int(number)})
