"""Changes whose reply may be lost: read the result back, and retry only what did not happen."""

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


def retry_after_readback(change: Callable[[], _T], happened: Callable[[], bool]) -> _T | None:
    """Make ``change`` happen once, even if its replies are lost.

    Args:
        change: Raises OutcomeUnknownError if it may have happened.
        happened: Reads back whether it happened. May raise, for example ServiceUnavailable; then
            nothing is retried, and the error says that the change may have happened.

    Returns:
        What ``change`` returned, or None if only the readback showed that it happened.

    Raises:
        OutcomeUnknownError: (17) the replies of all attempts were lost and none had an effect.
        LanceNamespaceError: What ``change`` raised, unless an earlier attempt had succeeded.
    """
    unknown: OutcomeUnknownError | None = None
    attempts = 0
    while True:
        attempts += 1
        try:
            return change()
        except OutcomeUnknownError as error:
            unknown = error
            if _read_back(happened, unknown):
                return None
            if attempts == _ATTEMPTS:
                raise
        except LanceNamespaceError:
            if unknown is None or not _read_back(happened, unknown):
                raise
            return None


def _read_back(happened: Callable[[], bool], unknown: OutcomeUnknownError) -> bool:
    try:
        return happened()
    except (TableNotFoundError, NamespaceNotFoundError):
        raise  # another client removed it
    except LanceNamespaceError as error:
        is_down = isinstance(error, ServiceUnavailableError)
        error_type = OutcomeUnknownError if is_down else type(error)
        raise error_type(f"{unknown}. Its outcome could not be read back: {error}") from error
