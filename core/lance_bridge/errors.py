"""The errors that leave the library, all of them types of ``lance_namespace.errors``.

This module adds what that package lacks: messages made in one place, so that each names the
object and what to do, and one error that tells "failed" apart from "perhaps done". Messages of
missing and duplicate tables and namespaces, and of namespaces that are not empty, begin as those of
pylance's own namespaces do: LanceDB and others see the text of an error only, and decide by it.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from lance_namespace.errors import (
    ConcurrentModificationError,
    InternalError,
    InvalidInputError,
    LanceNamespaceError,
    NamespaceAlreadyExistsError,
    NamespaceNotEmptyError,
    NamespaceNotFoundError,
    ServiceUnavailableError,
    TableAlreadyExistsError,
    TableNotFoundError,
    UnsupportedOperationError,
)

__all__ = [
    "LanceNamespaceError",
    "OutcomeUnknownError",
    "concurrent_modification",
    "display",
    "internal",
    "invalid",
    "is_callers_own",
    "is_panic",
    "marking_callers_own",
    "namespace_already_exists",
    "namespace_not_empty",
    "namespace_not_found",
    "require_text",
    "table_already_exists",
    "table_not_found",
    "unsupported",
]

_CALLERS_OWN = "lance_bridge_callers_own"


class OutcomeUnknownError(ServiceUnavailableError):
    """A change was sent and its reply was lost: it may have happened or not (code 17).

    A :class:`~lance_bridge.catalog.Catalog` raises this, never a plain ServiceUnavailable, when a
    call that changes something may have reached the server. Core then reads back and decides.
    """


def display(path: Sequence[str]) -> str:
    """Return an identifier as a person reads it: names joined with dots, or ``(root)``."""
    return ".".join(path) if path else "(root)"


def invalid(message: str) -> InvalidInputError:
    """Code 13."""
    return InvalidInputError(message)


def unsupported(message: str) -> UnsupportedOperationError:
    """Code 0."""
    return UnsupportedOperationError(message)


def internal(operation: str, cause: BaseException) -> InternalError:
    """Code 18: an operation failed for a reason that no other code names."""
    text = " ".join(str(cause).split())[:300]
    return InternalError(f"{operation} failed with {type(cause).__name__}: {text}")


def namespace_not_found(path: Sequence[str]) -> NamespaceNotFoundError:
    """Code 1."""
    return NamespaceNotFoundError(
        f"Namespace not found: {display(path)}. Create it first, or check its spelling"
    )


def namespace_already_exists(path: Sequence[str]) -> NamespaceAlreadyExistsError:
    """Code 2."""
    return NamespaceAlreadyExistsError(
        f"Namespace already exists: {display(path)}. Use mode ExistOk to keep it"
    )


def namespace_not_empty(path: Sequence[str], inside: str) -> NamespaceNotEmptyError:
    """Code 3. ``inside`` says what was found there."""
    return NamespaceNotEmptyError(f"Namespace not empty: {display(path)}. {inside}")


def table_not_found(path: Sequence[str]) -> TableNotFoundError:
    """Code 4."""
    return TableNotFoundError(
        f"Table not found: {display(path)}. Create, declare or register it first, "
        "or check its spelling"
    )


def table_already_exists(path: Sequence[str], what: str = "") -> TableAlreadyExistsError:
    """Code 5. ``what`` says what kind of entry has the name, when that is not plain."""
    return TableAlreadyExistsError(
        f"Table already exists: {display(path)}{', ' + what if what else ''}"
    )


def concurrent_modification(path: Sequence[str]) -> ConcurrentModificationError:
    """Code 14."""
    return ConcurrentModificationError(
        f"Table '{display(path)}' was modified concurrently; reload it and retry"
    )


def is_panic(error: BaseException) -> bool:
    """Return whether Rust code of pylance panicked.

    Such an error is a BaseException, which no ``except Exception`` catches. PyO3 defines its type
    in every extension module and exports it from none, so that only its name can be compared.
    """
    return any(
        (each.__module__, each.__name__) == ("pyo3_runtime", "PanicException")
        for each in type(error).__mro__
    )


@contextmanager
def marking_callers_own() -> Iterator[None]:
    """Mark what the block raises as raised by the caller's own code: no operation replaces it."""
    try:
        yield
    except BaseException as error:
        vars(error)[_CALLERS_OWN] = True
        raise


def is_callers_own(error: BaseException) -> bool:
    """Return whether the caller's own code raised an error, such as the source of the rows."""
    return _CALLERS_OWN in vars(error)


def require_text(what: str, text: str) -> None:
    """Refuse a string that is not text: half of a surrogate pair cannot be sent or stored.

    Raises InvalidInput (13).
    """
    try:
        text.encode()
    except UnicodeEncodeError:
        raise invalid(f"{what} {text[:60]!r} is not text: it holds half of a character") from None
