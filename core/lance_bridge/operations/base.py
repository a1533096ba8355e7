"""What the groups of operations share: requests as models, errors of the API, identifiers."""

from __future__ import annotations

import functools
import inspect
import typing
from collections.abc import Callable, Sequence
from typing import Any

from lance_namespace import LanceNamespace
from lance_namespace.errors import LanceNamespaceError

from ..catalog import Path
from ..connection import Connection
from ..errors import internal, is_callers_own, is_panic
from ..requests import as_model, parse_namespace
from ..table import Table
from ..tables.collection import Tables

_FIRST_PARAMETERS = ("request", "id")


class Operations(LanceNamespace):
    """Base of every group: a method parses its request, calls what does the work, and answers.

    Each public method of a subclass whose first parameter is `request` or `id` is an operation. It
    takes its request as a model or as a mapping, and raises errors of the API only.
    """

    connection: Connection
    tables: Tables

    def __init_subclass__(cls, **options: Any) -> None:
        super().__init_subclass__(**options)
        for name, function in list(vars(cls).items()):
            if _is_operation(name, function):
                setattr(cls, name, _as_operation(function))

    def _namespace(self, names: Sequence[str] | None) -> Path:
        return parse_namespace(names, self.connection.capabilities)

    def _table(self, names: Sequence[str] | None) -> Path:
        return self.connection.table_path(names)

    def _lance_table(self, names: Sequence[str] | None) -> Table:
        """Load a Lance table: the one catalog call of an operation on its data.

        Raises: InvalidInput, NamespaceNotFound, TableNotFound, InvalidTableState.
        """
        return self.tables.load(self._table(names))


def _is_operation(name: str, function: Any) -> bool:
    if name.startswith("_") or not inspect.isfunction(function):
        return False
    _, *parameters = inspect.signature(function).parameters
    return bool(parameters) and parameters[0] in _FIRST_PARAMETERS


def _as_operation(function: Callable[..., Any]) -> Callable[..., Any]:
    """Wrap a method so that it takes any form of request, and raises errors of the API only."""
    takes_request = "request" in inspect.signature(function).parameters

    @functools.wraps(function)
    def operation(self: Operations, *arguments: Any, **options: Any) -> Any:
        try:
            if not takes_request:
                return function(self, *arguments, **options)
            request, *more = arguments or (options.pop("request"),)
            model = as_model(_request_type(function), request)
            return function(self, model, *more, **options)
        except LanceNamespaceError:
            raise
        except BaseException as error:
            is_failure = isinstance(error, Exception) or is_panic(error)
            if not is_failure or is_callers_own(error):
                raise
            raise internal(function.__name__, error) from error

    return operation


@functools.cache
def _request_type(function: Callable[..., Any]) -> type[Any]:
    """Return the type of an operation's request; resolved at its first call, for a fast import."""
    request_type: type[Any] = typing.get_type_hints(function)["request"]
    return request_type
