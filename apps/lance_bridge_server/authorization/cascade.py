"""Authorization of DropNamespace with Cascade, which drops objects not named in the request."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from typing import Any

import lance_namespace as api
from lance_namespace import LanceNamespace
from lance_namespace.errors import InvalidInputError, NamespaceNotFoundError, PermissionDeniedError

from lance_bridge.errors import display
from lance_bridge.paging import names_of_all_pages

from ..operations import Call
from ..principals import Principal
from .accesses import Access, Names
from .port import Authorizer


def authorize_cascade(
    authorizer: Authorizer,
    principal: Principal,
    call: Call,
    accesses: Sequence[Access],
    namespace: LanceNamespace,
) -> None:
    """Check that a principal may drop everything in a namespace, if the call is such a drop.

    Raises:
        PermissionDeniedError: (15) it may not drop an object, which may be hidden from it.
        LanceNamespaceError: What listing raises.
    """
    behavior = str(call.fields.get("behavior") or "").lower()
    if call.operation.name != "drop_namespace" or behavior != "cascade":
        return
    path = accesses[0].path
    for each in _contents(namespace, path):
        if not authorizer.check(principal, each.operation, each.path).allowed:
            raise PermissionDeniedError(
                f"{principal.name} is not allowed to drop '{display(path)}' with Cascade: it may "
                "not drop everything in it"
            )


def _contents(namespace: LanceNamespace, path: Names) -> Iterator[Access]:
    for name in _list_names(namespace.list_tables, api.ListTablesRequest(id=list(path)), "tables"):
        yield Access("drop_table", (*path, name))
    request = api.ListNamespacesRequest(id=list(path))
    for name in _list_names(namespace.list_namespaces, request, "namespaces"):
        yield Access("drop_namespace", (*path, name))
        yield from _contents(namespace, (*path, name))


def _list_names(list_page: Callable[[Any], Any], request: Any, field: str) -> Iterator[str]:
    # The level has no objects of this type, or the namespace does not exist.
    with suppress(InvalidInputError, NamespaceNotFoundError):
        yield from names_of_all_pages(list_page, request, field)
