"""Identifiers in requests and responses: the catalog's name is their first part.

Whether a field is an identifier depends on its name, at any depth of a model: a batch has a list of
requests, a plan has a query.
"""

from __future__ import annotations

import copy
import re
import typing
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import cache
from typing import Any, TypeVar

from lance_namespace.errors import ErrorCode, LanceNamespaceError
from pydantic import BaseModel

from lance_bridge.dotted_names import first_names
from lance_bridge.errors import display, internal, invalid, is_callers_own, is_panic
from lance_bridge.redaction import redact

ModelT = TypeVar("ModelT", bound=BaseModel)

ID_FIELDS = frozenset({"id", "namespace", "new_namespace_id", "transaction_id"})
"""Fields that hold an identifier if they hold a list; a ``transaction_id`` is often a string."""
_SHOWN = 3
_CATALOG_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_-]{0,127}")


def check_catalog_name(name: str) -> None:
    """Raise an error for a name that no catalog of a federation can have.

    Raises:
        InvalidInputError: (13)
    """
    if not isinstance(name, str) or not _CATALOG_NAME.fullmatch(name):
        raise invalid(
            f"Catalog name {str(name)[:60]!r} must consist of 1 to 128 letters, digits, _ and -, "
            "and not begin with -"
        )


def ids_in(model: BaseModel) -> Iterator[list[str]]:
    """Yield each identifier in a request or a response."""
    for name in _fields_with_ids(type(model)):
        value = getattr(model, name, None)  # a constructed model may not have all fields
        if name in ID_FIELDS and isinstance(value, list):
            yield value
        else:
            for inner in value if isinstance(value, list) else [value]:
                if isinstance(inner, BaseModel):
                    yield from ids_in(inner)


def map_ids(model: ModelT, change: Callable[[list[str]], list[str]]) -> ModelT:
    """Return a copy of a request or a response with each identifier in it changed."""

    def mapped(value: Any) -> Any:
        return map_ids(value, change) if isinstance(value, BaseModel) else value

    changes: dict[str, Any] = {}
    for name in _fields_with_ids(type(model)):
        value = getattr(model, name, None)
        if isinstance(value, list):
            changes[name] = change(value) if name in ID_FIELDS else [mapped(each) for each in value]
        elif isinstance(value, BaseModel):
            changes[name] = mapped(value)
    return model.model_copy(update=changes)


def split(request: ModelT) -> tuple[str, ModelT]:
    """Return the catalog of a request, and the request with that catalog's identifiers.

    Raises:
        InvalidInputError: (13) no identifier, one of the root, or those of several catalogs.
    """
    ids = list(ids_in(request))
    if not ids:
        raise invalid("The request has no identifier: set `id`")
    if not all(ids):
        raise invalid(
            "The request names the root namespace, which holds catalogs and no tables: begin the "
            "identifier with the name of a catalog"
        )
    for name in (names := {each[0] for each in ids}):
        check_catalog_name(name)
    if len(names) > 1:
        raise invalid(
            f"One request works in one catalog: {first_names(_first_ids(ids), _SHOWN)} are in "
            f"different ones ({', '.join(sorted(names))})"
        )
    [catalog] = names
    return catalog, map_ids(request, lambda each: each[1:])


def _first_ids(ids: list[list[str]]) -> list[str]:
    """Return the first identifier of each catalog, formatted for messages."""
    firsts: dict[str, str] = {}
    for each in ids:
        firsts.setdefault(each[0], f"'{display(each)}'")
    return list(firsts.values())


@cache
def _fields_with_ids(model: type[BaseModel]) -> tuple[str, ...]:
    """Return the fields that are an identifier, or hold models with one at any depth."""
    return tuple(
        name
        for name, field in model.model_fields.items()
        if name in ID_FIELDS
        or any(
            not ID_FIELDS.isdisjoint(each.model_fields)
            for each in _types_below(field.annotation, set())
        )
    )


def _types_below(annotation: Any, seen: set[type[BaseModel]]) -> set[type[BaseModel]]:
    """Return the types of models in an annotation and in their fields; types can be recursive."""
    if not (isinstance(annotation, type) and issubclass(annotation, BaseModel)):
        for inner in typing.get_args(annotation):
            _types_below(inner, seen)
    elif annotation not in seen:
        seen.add(annotation)
        for field in annotation.model_fields.values():
            _types_below(field.annotation, seen)
    return seen


# -- errors ----------------------------------------------------------------------------------------


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
    end, once, unless it is about the catalog as such.
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
    if f"catalog '{catalog}'" in text:
        return text
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
