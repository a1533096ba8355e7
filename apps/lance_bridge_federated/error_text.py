"""Errors of a catalog, as the federation raises them: same type and code, with the full names."""

from __future__ import annotations

import copy
import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import TypeVar

from lance_namespace.errors import ErrorCode, LanceNamespaceError

from lance_bridge.errors import display, internal, is_callers_own, is_panic
from lance_bridge.redaction import redact

ErrorT = TypeVar("ErrorT", bound=LanceNamespaceError)

_JOINERS = (".", "$")
"""The separators of names in messages: ours, and pylance's."""
_LONGEST = 300


@contextmanager
def errors_of(catalog: str, operation: str, ids: Sequence[Sequence[str]]) -> Iterator[None]:
    """Add a catalog's name to the messages of the errors that it raises.

    Args:
        operation: For the message of an error that is not the API's; it becomes Internal (18).
        ids: The identifiers of the request, as sent to the catalog.
    """
    try:
        yield
    except LanceNamespaceError as error:
        raise with_text(error, qualify(str(error), catalog, ids)) from error
    except BaseException as error:
        is_failure = isinstance(error, Exception) or is_panic(error)
        if not is_failure or is_callers_own(error):
            raise
        wrapped = internal(operation, error)
        raise with_text(wrapped, qualify(str(wrapped), catalog, ids)) from error


def with_text(error: ErrorT, text: str) -> ErrorT:
    """Return a copy of an error with another message."""
    changed = copy.copy(error)
    changed.args = (text, *error.args[1:])
    return changed


def qualify(text: str, catalog: str, ids: Sequence[Sequence[str]]) -> str:
    """Return a message with the catalog's name before each name of the request in it.

    Only quoted text, and text after a colon, is a name. A message without names gets them at its
    end, once.
    """
    paths = {tuple(each[:end]) for each in ids for end in range(1, len(each) + 1)}
    names = {joiner.join(path): joiner for path in paths for joiner in _JOINERS}
    if names:
        longest_first = sorted(names, key=len, reverse=True)
        choices = "|".join(re.escape(name) for name in longest_first)
        name = rf"(?:{choices})(?:[.$][\w-]+)*"  # a rename's new name is below one of them
        pattern = re.compile(rf"(?<=')(?:{name})(?=')|(?<=: )(?:{name})(?=[.,;:]? |$)", re.I)
        full, count = pattern.subn(lambda found: _join(catalog, found[0]), text)
        if count:
            return full
    suffix = f" (in {', '.join(sorted({display((catalog, *each)) for each in ids}))})"
    return text.removesuffix(suffix) + suffix


def _join(catalog: str, name: str) -> str:
    joiner = "$" if "$" in name and "." not in name else "."
    return f"{catalog}{joiner}{name}"


def describe(error: LanceNamespaceError) -> str:
    """Return an error's code and message for a response, without secrets."""
    code = ErrorCode(error.code)
    text = " ".join(redact(str(error)).split())[:_LONGEST]
    return f"{code.name} ({code.value}): {text}"
