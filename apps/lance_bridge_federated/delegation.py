"""Delegates operations of the trait to catalogs, with methods generated from the trait itself.

A new operation of the trait is delegated as soon as the trait has it. All fields of its models
except identifiers and page tokens are passed on unchanged.
"""

from __future__ import annotations

import functools
import inspect
import typing
from collections.abc import Callable, Iterator
from typing import Any, Protocol, TypeVar

from lance_namespace import LanceNamespace

NamespaceT = TypeVar("NamespaceT", bound="type[Delegating]")


class Delegating(Protocol):
    """A namespace that has `delegate`."""

    def delegate(self, operation: str, request: Any, *rows: Any) -> Any:
        """Send a request to the catalog that it names; return the response."""


def operations() -> Iterator[str]:
    """Yield the operations of the trait: its methods with a ``request`` parameter."""
    for name, function in inspect.getmembers(LanceNamespace, inspect.isfunction):
        if not name.startswith("_") and "request" in inspect.signature(function).parameters:
            yield name


@functools.cache
def request_type(operation: str) -> type[Any]:
    """Return the type of an operation's request."""
    found: type[Any] = typing.get_type_hints(getattr(LanceNamespace, operation))["request"]
    return found


def delegates(cls: NamespaceT) -> NamespaceT:
    """Add each operation of the trait that a class does not define, as a call of `delegate`."""
    for name in operations():
        if name not in vars(cls):
            setattr(cls, name, _create_method(name))
    return cls


def _create_method(name: str) -> Callable[..., Any]:
    function = getattr(LanceNamespace, name)
    if "request_data" in inspect.signature(function).parameters:

        @functools.wraps(function)
        def with_rows(self: Delegating, request: Any, request_data: Any) -> Any:
            return self.delegate(name, request, request_data)

        return with_rows

    @functools.wraps(function)
    def operation(self: Delegating, request: Any) -> Any:
        return self.delegate(name, request)

    return operation
