"""Errors of pylance's own namespaces, with the codes and sentences of lance-bridge's catalogs.

Lance says what is wrong in a text for developers, and gives many errors the code of another one, or
none. This is the one place that knows these texts by their meaning; `lance_texts` cuts them.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager

from lance_namespace.errors import (
    ErrorCode,
    InternalError,
    InvalidTableStateError,
    LanceNamespaceError,
    NamespaceNotFoundError,
    PermissionDeniedError,
    ServiceUnavailableError,
    TableAlreadyExistsError,
    TableBranchAlreadyExistsError,
    TableBranchNotFoundError,
    TableColumnNotFoundError,
    TableIndexAlreadyExistsError,
    TableIndexNotFoundError,
    TableNotFoundError,
    TableSchemaValidationError,
    TableTagAlreadyExistsError,
    TableTagNotFoundError,
    TableVersionNotFoundError,
    ThrottlingError,
    UnauthenticatedError,
)

from . import lance_texts
from .errors import (
    BROKEN_FILE,
    as_namespace_error,
    concurrent_modification,
    display,
    has_panicked,
    has_wrong_value,
    invalid,
    is_callers_own,
    namespace_not_found,
    table_already_exists,
    table_not_found,
    unsupported,
)

NATIVE_ERRORS = (RuntimeError, OverflowError, ValueError, OSError)
"""What they raise besides errors of the API. NotImplementedError is a RuntimeError."""

_READABLE = "lance_bridge_readable"
_VAGUE = (ErrorCode.INTERNAL, ErrorCode.INVALID_INPUT)
"""Codes that they give to errors of any kind."""
_READS = ("count_table_rows", "query_table", "query_table_reader", "analyze_table_query_plan")
"""Operations that read rows, and change nothing."""


@contextmanager
def readable_errors(operation: str, path: Sequence[str]) -> Iterator[None]:
    """Raise errors of the block as `readable_error` returns them.

    Args:
        path: The table or namespace of the request.
    """
    try:
        yield
    except (LanceNamespaceError, *NATIVE_ERRORS) as error:
        readable = readable_error(operation, path, error)
        if readable is error:
            raise
        raise readable from error


def readable_error(operation: str, path: Sequence[str], error: Exception) -> Exception:
    """Return an error with the code and the text of what is wrong, and with the name of the object.

    Returns:
        An error of the API; the error itself if it is not of Lance, or is readable already.
    """
    if is_callers_own(error) or _READABLE in vars(error):
        return error
    found = _translate(operation, path, error)
    vars(found)[_READABLE] = True
    return found


def _translate(operation: str, path: Sequence[str], error: Exception) -> Exception:
    text, what = str(error), _describe(operation, path)
    if isinstance(error, NotImplementedError) or lance_texts.is_not_implemented(text):
        return unsupported(f"{operation} is not supported by the library of this catalog")
    if isinstance(error, OverflowError) or lance_texts.is_overflow(text):
        return invalid(f"{what}: a number in the request is too large")
    return (
        _of_object(what, text)
        or _of_existence(path, error)
        or _of_server(operation, text)
        or _of_value(what, error)
        or _of_storage(operation, what, error)
        or _of_request(what, error)
        or _for_users(operation, path, error)
    )


def _describe(operation: str, path: Sequence[str]) -> str:
    """Return the object of a request, for the beginning of a message."""
    if operation.endswith("_transaction"):
        kind = "Transaction"
    elif operation.endswith("_namespace") or operation in _OF_NAMESPACES:
        kind = "Namespace"
    else:
        kind = "Table"
    return f"{kind} '{display(path)}'"


_OF_NAMESPACES = ("list_all_tables", "list_namespaces", "list_tables", "namespace_exists")


# -- parts of a table ------------------------------------------------------------------------------


def _missing_version(what: str, version: str) -> LanceNamespaceError:
    if version == "0":
        return invalid(f"{what}: version must be 1 or more, not 0")
    return TableVersionNotFoundError(f"{what} has no version {version}")


def _taken_column(what: str, column: str) -> LanceNamespaceError:
    return invalid(f"{what}: column '{column}' exists already, or is named twice")


def _missing_column(what: str, column: str) -> LanceNamespaceError:
    return TableColumnNotFoundError(f"{what} has no column '{column}'")


_OBJECTS: tuple[tuple[str, Callable[[str, str], LanceNamespaceError]], ...] = (
    (
        r"_versions/(\d+)\.manifest was not found|: version \S+:(\d+) does not exist"
        r"|Table version not found: version (\d+) for table",
        _missing_version,
    ),
    (
        r"(?:not found: |')branch '([^']*)' (?:not found )?for table at"
        r"|branch operation failed .*Not found: .*/tree/(.+?)/_versions",
        lambda what, name: TableBranchNotFoundError(f"{what} has no branch '{name}'"),
    ),
    (
        r"already exists: branch '([^']*)' for table at",
        lambda what, name: TableBranchAlreadyExistsError(f"{what} already has a branch '{name}'"),
    ),
    (
        r"not found: tag '([^']*)' for table at",
        lambda what, name: TableTagNotFoundError(f"{what} has no tag '{name}'"),
    ),
    (
        r"already exists: tag '([^']*)' for table at",
        lambda what, name: TableTagAlreadyExistsError(
            f"{what} already has a tag '{name}': move it with UpdateTableTag"
        ),
    ),
    (
        r"Failed to (?:drop index|describe index statistics for) '([^']*)' .*index not found",
        lambda what, name: TableIndexNotFoundError(f"{what} has no index '{name}'"),
    ),
    (
        r"Index name '([^']*)' already exists",
        lambda what, name: TableIndexAlreadyExistsError(
            f"{what} already has an index '{name}': drop it first, or choose another name"
        ),
    ),
    (
        r"Column (.+?) already exists in the dataset"
        r"|Duplicate field name \\*\"(.+?)\\*\" in schema:",
        _taken_column,
    ),
    (
        r"\bField () not found",
        lambda what, _: invalid(f"{what}: a column's name cannot be empty"),
    ),
    (
        r"Column '([^']*)' (?:does not exist in dataset schema: Schema \{|not found for table)"
        r"|\"Column (?:\\\")?(.+?)(?:\\\")? does not exist in the dataset\""
        r"|FTS field path '(.+?)' does not exist in the dataset schema"
        r"|No field named (.+?)\. Valid fields are ",
        _missing_column,
    ),
)
"""What a text says of a part of a table, and the error for its name."""


def _of_object(what: str, text: str) -> LanceNamespaceError | None:
    """Return the error about a column, an index, a version, a tag or a branch."""
    column = lance_texts.find_missing_column(text)
    if column is not None:
        return _missing_column(what, column.strip("'\"`"))
    text = lance_texts.without_middle(text)
    for pattern, error in _OBJECTS:
        if found := re.search(pattern, text, re.DOTALL):
            return error(what, next(filter(None, found.groups()), "").strip('"`'))
    return None


# -- tables and namespaces -------------------------------------------------------------------------


_NO_DATA = re.compile(r"Dataset at path .* was not found: Not found: \S+/_versions\b")
_WRITTEN = "Dataset already exists: "
_NO_DIRECTORY = "Failed to delete table directory: NotFound"
_NO_NAMESPACE = re.compile(r"^Namespace not found: (?:parent namespace )?'?([^\s']+)'?$")


def _of_existence(path: Sequence[str], error: Exception) -> LanceNamespaceError | None:
    """Return the error about a table or a namespace that is missing, has no data, or exists."""
    text = lance_texts.without_middle(str(error))
    if _NO_DATA.search(text):
        return InvalidTableStateError(
            f"The data of table '{display(path)}' is missing: there is no version at its location. "
            "If it is only declared, write its first rows with CreateTable; otherwise restore "
            "its files"
        )
    is_of_table = path and text.partition(": ")[2] in _names_of(path)
    if _NO_DIRECTORY in text or (is_of_table and isinstance(error, TableNotFoundError)):
        return table_not_found(path)
    if text.startswith(_WRITTEN) or (is_of_table and isinstance(error, TableAlreadyExistsError)):
        return table_already_exists(path)
    if isinstance(error, NamespaceNotFoundError) and (found := _NO_NAMESPACE.match(text)):
        return namespace_not_found(found[1].split("$"))
    return None


def _names_of(path: Sequence[str]) -> set[str]:
    """Return the forms in which pylance may write the name of a table, without its catalog."""
    names = {"$".join(path[start:]) for start in range(len(path))}
    return names | {f"table id '{name}'" for name in names}


# -- servers ---------------------------------------------------------------------------------------


_ERROR_BY_STATUS: Mapping[str, type[LanceNamespaceError]] = {
    "401": UnauthenticatedError,
    "403": PermissionDeniedError,
    "429": ThrottlingError,
}
"""For responses of proxies, and of servers of something else; others may pass."""


def _of_server(operation: str, text: str) -> LanceNamespaceError | None:
    """Return the error for a REST catalog whose server did not respond as one of the API."""
    if status := lance_texts.find_other_response(text):
        return _ERROR_BY_STATUS.get(status[:3], ServiceUnavailableError)(
            f"{operation}: the catalog's server responded with {status}, and not as a server of "
            "the Lance REST API. Check that uri has its address and path, and that it runs"
        )
    silent = lance_texts.find_silent_server(text)
    if silent is None:
        return None
    url, reason = silent
    address = url.partition("?")[0]
    return ServiceUnavailableError(
        f"{operation}: the catalog's server did not respond: {address}: {reason}. Try again, or "
        "check that it runs and that uri has its address"
    )


# -- storage ---------------------------------------------------------------------------------------


_MISSING_FILE = re.compile(
    r'(?:Not found: |NotFound \{ uri: ")([^\s",]+\.(?:lance|arrow|bin|idx|blob))\b'
)
_UNREADABLE = re.compile(
    rf"LanceError\(IO\)|\bIO \{{ source: |Storage error while resolving table|{BROKEN_FILE}"
    r"|(?:Failed to list tags|(?:tag|branch) operation failed) .*LanceError\(Arrow\): ",
    re.DOTALL,
)
_OPENING = re.compile(
    r"while resolving table: |Failed to open (?:dataset|table)|Failed to write table"
)
_KIND = re.compile(r"LanceError\(\w+\): |Invalid user input: ")
_PRINTED = re.compile(r"\b[A-Z]\w* \{ (?:source|message): ")


def _of_storage(operation: str, what: str, error: Exception) -> LanceNamespaceError | None:
    """Return the error for files that are missing, broken, or may not be read."""
    text = lance_texts.without_middle(str(error))
    if getattr(error, "code", ErrorCode.INTERNAL) not in (
        *_VAGUE,
        ErrorCode.TABLE_NOT_FOUND,
        ErrorCode.TABLE_INDEX_NOT_FOUND,
    ):
        return None
    failed = " could not be opened" if _OPENING.search(text) else f": {operation} failed"
    if lance_texts.is_access_denied(text) or lance_texts.is_caller_unknown(text):
        return as_namespace_error(f"{what}{failed}", error)
    if missing := _MISSING_FILE.search(text):
        problem = f"{what}: {operation} failed: the file {missing[1]} is missing"
        if operation not in _READS:
            return ServiceUnavailableError(problem)
        return InvalidTableStateError(
            f"{problem}. If a clean-up deleted it meanwhile, read the latest version; otherwise "
            "restore it"
        )
    if _UNREADABLE.search(text) and not has_panicked(error):
        return ServiceUnavailableError(f"{what}{failed}: {_reason(text)}")
    return None


def _reason(text: str) -> str:
    """Return the innermost reason in a message, on one line."""
    text = lance_texts.without_places(lance_texts.without_middle(text))
    *_, start = 0, *(found.end() for found in _KIND.finditer(text))
    if not start and (printed := _PRINTED.search(text)):
        start = printed.start()
    return lance_texts.cut_message(text[start:])


# -- the request -----------------------------------------------------------------------------------


def _of_value(what: str, error: Exception) -> LanceNamespaceError | None:
    """Return the error for a value of the request that Lance reports as one of the storage."""
    text = str(error)
    is_of_value = has_wrong_value(error) or lance_texts.is_of_value(text)
    return _of_request(what, error) if is_of_value else None


_INVALID = "Invalid input: "


def _of_request(what: str, error: Exception) -> LanceNamespaceError | None:
    text, code = str(error), getattr(error, "code", ErrorCode.INTERNAL)
    if code not in _VAGUE:
        return None
    fields = lance_texts.find_other_schema(text)
    if fields:
        return TableSchemaValidationError(f"{what}: the rows have another schema: {fields}")
    wrong = lance_texts.find_wrong_part(
        text, is_known=code == ErrorCode.INVALID_INPUT, is_of_value=has_wrong_value(error)
    )
    if not wrong and code == ErrorCode.INVALID_INPUT:
        wrong = text.removeprefix(_INVALID) if text.startswith(_INVALID) else ""
    return invalid(f"{what}: {lance_texts.cut_message(wrong)}") if wrong else None


def _for_users(operation: str, path: Sequence[str], error: Exception) -> Exception:
    """Return an error of another cause without what is for developers."""
    text = str(error)
    is_raw = lance_texts.is_for_developers(text) or _KIND.search(text) is not None
    if not is_raw:
        return error
    code = getattr(error, "code", ErrorCode.INTERNAL)
    if code == ErrorCode.CONCURRENT_MODIFICATION:
        return concurrent_modification(path)
    message = f"{_describe(operation, path)}: {operation} failed: {_reason(text)}"
    kind = type(error) if isinstance(error, LanceNamespaceError) else InternalError
    return kind(message)
