"""The port of authorizers, and its use by the gateway."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Protocol

from lance_namespace.errors import LanceNamespaceError, PermissionDeniedError

from lance_bridge.errors import display, namespace_not_found, table_not_found

from .authentication import Principal
from .permissions import CREATING, Access, Names


@dataclass(frozen=True)
class Decision:
    """Whether an operation is allowed, and by which policies."""

    allowed: bool
    reasons: tuple[str, ...] = ()
    """Names of the policies that decided; empty if none applied."""
    visible: bool = True
    """Whether the principal may know that the object exists. If not, it counts as not found."""


class Authorizer(Protocol):
    """Decides what principals may do. Safe to share between threads."""

    def check(
        self, principal: Principal, operation: str, path: Names, location: str | None = None
    ) -> Decision:
        """Decide whether a principal may do an operation on a namespace or table.

        The decision must not depend on whether the object exists.

        Args:
            operation: The name of a method of `lance_namespace.LanceNamespace`; ``set_location`` or
                ``set_namespace_location`` for a location in the request; or a right of the health
                page, one of `accesses.SERVER_RIGHTS`.
            path: The names down to the object; the root is empty.
            location: That location, which `lance_bridge.locations` has checked.
        """

    def filter(
        self, principal: Principal, operation: str, paths: Sequence[Names]
    ) -> Sequence[Names]:
        """Return the objects of a listing that a principal may see.

        Args:
            operation: ``list_namespaces``, ``list_tables`` or ``list_all_tables``.
        """


class AllowAll:
    """Allows everything."""

    def check(
        self,
        principal: Principal,  # noqa: ARG002
        operation: str,  # noqa: ARG002
        path: Names,  # noqa: ARG002
        location: str | None = None,  # noqa: ARG002
    ) -> Decision:
        return Decision(True)

    def filter(
        self,
        principal: Principal,  # noqa: ARG002
        operation: str,  # noqa: ARG002
        paths: Sequence[Names],
    ) -> Sequence[Names]:
        return paths


class HiddenError(Exception):
    """A request is for an object that its principal may not see."""

    def __init__(self, access: Access, answer: LanceNamespaceError, position: int) -> None:
        """Create the error.

        Args:
            answer: The error of a request for an object that does not exist.
            position: The index of the first name in the access' path that is hidden.
        """
        super().__init__(str(answer))
        self.access = access
        self.answer = answer
        self.position = position


def authorize(
    authorizer: Authorizer,
    principal: Principal,
    accesses: Iterable[Access],
    record: Callable[[Access, Decision], None],
) -> None:
    """Check all accesses of a request.

    Args:
        record: Called with each decision.

    Raises:
        PermissionDeniedError: (15) the principal may know the object, but not do this.
        HiddenError: It may not know that the object exists.
    """
    for access in accesses:
        decision = authorizer.check(principal, access.operation, access.path, access.location)
        if decision.allowed and access.operation in CREATING and not decision.visible:
            # The response would reveal whether the object exists.
            decision = Decision(False, decision.reasons, visible=False)
        record(access, decision)
        if not decision.allowed:
            raise _refusal(authorizer, principal, access, decision)


def _refusal(
    authorizer: Authorizer, principal: Principal, access: Access, decision: Decision
) -> Exception:
    if not decision.visible:
        path = access.path
        if not sees_namespace(authorizer, principal, path[:-1]):
            parents = enumerate(path[:end] for end in range(1, len(path)))
            hidden = (i for i, each in parents if not sees_namespace(authorizer, principal, each))
            position = next(hidden, len(path) - 2)  # policies may have changed since
            return HiddenError(access, not_found(access, is_parent_missing=True), position)
        if access.operation not in CREATING:
            return HiddenError(access, not_found(access), len(path) - 1)
    shown = f"'{display(access.path)}'" if access.path else "the root namespace"
    return PermissionDeniedError(
        f"{principal.name} is not allowed to perform {access.operation} on {shown}"
    )


def sees_namespace(authorizer: Authorizer, principal: Principal, path: Names) -> bool:
    """Return whether a principal may know that a namespace exists."""
    return not path or authorizer.check(principal, "describe_namespace", path).visible


def not_found(access: Access, *, is_parent_missing: bool = False) -> LanceNamespaceError:
    """Return the error of a request for a missing object, or an object in a missing namespace.

    A namespace in a missing one is itself not found, except in an operation that creates it.
    """
    if access.is_table and not is_parent_missing:
        return table_not_found(access.path)
    if access.is_table or access.operation in CREATING:
        return namespace_not_found(access.path[:-1])
    return namespace_not_found(access.path)
