"""Changes whose reply may be lost: read back, decide, and only then repeat."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from lance_namespace.errors import (
    NamespaceNotFoundError,
    ServiceUnavailableError,
    TableNotFoundError,
)

from .errors import LanceNamespaceError, OutcomeUnknownError

_ATTEMPTS = 3

_T = TypeVar("_T")


def settle(change: Callable[[], _T], happened: Callable[[], bool]) -> _T | None:
    """Make ``change`` happen once, whatever becomes of its replies.

    Args:
        change: Raises OutcomeUnknownError where it may have happened.
        happened: Reads back whether it did. May raise, for example ServiceUnavailable; then
            nothing is repeated, and the caller is told that it may have happened.

    Returns:
        What ``change`` returned, or None where only reading back told that it happened.

    Raises:
        OutcomeUnknownError: (17) the replies of all attempts were lost and none had an effect.
        LanceNamespaceError: What ``change`` raised, unless an earlier attempt had succeeded.
    """
    unknown: OutcomeUnknownError | None = None
    for attempt in range(_ATTEMPTS):
        try:
            return change()
        except OutcomeUnknownError as error:
            unknown = error
            if _found_out(happened, unknown):
                return None
            if attempt == _ATTEMPTS - 1:
                raise
        except LanceNamespaceError:
            if unknown is None or not _found_out(happened, unknown):
                raise
            return None
    return None  # not reached: the last attempt has raised


def _found_out(happened: Callable[[], bool], unknown: OutcomeUnknownError) -> bool:
    try:
        return happened()
    except (TableNotFoundError, NamespaceNotFoundError):
        raise  # somebody removed it meanwhile
    except LanceNamespaceError as error:
        down = isinstance(error, ServiceUnavailableError)
        kind = OutcomeUnknownError if down else type(error)
        raise kind(f"{unknown}. What became of it could not be found out: {error}") from error
