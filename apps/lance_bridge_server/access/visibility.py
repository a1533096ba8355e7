"""Responses about objects that a principal may not see: the same as for missing objects."""

from __future__ import annotations

import logging
import uuid
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

import lance_namespace as api
from lance_namespace import LanceNamespace
from lance_namespace.errors import (
    InvalidInputError,
    InvalidTableStateError,
    LanceNamespaceError,
    NamespaceNotEmptyError,
    NamespaceNotFoundError,
    PermissionDeniedError,
    TableAlreadyExistsError,
    TableNotFoundError,
)

from lance_bridge.credentials import Caller
from lance_bridge.dotted_names import UNAVAILABLE
from lance_bridge.errors import (
    ProtectedError,
    display,
    names_other_entries,
    namespace_not_empty,
    table_already_exists,
)
from lance_bridge.paging import names_of_all_pages
from lance_bridge_federated.listing import visible_token

from ..operations import Body, Call, Operation
from .authentication import Principal
from .authorizer import AllowAll, Authorizer, HiddenError, not_found
from .permissions import CREATING, Access, Names, split_name

# -- hidden objects --------------------------------------------------------------------------------


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
    if isinstance(error, ProtectedError):
        return error
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


# -- listings --------------------------------------------------------------------------------------


_LARGEST_PAGE = 1000
"""The largest page that the catalog is asked for, unless the client asks for a larger one."""


@dataclass(frozen=True)
class VisibleListing:
    """A listing of a namespace, from which hidden names are removed before it is split into pages.

    Hidden names affect neither the size of a page nor whether another one follows. Page tokens are
    the catalog's, each for the position after a visible name. The pages requested from the catalog
    grow, so that a listing with mostly hidden names takes few calls.

    Clients can read and change tokens. Tokens contain no names of hidden catalogs, and a token that
    names a hidden catalog is handled as if that catalog did not exist.
    """

    authorizer: Authorizer
    principal: Principal
    operation: str
    """``list_namespaces``, ``list_tables`` or ``list_all_tables``."""
    parent: Names
    list_page: Callable[[Any], Any]
    """The method of the namespace."""

    def page(self, request: Any) -> Any:
        """Return one page, like the namespace's method. Raises what that raises."""
        kept: list[str] = []
        limit, last = request.limit, None
        while True:
            answer = self._list_page(request)
            limit = limit or max(1, len(self._names(answer)))
            found = self._visible_names(answer)
            room = limit - len(kept)
            if found[:room]:
                last = (request, answer, len(kept))
            kept += found[:room]
            if len(found) > room and last is not None:
                return self._cut_page(kept, *last)
            if not answer.page_token:
                return self._with_names(answer, kept)
            request = _next_request(request, answer.page_token, limit)

    def _list_page(self, request: Any) -> Any:
        try:
            return self.list_page(request)
        except InvalidInputError:
            token = request.page_token or ""
            changed = visible_token(token, self._is_visible, skips_hidden=True)
            if changed == token:
                raise
            return self.list_page(request.model_copy(update={"page_token": changed}))

    def _cut_page(self, kept: list[str], request: Any, answer: Any, before: int) -> Any:
        """End a page after its last name.

        Args:
            request: The request for the catalog's page with that name.
            answer: That page.
            before: How many names come from earlier pages of the catalog.
        """
        names = self._names(answer)
        if names[-1] == kept[-1]:
            return self._with_names(answer, kept)
        size = names.index(kept[-1]) + 1
        again = self._list_page(request.model_copy(update={"limit": size}))
        # Names may have been added or dropped concurrently.
        return self._with_names(again, [*kept[:before], *self._visible_names(again)])

    def _visible_names(self, answer: Any) -> list[str]:
        paths = {
            name: (*self.parent, *split_name(self.operation, name)) for name in self._names(answer)
        }
        seen = set(self.authorizer.filter(self.principal, self.operation, list(paths.values())))
        return [name for name, path in paths.items() if path in seen]

    @property
    def _field(self) -> str:
        return "namespaces" if self.operation == "list_namespaces" else "tables"

    def _names(self, answer: Any) -> list[str]:
        names: list[str] = getattr(answer, self._field)
        return names

    def _with_names(self, answer: Any, names: list[str]) -> Any:
        context = {
            key: text
            for key, text in (answer.context or {}).items()
            if not key.startswith(UNAVAILABLE) or self._is_visible(key.removeprefix(UNAVAILABLE))
        }
        token = visible_token(answer.page_token or "", self._is_visible)
        changed = {self._field: names, "context": context or None, "page_token": token or None}
        return answer.model_copy(update=changed)

    def _is_visible(self, catalog: str) -> bool:
        """Return whether a catalog is visible. Dots separate the catalogs of nested federations."""
        path = tuple(catalog.split("."))
        return bool(self.authorizer.filter(self.principal, "list_namespaces", [path]))


def _next_request(request: Any, token: str, limit: int) -> Any:
    size = min((request.limit or limit) * 2, max(limit, _LARGEST_PAGE))
    return request.model_copy(update={"page_token": token, "limit": size})


# -- cascade ---------------------------------------------------------------------------------------


def authorize_cascade(
    authorizer: Authorizer,
    principal: Principal,
    call: Call,
    accesses: Sequence[Access],
    namespace: LanceNamespace,
) -> None:
    """Check that a principal may drop everything in a namespace, if a call drops it with Cascade.

    Raises:
        PermissionDeniedError: (15) it may not drop an object, which may be hidden from it.
        LanceNamespaceError: What listing raises.
    """
    behavior = str(call.fields.get("behavior") or "").lower()
    if behavior != "cascade":
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


# -- storage options -------------------------------------------------------------------------------


_READING = {"query_table"}
_WRITING = {"insert_into_table", "delete_from_table"}
"""Write access to a table's files is enough to delete its rows."""


def caller_of(authorizer: Authorizer, principal: Principal, accesses: Sequence[Access]) -> Caller:
    """Return the caller, and its rights, for whom credentials for a request's tables are vended.

    Credentials that write can also read: they need both rights on all of the tables.
    """

    def allows(write: bool) -> bool:
        needed = _READING | _WRITING if write else _READING
        return all(_may(authorizer, principal, needed, each) for each in accesses)

    return Caller(principal.name, allows)


def hide_storage_options(
    authorizer: Authorizer, principal: Principal, accesses: Sequence[Access], result: Any
) -> Any:
    """Remove storage options from a result if the principal may not use them.

    Those of a description are for reading the table, and those of a new table are for writing it.
    `caller_of` has limited the credentials of our own namespaces; this limits those of others.
    """
    answers = [getattr(each, "declare_table", None) for each in getattr(result, "results", ())]
    if not any(getattr(each, "storage_options", None) for each in (result, *answers)):
        return result
    for access in accesses:
        needed = _WRITING if access.operation in CREATING else _READING
        if not _may(authorizer, principal, needed, access):
            for each in (result, *answers):
                if each is not None and "storage_options" in type(each).model_fields:
                    each.storage_options = None
            return result
    return result


def _may(
    authorizer: Authorizer, principal: Principal, operations: Collection[str], access: Access
) -> bool:
    return all(authorizer.check(principal, each, access.path).allowed for each in operations)


def no_store(content: Any) -> dict[str, str]:
    """Return the header that prevents caching if a response has storage options."""
    if not isinstance(content, dict):
        return {}
    answers = [content, *(each.get("declare_table") or {} for each in content.get("results", ()))]
    has_options = any("storage_options" in each for each in answers if isinstance(each, dict))
    return {"Cache-Control": "no-store"} if has_options else {}
