"""Changes whose reply may be lost: read back, decide, and only then repeat."""

from __future__ import annotations

from collections.abc import Callable

from ..errors import LanceNamespaceError, OutcomeUnknownError

_ATTEMPTS = 3


def settle(change: Callable[[], None], happened: Callable[[], bool]) -> None:
    """Make ``change`` happen once, whatever becomes of its replies.

    Args:
        change: Raises OutcomeUnknownError where it may have happened.
        happened: Reads back whether it did. May raise, for example ServiceUnavailable; then
            nothing is repeated, and the caller is told.

    Raises:
        OutcomeUnknownError: (17) the replies of all attempts were lost and none had an effect.
        LanceNamespaceError: What ``change`` raised, unless an earlier attempt had succeeded.
    """
    for attempt in range(_ATTEMPTS):
        try:
            change()
        except OutcomeUnknownError:
            if happened():
                return
            if attempt == _ATTEMPTS - 1:
                raise
        except LanceNamespaceError:
            if attempt == 0 or not happened():
                raise
            return
        else:
            return
