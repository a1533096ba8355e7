"""Responses about objects that a principal may not see: the same as for missing objects."""

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
    TableAlreadyExistsError,
    TableNotFoundError,
)

from lance_bridge.errors import (
    display,
    names_other_entries,
    namespace_not_empty,
    table_already_exists,
)

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
    """Handle a request for a hidden object as if the object did not exist.

    The catalog is called with a name that no object has, so that the call does the same work and
    takes the same time. A catalog that is hidden itself is not called.

    Args:
        method: Runs the operation.

    Raises:
        NamespaceNotFoundError: (1)
        TableNotFoundError: (4)
        LanceNamespaceError: What the operation raises for any object.
    """
    path, position = hidden.access.path, hidden.position
    absent, asked = f"absent_{uuid.uuid4().hex[:16]}", list(path)
    asked[position] = absent
    try:
        if _is_harmless(operation):
            names = [*asked, *_transaction_suffix(operation, request)]
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
    """Return whether an operation changes nothing if its object does not exist."""
    return operation.has_id and operation.body is not Body.ROWS and operation.name not in CREATING


def _transaction_suffix(operation: Operation, request: Any) -> list[str]:
    """Return the part of an identifier after the table's names."""
    return list(request.id[-1:]) if operation.name.endswith("_transaction") else []


def hide_other_objects(
    authorizer: Authorizer, error: LanceNamespaceError, accesses: Sequence[Access]
) -> LanceNamespaceError:
    """Return an operation's error without details of other objects, which may be hidden.

    An object that was not found gets the same error as in `authorize`, because the messages of
    namespaces differ. In a request with several objects, only errors that are marked as naming
    others are replaced, and with `AllowAll` no error is.
    """
    if isinstance(authorizer, AllowAll) or not accesses:
        return error
    if len({each.path for each in accesses}) == 1:
        return _about_one_object(error, accesses[0])
    return _without_other_entries(error, accesses[0]) if names_other_entries(error) else error


def _about_one_object(error: LanceNamespaceError, access: Access) -> LanceNamespaceError:
    """Return the error of a request with one object without details of others."""
    if isinstance(error, TableNotFoundError) and access.is_table:
        return not_found(access)
    if isinstance(error, NamespaceNotFoundError):
        return not_found(access, is_parent_missing=True)
    if isinstance(error, NamespaceNotEmptyError):
        _log.info("%s", error)
        return namespace_not_empty(access.path, "Drop what it holds first")
    is_dropping = access.operation in _DROPPING
    if names_other_entries(error) or (is_dropping and isinstance(error, InvalidTableStateError)):
        return _without_other_entries(error, access)
    return error


def _without_other_entries(error: LanceNamespaceError, access: Access) -> LanceNamespaceError:
    """Log an error that names other entries, and return one of the same type without them."""
    _log.warning("%s", error)
    if access.operation in _DROPPING:
        return type(error)(
            f"'{display(access.path)}' cannot be dropped with its data; the server's log has the "
            "reason. Deregister it, or ask the server's operator"
        )
    reason = (
        "its location overlaps that of another entry, or could not be compared with those of all "
        "entries; the server's log names the entry"
    )
    if isinstance(error, TableAlreadyExistsError):
        return table_already_exists(access.path, reason)
    return type(error)(f"'{display(access.path)}' cannot be used: {reason}")
