"""Answers about what a principal may not see: the same as for what does not exist."""

from __future__ import annotations

import logging
import uuid
from collections.abc import Callable, Sequence
from typing import Any

import lance_namespace as api
from lance_namespace import LanceNamespace
from lance_namespace.errors import (
    InvalidTableStateError,
    LanceNamespaceError,
    NamespaceNotEmptyError,
    NamespaceNotFoundError,
    TableNotFoundError,
)

from lance_bridge.errors import display, namespace_not_empty

from ..operations import Body, Operation
from .accesses import CREATING, Access
from .port import AllowAll, Authorizer, HiddenError, not_found

_log = logging.getLogger(__name__)

_DROPPING = ("drop_table", "drop_namespace")


def answer_hidden(
    namespace: LanceNamespace,
    method: Callable[..., Any],
    operation: Operation,
    request: Any,
    hidden: HiddenError,
) -> Any:
    """Answer a request for a hidden object as one for an object that does not exist.

    The catalog does what it does for the latter, in the same time: it is asked for a name that
    nothing has. A catalog that is hidden itself is not asked.

    Args:
        method: What carries out the operation.

    Raises:
        NamespaceNotFoundError: (1)
        TableNotFoundError: (4)
        LanceNamespaceError: What the operation raises whatever it is for.
    """
    path, position = hidden.access.path, hidden.position
    absent, asked = f"absent_{uuid.uuid4().hex[:16]}", list(path)
    asked[position] = absent
    try:
        if _is_harmless(operation):
            names = [*asked, *_transaction(operation, request)]
            return method(request.model_copy(update={"id": names}))
        _look_up(namespace, asked, is_table=hidden.access.is_table)
    except (NamespaceNotFoundError, TableNotFoundError):
        pass
    except LanceNamespaceError as error:
        raise type(error)(str(error).replace(absent, path[position])) from None
    raise hidden.answer


def _look_up(namespace: LanceNamespace, names: list[str], *, is_table: bool) -> None:
    if is_table:
        namespace.table_exists(api.TableExistsRequest(id=names))
    else:
        namespace.namespace_exists(api.NamespaceExistsRequest(id=names))


def _is_harmless(operation: Operation) -> bool:
    """Return whether an operation can change nothing where its object does not exist."""
    return operation.has_id and operation.body is not Body.ROWS and operation.name not in CREATING


def _transaction(operation: Operation, request: Any) -> list[str]:
    """Return the part of an identifier that follows the table's."""
    return list(request.id[-1:]) if operation.name.endswith("_transaction") else []


def without_others(
    authorizer: Authorizer, error: LanceNamespaceError, accesses: Sequence[Access]
) -> LanceNamespaceError:
    """Return an operation's error without what it says about other, perhaps hidden, objects.

    What was not found gets the error of `authorize`, as namespaces word theirs differently; the
    error of a request with several objects stays. With `AllowAll`, every error stays.
    """
    if isinstance(authorizer, AllowAll) or len({each.path for each in accesses}) != 1:
        return error
    access = accesses[0]
    if isinstance(error, TableNotFoundError) and access.is_table:
        return not_found(access)
    if isinstance(error, NamespaceNotFoundError):
        return not_found(access, is_parent_missing=True)
    if isinstance(error, NamespaceNotEmptyError):
        _log.info("%s", error)
        return namespace_not_empty(access.path, "Drop what it holds first")
    if isinstance(error, InvalidTableStateError) and access.operation in _DROPPING:
        _log.warning("%s", error)
        return InvalidTableStateError(
            f"'{display(access.path)}' cannot be dropped with its data; the server's log has the "
            "reason. Deregister it, or ask the server's operator"
        )
    return error
