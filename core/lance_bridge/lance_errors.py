"""What pylance raises, as errors of the Lance namespace API.

pylance's Rust half raises a handful of built-in types for everything that fails, and a
BaseException for a panic. Only the text says what was at fault: the request, the storage or Lance.
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
    "External error: General error",  # a geometry that is no WKB
    "WKT error",
    "can't set tokenizer",
)
"""How the text of an error begins that is about a request or its rows, not about storage."""

STORAGE_ERROR = "LanceError(IO)"
"""In the text of an error, at any depth, where the storage failed."""

MISSING_FILE = "Not found: "
"""How the text of an error begins where a file of the table is missing. It is a ValueError, too."""

TOO_MANY_WRITERS = "Too many concurrent writers"
"""In the text of an error where other writers won until Lance gave up; nothing was committed."""


class LancePanicError(RuntimeError):
    """A panic of Lance's Rust code, as one of `LANCE_ERRORS`."""


@contextmanager
def panics_as_errors() -> Iterator[None]:
    """Raise a panic as a `LancePanicError`, so that it is handled where Lance's errors are.

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
        what: What did not work, to begin the message.
    """
    try:
        with panics_as_errors():
            yield
    except LANCE_ERRORS as error:
        raise as_namespace_error(what, error) from error


def as_namespace_error(what: str, error: Exception, hint: str = "") -> LanceNamespaceError:
    """Return InternalError (18) for a panic, and else ServiceUnavailableError (17), for storage.

    Args:
        hint: What to add where storage failed, such as that the call can be repeated.
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
    """Return whether Lance refused what it was asked, rather than failed at it."""
    text = str(error)
    return text.startswith(REFUSALS) and STORAGE_ERROR not in text


def is_input_error(error: Exception) -> bool:
    """Return whether Lance blames what it was given, and not the storage or other writers."""
    text = str(error)
    if STORAGE_ERROR in text or text.startswith(MISSING_FILE):
        return False
    return isinstance(error, ValueError) or is_refusal(error)


def first_line(error: BaseException | str) -> str:
    """Return the first line of pylance's message, without the places in its source."""
    line = str(error).split("\n", 1)[0]
    return re.split(r", (?:location: )?(?=/|\S+\.rs:\d)", line, maxsplit=1)[0][:300]
