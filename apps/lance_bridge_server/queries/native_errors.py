"""Errors of other libraries' namespaces, which repeat Lance's own errors as Rust prints them.

Pylance's namespaces report a wrong expression as an internal error, with the fields of the Rust
value. What is wrong with the request is in a text among them.
"""

from __future__ import annotations

import re

from lance_namespace.errors import (
    ErrorCode,
    InvalidInputError,
    LanceNamespaceError,
    TableColumnNotFoundError,
    TableSchemaValidationError,
)

from lance_bridge.errors import has_wrong_value, unsupported
from lance_bridge_federated.identifiers import with_text

_RUST = re.compile(r"location: Location \{|/rust/[\w/-]+\.rs:\d+|/library/[\w/-]+\.rs:\d+")
_TEXT = r'"((?:[^"\\]|\\.)*)"'
_MISSING = re.compile(rf"FieldNotFound \{{ field: Column \{{ relation: [^\"]*?name: {_TEXT}")
_NAMED = re.compile(r"No field named ([^.]+|\"[^\"]+\")\.|column (\S+) does not exist in schema")
_PRINTED = re.compile(rf"\b(\w+) \{{ (?:source|message): (?:\w+\()?{_TEXT}")
_PLACE = re.compile(r",? /[\w/.-]+\.rs:\d+:\d+")
_BEFORE_REASON = re.compile(
    r"^.*\bLanceError\(\w+\): |^(?:Internal error: )?Failed to run \w+ on table at '.*?': ",
    re.DOTALL,
)
_PREFIX = re.compile(
    r"^(?:(?:Internal error|Invalid input|Invalid user input|Error during planning|Execution error"
    r"|Arrow error|Error applying filter expression to batch|Error resolving filter expression): )+"
)
_WRONG_REQUEST = {
    "Arrow", "Execution", "Index", "InvalidInput", "NotSupported", "Schema", "SchemaMismatch",
}  # fmt: skip
_OF_VALUES = ("Failed to coerce types", "Wkt(", "InvalidGeoArrow(")
"""Parts of printed errors about a value of the request, beside those of `has_wrong_value`."""
_REASONS = ("LanceError(Arrow): ", "Invalid user input: ", "Query Execution error: ")
"""What precedes the reason in messages about a wrong request."""
_OVERFLOW, _NOT_IMPLEMENTED = "OverflowError", "NotImplementedError"
_MALFORMED = ("Failed to read IPC stream", "No data provided")
"""What pylance's namespaces say of rows that they cannot read."""
_LONG_NAME = "File name too long (os error"
_OTHER_SCHEMA = "Append with different schema: "
_VAGUE = (ErrorCode.INTERNAL, ErrorCode.INVALID_INPUT)
NATIVE_ERRORS = (RuntimeError, OverflowError)
"""What they raise besides errors of the API. NotImplementedError is a RuntimeError."""
_HINT = "\n\tCandidate functions"


def readable_error(operation: str, error: Exception) -> Exception:
    """Return an error with the code and the text of what is wrong with the request.

    Returns:
        TableColumnNotFound (12), InvalidInput (13), or UnsupportedOperation (0); the error itself
        if it has another cause.
    """
    text, code = str(error), getattr(error, "code", ErrorCode.INTERNAL)
    if isinstance(error, NotImplementedError) or f"failed with {_NOT_IMPLEMENTED}" in text:
        return unsupported(f"{operation} is not supported by the library of this catalog")
    if isinstance(error, OverflowError) or f"failed with {_OVERFLOW}" in text:
        return InvalidInputError(f"{operation}: a number in the request is too large")
    if isinstance(error, LanceNamespaceError) and code not in _VAGUE:
        return with_text(error, _PLACE.sub("", text))
    if _OTHER_SCHEMA in text:
        fields = _plain(text.partition(_OTHER_SCHEMA)[2])
        return TableSchemaValidationError(f"The rows have another schema than the table: {fields}")
    missing = (_MISSING.search(text) or _NAMED.search(text)) if _RUST.search(text) else None
    if missing is not None:
        name = next(filter(None, missing.groups()))
        return TableColumnNotFoundError(f"There is no column {_unescape(name)}")
    is_of_value = has_wrong_value(error) or any(each in text for each in _OF_VALUES)
    wrong = _what_is_wrong(text, is_known=code == ErrorCode.INVALID_INPUT, is_of_value=is_of_value)
    return InvalidInputError(_plain(wrong)) if wrong else error


def _what_is_wrong(text: str, *, is_known: bool, is_of_value: bool) -> str:
    """Return what is wrong with the request; empty if the text is about something else.

    Args:
        is_known: Whether the error's code says that the request is wrong.
        is_of_value: Whether its text says that a value of the request is wrong.
    """
    if _LONG_NAME in text:
        return "a name in the request is too long"
    if any(each in text for each in _MALFORMED):
        return text.partition("IoError")[0].rstrip(": ")
    is_of_rust = _RUST.search(text) is not None
    printed = _PRINTED.search(text) if is_of_rust or is_of_value else None
    if printed is not None and (is_of_value or printed[1] in _WRONG_REQUEST):
        return _unescape(printed[2])
    for mark in _REASONS:
        if mark in text:
            return text.rpartition(mark)[2]
    return text if is_of_value or (is_known and is_of_rust) else ""


def _unescape(text: str) -> str:
    """Return a text of Rust without its escapes."""
    return re.sub(r"\\(.)", lambda found: "\n" if found[1] == "n" else found[1], text)


def _plain(text: str) -> str:
    """Return the first line of a text, without places in sources and without categories."""
    reason = _BEFORE_REASON.sub("", _PLACE.sub("", text.partition(_HINT)[0]).strip())
    return _PREFIX.sub("", reason).splitlines()[0]
