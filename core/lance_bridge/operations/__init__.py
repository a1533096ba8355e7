"""The operations of a namespace, in groups, and the base of the groups."""

from __future__ import annotations

import inspect
from collections.abc import Sequence
from typing import Any

from lance_namespace import LanceNamespace

from ..catalog import Path
from ..connection import Connection
from ..requests import Ref, as_operation, parse_namespace
from ..table import Table
from ..tables.collection import Tables

_FIRST_PARAMETERS = ("request", "id")


class Operations(LanceNamespace):
    """Base of every group: a method parses its request, delegates, and returns a response.

    Each public method of a subclass whose first parameter is `request` or `id` is an operation. It
    takes its request as a model or as a mapping, and raises errors of the API only.
    """

    connection: Connection
    tables: Tables

    def __init_subclass__(cls, **options: Any) -> None:
        super().__init_subclass__(**options)
        for name, function in list(vars(cls).items()):
            if _is_operation(name, function):
                setattr(cls, name, as_operation(function))

    def _table_at(self, request: Any, version: int | None = None) -> tuple[Table, Ref]:
        """Return the table that a request names, and its branch, which is parsed first."""
        ref = Ref.of(version, branch=request.branch)
        return self.tables.load_by_id(request.id), ref

    def _namespace(self, names: Sequence[str] | None) -> Path:
        return parse_namespace(names, self.connection.capabilities)


def _is_operation(name: str, function: Any) -> bool:
    if name.startswith("_") or not inspect.isfunction(function):
        return False
    _, *parameters = inspect.signature(function).parameters
    return bool(parameters) and parameters[0] in _FIRST_PARAMETERS
