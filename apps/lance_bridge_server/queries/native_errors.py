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
)

_RUST = re.compile(r"location: Location \{|/rust/[\w/-]+\.rs:\d+|/library/[\w/-]+\.rs:\d+")
_TEXT = r'"((?:[^"\\]|\\.)*)"'
_MISSING = re.compile(rf"FieldNotFound \{{ field: Column \{{ relation: [^\"]*?name: {_TEXT}")
_NAMED = re.compile(r"No field named ([^.]+|\"[^\"]+\")\.|column (\S+) does not exist in schema")
_PRINTED = re.compile(rf"\b(\w+) \{{ (?:source|message): (?:\w+\()?{_TEXT}")
_PLACE = re.compile(r",? /[\w/.-]+\.rs:\d+:\d+")
_PREFIX = re.compile(
    r"^(?:(?:Invalid input|Invalid user input|Error during planning|Execution error|Arrow error"
    r"|Error applying filter expression to batch|Error resolving filter expression): )+"
)
_WRONG_REQUEST = ("InvalidInput", "Execution", "Index", "SchemaMismatch")
_ON_A_ROW = "LanceError(Arrow): "
_HINT = "\n\tCandidate functions"


def readable_error(error: LanceNamespaceError) -> LanceNamespaceError:
    """Return an error with the code and the text of what is wrong with the request.

    Returns:
        TableColumnNotFound (12), or InvalidInput (13); the error itself if it has another cause.
    """
    text = str(error)
    if error.code not in (ErrorCode.INTERNAL, ErrorCode.INVALID_INPUT) or not _RUST.search(text):
        return error
    missing = _MISSING.search(text) or _NAMED.search(text)
    if missing is not None:
        name = next(filter(None, missing.groups()))
        return TableColumnNotFoundError(f"There is no column {_unescape(name)}")
    printed = _PRINTED.search(text)
    if printed is not None and printed[1] in _WRONG_REQUEST:
        return InvalidInputError(_plain(_unescape(printed[2])))
    if error.code == ErrorCode.INVALID_INPUT or _ON_A_ROW in text:
        return InvalidInputError(_plain(text.rpartition(_ON_A_ROW)[2]))
    return error


def _unescape(text: str) -> str:
    """Return a text of Rust without its escapes."""
    return re.sub(r"\\(.)", lambda found: "\n" if found[1] == "n" else found[1], text)


def _plain(text: str) -> str:
    """Return the first line of a text, without places in sources and without categories."""
    return _PREFIX.sub("", _PLACE.sub("", text.partition(_HINT)[0]).strip()).splitlines()[0]
