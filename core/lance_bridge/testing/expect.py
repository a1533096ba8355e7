"""Expect an error: its type, its code, and that its message names the object."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager
from typing import TypeVar

from lance_namespace import ErrorCode, LanceNamespaceError

_T = TypeVar("_T")


@contextmanager
def refused(*codes: ErrorCode, naming: str = "") -> Iterator[None]:
    """Require that the block raises a Lance error with one of these codes.

    Args:
        codes: The expected codes.
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


def answer_of(
    call: Callable[[_T], object], argument: _T, codes: Collection[ErrorCode], naming: str = ""
) -> str:
    """Return what is wrong with the result of a call that must be refused; empty if nothing.

    Args:
        codes: The expected codes.
        naming: What the message must contain, in any letter case.
    """
    given = repr(argument)[:60]
    expected = " or ".join(ErrorCode(each).name for each in codes)
    try:
        call(argument)
    except LanceNamespaceError as error:
        is_named = str(error).strip() and naming.lower() in str(error).lower()
        if error.code in codes and is_named:
            return ""
        return f"{given}: {described(error)}; expected {expected}"
    except Exception as error:  # noqa: BLE001 - an error without a code is wrong too
        return f"{given}: {type(error).__name__}: {error}"
    return f"{given}: accepted; expected {expected}"
