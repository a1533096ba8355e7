"""Expecting an error: its type, its code, and that its message names the object."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from lance_namespace import ErrorCode, LanceNamespaceError


@contextmanager
def refused(*codes: ErrorCode, naming: str = "") -> Iterator[None]:
    """Require that the block raises a Lance error with one of these codes.

    Args:
        codes: The codes that are right.
        naming: What the message must contain, in any letter case.
    """
    wanted = " or ".join(f"{code.name} ({code.value})" for code in codes)
    raised: LanceNamespaceError | None = None
    try:
        yield
    except LanceNamespaceError as error:
        raised = error
    assert raised is not None, f"expected {wanted}, but the call succeeded"
    shown = described(raised)
    if raised.code not in codes:
        raise AssertionError(f"expected {wanted}, got {shown}") from raised
    assert str(raised).strip(), f"{shown} has no message"
    assert naming.lower() in str(raised).lower(), f"{shown} does not name {naming!r}"


def described(error: LanceNamespaceError) -> str:
    """Return an error with its code, for a message."""
    return f"{type(error).__name__} ({int(error.code)}): {error}"


def code_of(call: Callable[..., object], *arguments: object) -> ErrorCode | None:
    """Return the code of the Lance error that the call raises, or None if it succeeds."""
    try:
        call(*arguments)
    except LanceNamespaceError as error:
        return ErrorCode(error.code)
    return None
