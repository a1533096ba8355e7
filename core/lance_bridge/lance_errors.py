"""Errors of pylance, translated into those of the Lance namespace API.

pylance's Rust half raises a few built-in types for every failure, and a BaseException for a panic.
Only the message says what failed: the request, the storage or Lance.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager

from lance_namespace.errors import InternalError, LanceNamespaceError, ServiceUnavailableError

from .errors import is_panic

LANCE_ERRORS = (OSError, ValueError, RuntimeError, NotImplementedError, OverflowError)
"""The types that pylance raises for any failure in its Rust half."""

REFUSALS = (
    "Invalid user input",
    "LanceError(Arrow)",
    "LanceError(Index)",
    "LanceError(Schema)",
    "Not supported",
    "Query Execution error",
    "Unprocessable",
    "External error: General error",  # a geometry that is not WKB
    "WKT error",
    "can't set tokenizer",
)
"""The beginnings of messages about a request or its rows, and not about storage."""

STORAGE_ERROR = "LanceError(IO)"
"""Part of the message, at any depth, if the storage failed."""

MISSING_FILE = "Not found: "
"""The beginning of the message if a file of the table is missing, also a ValueError."""

TOO_MANY_WRITERS = "Too many concurrent writers"
"""Part of the message if Lance gave up after conflicts; nothing was committed."""


class LancePanicError(RuntimeError):
    """A panic of Lance's Rust code, as one of `LANCE_ERRORS`."""


@contextmanager
def panics_as_errors() -> Iterator[None]:
    """Raise a panic as a `LancePanicError`, so that it is handled like other errors of Lance.

    PyO3 raises a BaseException, whose type cannot be named in an ``except``.
    """
    try:
        yield
    except BaseException as error:
        if not is_panic(error):
            raise
        raise LancePanicError(str(error)) from error


@contextmanager
def translate_lance_errors(what: str) -> Iterator[None]:
    """Raise a failure inside pylance as ServiceUnavailable (17), and a panic as Internal (18).

    Args:
        what: What failed, as the beginning of the message.
    """
    try:
        with panics_as_errors():
            yield
    except LANCE_ERRORS as error:
        raise as_namespace_error(what, error) from error


def as_namespace_error(what: str, error: Exception, hint: str = "") -> LanceNamespaceError:
    """Return InternalError (18) for a panic, and else ServiceUnavailableError (17), for storage.

    Args:
        hint: Added if storage failed, for example that the call can be retried.
    """
    if has_panicked(error):
        return InternalError(f"{what}: Lance panicked: {first_line(error)}")
    return ServiceUnavailableError(f"{what}: {first_line(error)}{hint}")


def has_panicked(error: Exception) -> bool:
    """Return whether Lance panicked: in the caller's thread, or in a task, whose error says so."""
    text = str(error)
    return (
        isinstance(error, LancePanicError)
        or "panicked with message" in text
        or "JoinError::Panic" in text
    )


def is_refusal(error: BaseException) -> bool:
    """Return whether Lance refused a request, rather than failed to execute it."""
    text = str(error)
    return text.startswith(REFUSALS) and STORAGE_ERROR not in text


def is_input_error(error: Exception) -> bool:
    """Return whether an error is about the input, and not about storage or other writers."""
    text = str(error)
    if STORAGE_ERROR in text or text.startswith(MISSING_FILE):
        return False
    return isinstance(error, ValueError) or is_refusal(error)


def first_line(error: BaseException | str) -> str:
    """Return the first line of pylance's message, without its source locations."""
    line = str(error).split("\n", 1)[0]
    return re.split(r", (?:location: )?(?=/|\S+\.rs:\d)", line, maxsplit=1)[0][:300]
