"""Who may do what: the port that policies stand behind, and its use by the gateway."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from lance_namespace.errors import PermissionDeniedError

from lance_bridge.errors import display, namespace_not_found, table_not_found

from .calls import DEFAULT_DELIMITER, Call
from .principals import Principal

Names = tuple[str, ...]


@dataclass(frozen=True)
class Decision:
    """Whether something is allowed, and what decided it."""

    allowed: bool
    reasons: tuple[str, ...] = ()
    """Names of the policies that decided; empty where none applied."""
    visible: bool = True
    """Whether the principal may know that the object exists. What it may not is not found."""


class Authorizer(Protocol):
    """Decides what principals may do. Safe to share between threads."""

    def check(self, principal: Principal, operation: str, path: Names) -> Decision:
        """Decide whether a principal may do an operation on a namespace or table.

        Args:
            operation: The name of the method of `lance_namespace.LanceNamespace`.
            path: The names down to the object; the root is empty.
        """

    def filter(
        self, principal: Principal, operation: str, paths: Sequence[Names]
    ) -> Sequence[Names]:
        """Return those of the objects in a listing that a principal may see."""


class AllowAll:
    """Allows everything."""

    def check(self, principal: Principal, operation: str, path: Names) -> Decision:  # noqa: ARG002
        return Decision(True)

    def filter(
        self,
        principal: Principal,  # noqa: ARG002
        operation: str,  # noqa: ARG002
        paths: Sequence[Names],
    ) -> Sequence[Names]:
        return paths


def authorize(authorizer: Authorizer, principal: Principal, call: Call) -> None:
    """Check every object that a call names.

    Raises:
        PermissionDeniedError: (15) the principal may see the object, but not do this.
        NamespaceNotFoundError: (1) or
        TableNotFoundError: (4) it may not know that the object exists.
    """
    for operation, path in objects_of(call):
        decision = authorizer.check(principal, operation, path)
        if decision.allowed:
            continue
        if not decision.visible:
            raise _not_found(operation, path)
        shown = f"'{display(path)}'" if path else "the root namespace"
        raise PermissionDeniedError(f"{principal.name} may not do {operation} on {shown}")


def objects_of(call: Call) -> Iterator[tuple[str, Names]]:
    """Yield every object that a call names, with the operation to check on it."""
    name, fields = call.operation.name, call.fields
    yield from ((name, tuple(path)) for path in _ids(call))
    if name == "create_table" and fields.get("location"):
        yield "declare_table", tuple(call.id or ())
    if name == "rename_table":
        path = tuple(call.id or ())
        namespace = fields.get("new_namespace_id")
        parent = path[:-1] if namespace is None else tuple(namespace)
        yield "declare_table", (*parent, str(fields.get("new_table_name", "")))


def _ids(call: Call) -> Iterator[Sequence[str]]:
    """Yield the call's own identifier, and those of the entries of a batch."""
    entries = call.fields.get("entries") or call.fields.get("operations") or ()
    if call.operation.has_id or not entries:
        yield call.id or ()
        return
    for entry in entries:
        parts = [entry, *(each for each in entry.values() if isinstance(each, dict))]
        yield from (each["id"] for each in parts if isinstance(each.get("id"), list))


def _not_found(operation: str, path: Names) -> Exception:
    if "namespace" in operation or operation in ("list_tables", "list_all_tables"):
        return namespace_not_found(path)
    return table_not_found(path)


def visible_page(
    authorizer: Authorizer,
    principal: Principal,
    call: Call,
    request: Any,
    list_page: Callable[[Any], Any],
) -> Any:
    """List, and leave out what a principal may not see before pages are cut.

    Pages of the catalog are read until one page is full, so that its size does not say how much
    was left out.
    """
    names = "namespaces" if call.operation.name == "list_namespaces" else "tables"
    parent, kept = tuple(call.id or ()), []
    while True:
        answer = list_page(request)
        paths = {name: (*parent, *_parts(call, name)) for name in getattr(answer, names)}
        seen = set(authorizer.filter(principal, call.operation.name, list(paths.values())))
        kept += [name for name, path in paths.items() if path in seen]
        left = None if request.limit is None else request.limit - len(kept)
        if not answer.page_token or left is None or left <= 0:
            return answer.model_copy(update={names: kept})
        request = request.model_copy(update={"page_token": answer.page_token, "limit": left})


def _parts(call: Call, name: str) -> Sequence[str]:
    if call.operation.name == "list_all_tables":
        return name.split(DEFAULT_DELIMITER)
    return (name,)
