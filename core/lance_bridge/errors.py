"""The errors that the library raises, and the translation of pylance's errors into them.

All are types of ``lance_namespace.errors``. This module adds functions that create them, so that
each message names the object and what to do, and one error that distinguishes "failed" from
"perhaps done". Messages of missing and duplicate tables and namespaces, and of namespaces that are
not empty, begin like those of pylance's own namespaces: LanceDB and other clients see only an
error's text, and decide by it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, TypeVar

from lance_namespace.errors import (
    ConcurrentModificationError,
    InternalError,
    InvalidInputError,
    InvalidTableStateError,
    LanceNamespaceError,
    NamespaceAlreadyExistsError,
    NamespaceNotEmptyError,
    NamespaceNotFoundError,
    PermissionDeniedError,
    ServiceUnavailableError,
    TableAlreadyExistsError,
    TableNotFoundError,
    UnauthenticatedError,
    UnsupportedOperationError,
)

from .lance_texts import cut_before_place, cut_message, is_access_denied, is_caller_unknown

__all__ = [
    "BROKEN_FILE",
    "LANCE_ERRORS",
    "MISSING_FILE",
    "OF_ONE_OBJECT",
    "REFUSALS",
    "STORAGE_ERROR",
    "TOO_MANY_WRITERS",
    "BrokenNameError",
    "ErrorCapturingReader",
    "LancePanicError",
    "LatestVersionGoneError",
    "ManagedElsewhereError",
    "NotLanceError",
    "NotManagedError",
    "ObjectUnavailableError",
    "OutcomeUnknownError",
    "RowsOnlyHereError",
    "TableDataMissingError",
    "TableNotWrittenError",
    "as_namespace_error",
    "concurrent_modification",
    "display",
    "first_line",
    "has_panicked",
    "has_wrong_value",
    "internal",
    "invalid",
    "is_callers_own",
    "is_input_error",
    "is_panic",
    "is_refusal",
    "mark_missing",
    "marking_callers_own",
    "marking_other_entries",
    "missing_path",
    "names_other_entries",
    "namespace_already_exists",
    "namespace_not_empty",
    "namespace_not_found",
    "panics_as_errors",
    "reason_in",
    "releases_as_conflicts",
    "require_text",
    "retry_after_readback",
    "table_already_exists",
    "table_not_found",
    "translate_lance_errors",
    "unsupported",
]


class OutcomeUnknownError(ServiceUnavailableError):
    """A change was sent and its reply was lost: it may have happened or not (code 17).

    A `Catalog` raises this, never a plain ServiceUnavailable, when a call that changes something
    may have reached the server. Core then reads back and decides.
    """


class NotManagedError(InvalidInputError):
    """An operation is for implementation-managed tables, and its storage manages the table."""


class ObjectUnavailableError(ServiceUnavailableError):
    """The server responded that it cannot read one object, though it reads others (code 17)."""


class BrokenNameError(InternalError):
    """Several entries have one name, and the server can read none of them (code 18).

    Args:
        message: Names the object, and says how it happened and what to do.
        remedy: What keeps it from happening again, for people: statements on separate lines.
    """

    def __init__(self, message: str, remedy: str = "") -> None:
        super().__init__(message)
        self.remedy = remedy


class NotLanceError(InvalidInputError):
    """The entry is not a Lance table (code 13)."""

    path: tuple[str, ...] = ()
    """The table's."""
    format: str = ""
    """As `TableRecord.format`."""


class ProtectedError(InvalidTableStateError):
    """The object of the request is protected from removal (19)."""


class TableDataMissingError(InvalidTableStateError):
    """The table had data, and it is gone (19): no operation writes a new first version."""


class LatestVersionGoneError(InvalidTableStateError):
    """The version that the catalog holds was deleted from storage, which has other versions (19).

    These may be all that is left of its rows: nothing moves or deletes them.
    """


class ManagedElsewhereError(InvalidTableStateError):
    """Another entry manages the versions at the location (19): this one writes nothing."""


class RowsOnlyHereError(InvalidTableStateError):
    """Versions to be deleted have rows that nothing else has, and were not named (19).

    Args:
        message: Names the versions, and how many rows of each would be lost.
        versions: The versions to name so that all that was requested is deleted.
        can_adopt: Whether the versions can be adopted instead.
    """

    def __init__(self, message: str, versions: Sequence[int], *, can_adopt: bool) -> None:
        super().__init__(message)
        self.versions = tuple(versions)
        self.can_adopt = can_adopt


class TableNotWrittenError(InvalidTableStateError):
    """The table has no data, as far as is known never had any, and takes its first write (19)."""


OF_ONE_OBJECT = (
    InternalError,
    InvalidInputError,
    InvalidTableStateError,
    ObjectUnavailableError,
    PermissionDeniedError,
    UnsupportedOperationError,
)
"""Errors about one object: a scan goes on past what cannot be read, and says what it left out.

With other errors, such as an outage, the next object would fail, too."""


def display(path: Sequence[str]) -> str:
    """Return an identifier for messages: names joined with dots, or ``(root)``."""
    return ".".join(path) if path else "(root)"


def invalid(message: str) -> InvalidInputError:
    """Return InvalidInputError (code 13)."""
    return InvalidInputError(message)


def unsupported(message: str) -> UnsupportedOperationError:
    """Return UnsupportedOperationError (code 0)."""
    return UnsupportedOperationError(message)


def internal(operation: str, cause: BaseException) -> InternalError:
    """Return InternalError (code 18), for a failure that no other code describes."""
    text = cut_before_place(" ".join(str(cause).split()), 300)
    return InternalError(f"{operation} failed with {type(cause).__name__}: {text}")


def namespace_not_found(path: Sequence[str]) -> NamespaceNotFoundError:
    """Return NamespaceNotFoundError (code 1)."""
    return mark_missing(
        NamespaceNotFoundError(
            f"Namespace not found: {display(path)}. Create it first, or check its spelling"
        ),
        path,
    )


def namespace_already_exists(path: Sequence[str]) -> NamespaceAlreadyExistsError:
    """Return NamespaceAlreadyExistsError (code 2)."""
    return NamespaceAlreadyExistsError(
        f"Namespace already exists: {display(path)}. Use mode ExistOk to keep it"
    )


def namespace_not_empty(path: Sequence[str], inside: str) -> NamespaceNotEmptyError:
    """Return NamespaceNotEmptyError (code 3). ``inside`` says what was found there."""
    return NamespaceNotEmptyError(f"Namespace not empty: {display(path)}. {inside}")


_NO_TABLE = "Create, declare or register it first, or check its spelling"


def table_not_found(path: Sequence[str], why: str = _NO_TABLE) -> TableNotFoundError:
    """Return TableNotFoundError (code 4). ``why`` says what the caller can know or do."""
    return mark_missing(TableNotFoundError(f"Table not found: {display(path)}. {why}"), path)


_MISSING = "lance_bridge_missing"
_ErrorT = TypeVar("_ErrorT", bound=Exception)


def mark_missing(error: _ErrorT, path: Sequence[str]) -> _ErrorT:
    """Note in an error which table or namespace does not exist, for `missing_path`."""
    vars(error)[_MISSING] = tuple(path)
    return error


def missing_path(error: BaseException) -> tuple[str, ...]:
    """Return the path of the table or namespace that an error says does not exist, or ()."""
    path: tuple[str, ...] = vars(error).get(_MISSING, ())
    return path


def table_already_exists(path: Sequence[str], what: str = "") -> TableAlreadyExistsError:
    """Return TableAlreadyExistsError (code 5). ``what`` describes the existing entry."""
    return TableAlreadyExistsError(
        f"Table already exists: {display(path)}{', ' + what if what else ''}. "
        "Drop or rename that one first, or choose another name"
    )


def concurrent_modification(path: Sequence[str]) -> ConcurrentModificationError:
    """Return ConcurrentModificationError (code 14)."""
    return ConcurrentModificationError(
        f"Table '{display(path)}' was modified concurrently; reload it and retry"
    )


def require_text(what: str, text: str) -> None:
    """Refuse a string with an unpaired surrogate, which cannot be sent or stored.

    Raises InvalidInput (13).
    """
    try:
        text.encode()
    except UnicodeEncodeError:
        raise invalid(
            f"{what} {text[:60]!r} has an unpaired surrogate: it is not Unicode"
        ) from None


@contextmanager
def releases_as_conflicts() -> Iterator[None]:
    """Raise ConcurrentModification (14) if the block finds that its managed table was released.

    The table was managed when the block began: its versions are managed by its storage since then,
    and the operation can be repeated.
    """
    try:
        yield
    except NotManagedError as error:
        raise ConcurrentModificationError(f"{error}, since a moment ago: retry") from error


# -- errors of the caller's code -------------------------------------------------------------------

_CALLERS_OWN = "lance_bridge_callers_own"


@contextmanager
def marking_callers_own() -> Iterator[None]:
    """Mark the block's errors as raised by the caller's own code: no operation replaces them."""
    try:
        yield
    except BaseException as error:
        vars(error)[_CALLERS_OWN] = True
        raise


def is_callers_own(error: BaseException) -> bool:
    """Return whether the caller's own code raised an error, such as the source of the rows."""
    return _CALLERS_OWN in vars(error)


# -- errors about other entries --------------------------------------------------------------------

_OTHER_ENTRIES = "lance_bridge_other_entries"


@contextmanager
def marking_other_entries() -> Iterator[None]:
    """Mark the block's errors: they may name entries that the request does not name.

    A server does not show such a message to a caller that may not see every entry.
    """
    try:
        yield
    except LanceNamespaceError as error:
        vars(error)[_OTHER_ENTRIES] = True
        raise


def names_other_entries(error: BaseException | None) -> bool:
    """Return whether an error, or one that caused it, is marked by `marking_other_entries`."""
    while error is not None:
        if _OTHER_ENTRIES in vars(error):
            return True
        error = error.__cause__
    return False


# -- errors of pylance -----------------------------------------------------------------------------

# pylance's Rust half raises a few built-in types for every failure, and a BaseException for a
# panic. Only the message says what failed: the request, the storage or Lance.

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
    "can't set tokenizer",
)
"""The beginnings of messages about a request or its rows, and not about storage."""

_OF_VALUES = (
    "Compute error: Regular expression",
    "Data not conforming to GeoArrow",
    "Decimal precision out of range",
    "WKT error",
)
"""Parts of messages about a value in a request, also of those that blame the storage."""

STORAGE_ERROR = "LanceError(IO)"
"""Part of the message, at any depth, if the storage failed."""

BROKEN_FILE = "does not appear to be a Lance file"
"""Part of the message if a file of the table is broken, which Lance blames on the request."""

MISSING_FILE = "Not found: "
"""The beginning of the message if a file of the table is missing, also a ValueError."""

TOO_MANY_WRITERS = "Too many concurrent writers"
"""Part of the message if Lance gave up after conflicts; nothing was committed."""


class LancePanicError(RuntimeError):
    """A panic of Lance's Rust code, as one of `LANCE_ERRORS`."""


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
    """Raise a failure inside pylance as `as_namespace_error` does.

    Args:
        what: What failed, as the beginning of the message.
    """
    try:
        with panics_as_errors():
            yield
    except LANCE_ERRORS as error:
        raise as_namespace_error(what, error) from error


def as_namespace_error(what: str, error: Exception, hint: str = "") -> LanceNamespaceError:
    """Return the error for a failure that is not about the request: a panic, or storage.

    Args:
        hint: Added if storage failed, for example that the call can be retried.

    Returns:
        InternalError (18) for a panic; UnauthenticatedError (16) or PermissionDeniedError (15) if
        storage refused; else ServiceUnavailableError (17).
    """
    if has_panicked(error):
        return InternalError(f"{what}: Lance panicked: {first_line(error)}")
    message = f"{what}: {first_line(error)}{hint}"
    if is_caller_unknown(str(error)):
        return UnauthenticatedError(message)
    if is_access_denied(str(error)):
        return PermissionDeniedError(message)
    return ServiceUnavailableError(message)


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
    is_of_storage = STORAGE_ERROR in text or BROKEN_FILE in text
    is_refused = text.startswith(REFUSALS) and not is_of_storage
    return is_refused or has_wrong_value(error)


def has_wrong_value(error: BaseException) -> bool:
    """Return whether an expression was applied to a value that it cannot take."""
    text = str(error)
    return any(each in text for each in _OF_VALUES)


def is_input_error(error: Exception) -> bool:
    """Return whether an error is about the input, and not about storage or other writers."""
    text = str(error)
    if is_refusal(error):
        return True
    return isinstance(error, ValueError) and not (
        STORAGE_ERROR in text or BROKEN_FILE in text or text.startswith(MISSING_FILE)
    )


def first_line(error: BaseException | str) -> str:
    """Return what concerns a user in pylance's message, on one line."""
    return cut_message(str(error))


def reason_in(message: object) -> str:
    """Return the line of a service's message that has the reason, in at most 300 characters.

    That is the first one; botocore and Java introduce the second with a colon.
    """
    first, _, rest = str(message).strip().partition("\n")
    second = rest.strip().partition("\n")[0] if first.endswith(":") else ""
    return f"{first} {second}".strip()[:300]


class ErrorCapturingReader(Iterator[Any]):
    """Iterates over batches of rows, and keeps the error that ended them.

    pylance reports only the text of an error that its source of batches raises.
    """

    def __init__(self, batches: Iterable[Any]) -> None:
        self.begin(batches)

    def begin(self, batches: Iterable[Any]) -> None:
        """Read these batches from now on."""
        self._batches = iter(batches)
        self.failure: BaseException | None = None
        """The error that ended the batches, or None."""

    def __next__(self) -> Any:
        try:
            return next(self._batches)
        except StopIteration:
            raise
        except BaseException as error:
            self.failure = error
            raise

    @contextmanager
    def reraise_source_error(self) -> Iterator[None]:
        """Raise the error that ended the batches instead of the one that pylance raises for it."""
        try:
            with panics_as_errors():
                yield
        except LANCE_ERRORS:
            if self.failure is not None:
                raise self.failure from None
            raise


# -- lost replies ----------------------------------------------------------------------------------

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
