"""Changes whose reply may be lost: read back, decide, and only then repeat."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from ..errors import LanceNamespaceError, OutcomeUnknownError

_ATTEMPTS = 3

_T = TypeVar("_T")


def settle(change: Callable[[], _T], happened: Callable[[], bool]) -> _T | None:
    """Make ``change`` happen once, whatever becomes of its replies.

    Args:
        change: Raises OutcomeUnknownError where it may have happened.
        happened: Reads back whether it did. May raise, for example ServiceUnavailable; then
            nothing is repeated, and the caller is told.

    Returns:
        What ``change`` returned, or None where only reading back told that it happened.

    Raises:
        OutcomeUnknownError: (17) the replies of all attempts were lost and none had an effect.
        LanceNamespaceError: What ``change`` raised, unless an earlier attempt had succeeded.
    """
    for attempt in range(_ATTEMPTS):
        try:
            return change()
        except OutcomeUnknownError:
            if happened():
                return None
            if attempt == _ATTEMPTS - 1:
                raise
        except LanceNamespaceError:
            if attempt == 0 or not happened():
                raise
            return None
    return None  # not reached: the last attempt has raised
