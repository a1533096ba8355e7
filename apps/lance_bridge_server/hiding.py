"""Answers about what a principal may not see: the same as for what does not exist."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import lance_namespace as api
from lance_namespace import LanceNamespace
from lance_namespace.errors import (
    LanceNamespaceError,
    NamespaceNotFoundError,
    ServiceUnavailableError,
    TableNotFoundError,
    ThrottlingError,
)

from .accesses import CREATING, Access
from .authorization import Authorizer, HiddenError, not_found
from .calls import Call
from .principals import Principal

_PASSED_ON = (ServiceUnavailableError, ThrottlingError)


def answer_hidden(namespace: LanceNamespace, call: Call, hidden: HiddenError) -> Any:
    """Answer a request for a hidden object as if it did not exist, after as many catalog calls.

    Raises:
        NamespaceNotFoundError: (1)
        TableNotFoundError: (4)
        ServiceUnavailableError: (17) the catalog does not answer.
        ThrottlingError: (21) it refuses calls for now.
    """
    path = list(hidden.access.path)
    try:
        if hidden.access.is_table:
            namespace.table_exists(api.TableExistsRequest(id=path))
        else:
            namespace.namespace_exists(api.NamespaceExistsRequest(id=path))
    except _PASSED_ON:
        raise
    except LanceNamespaceError:
        pass  # What it says depends on the object.
    if call.operation.name == "drop_namespace" and _skips_missing(call):
        return api.DropNamespaceResponse(properties={})
    raise hidden.answer from None


def _skips_missing(call: Call) -> bool:
    return str(call.fields.get("mode") or "").lower() == "skip"


def same_not_found(error: LanceNamespaceError, accesses: Sequence[Access]) -> LanceNamespaceError:
    """Return the error of `authorize` for an object that a namespace did not find.

    Namespaces word theirs differently. The error of a request with several objects stays.
    """
    if len(accesses) != 1:
        return error
    if isinstance(error, TableNotFoundError) and accesses[0].is_table:
        return not_found(accesses[0])
    if isinstance(error, NamespaceNotFoundError):
        return not_found(accesses[0], is_parent_missing=True)
    return error


def hide_storage_options(
    authorizer: Authorizer, principal: Principal, accesses: Sequence[Access], result: Any
) -> Any:
    """Return an answer without storage options that let a principal do more than it may.

    Those of a description let it read the table's files, those of a table that was created write
    them.
    """
    answers = [getattr(each, "declare_table", None) for each in getattr(result, "results", ())]
    if not any(getattr(each, "storage_options", None) for each in (result, *answers)):
        return result
    for access in accesses:
        needed = "insert_into_table" if access.operation in CREATING else "query_table"
        if not authorizer.check(principal, needed, access.path).allowed:
            for each in (result, *answers):
                if each is not None and "storage_options" in type(each).model_fields:
                    each.storage_options = None
            return result
    return result
