"""Authorizers: their port, its use by the gateway, authorizers by name, and ``serve --explain``."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from importlib.metadata import entry_points
from pathlib import Path
from typing import Any, Protocol

from lance_namespace import LanceNamespace
from lance_namespace.errors import LanceNamespaceError, PermissionDeniedError

from lance_bridge.dotted_names import parts_of
from lance_bridge.errors import display, invalid, namespace_not_found, table_not_found, unsupported
from lance_bridge.extras import require

from ..operations import OPERATIONS
from .authentication import Principal
from .permissions import (
    BATCH_OPERATIONS,
    CREATING,
    SET_LOCATION,
    SET_NAMESPACE_LOCATION,
    Access,
    Decision,
    Names,
    path_of,
)


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
                page, one of `permissions.SERVER_RIGHTS`.
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


# -- authorizers by name ---------------------------------------------------------------------------


GROUP = "lance_bridge.authorizers"
"""The group of entry points. Each is called with its options as keywords, and returns an
`lance_bridge_server.access.authorizer.Authorizer`."""


def make_authorizer(method: str, options: Mapping[str, Any]) -> Authorizer:
    """Return an authorizer.

    Args:
        method: ``none``, ``cedar``, or the name of an entry point.
        options: Keyword arguments; for ``cedar``, ``policies`` and ``check_seconds``.

    Raises:
        InvalidInputError: (13) the method is unknown, or its options are wrong.
        UnsupportedOperationError: (0) it needs an extra that is not installed.
    """
    if method == "none":
        if options:
            raise invalid(f"Authorization '{method}' takes no options")
        return AllowAll()
    if method == "cedar":
        return _cedar(options)
    found = {each.name: each for each in entry_points(group=GROUP)}
    if method not in found:
        known = ", ".join(["none", "cedar", *sorted(found)])
        raise invalid(f"Unknown authorization method '{method}': use one of {known}")
    try:
        return found[method].load()(**options)  # type: ignore[no-any-return]  # by its contract
    except (ImportError, AttributeError) as error:
        raise unsupported(f"Authorization '{method}' cannot be loaded: {error}") from error
    except (TypeError, ValueError) as error:
        raise invalid(f"Authorization '{method}': {error}") from error


def _cedar(options: Mapping[str, Any]) -> Authorizer:
    require("server", "cedarpy")
    from .policies import CedarAuthorizer  # noqa: PLC0415 - needs an extra

    unknown = options.keys() - {"policies", "check_seconds"}
    if unknown or "policies" not in options:
        raise invalid("Authorization 'cedar' requires policies, and accepts check_seconds")
    seconds = float(options.get("check_seconds", 1.0))
    return CedarAuthorizer(Path(options["policies"]).expanduser(), seconds)


# -- explanations ----------------------------------------------------------------------------------


_CREATIONS, _COMMITS = "batch_create_table_versions", "batch_commit_tables"
_ENTRY = re.compile(r"(?:`[^`]*`|[^,`])+")
"""A part between two commas that are not quoted."""


def explain_request(
    authorizer: Authorizer,
    namespace: LanceNamespace,
    principal: Principal,
    operation: str,
    identifier: str,
) -> dict[str, Any]:
    """Return a decision as `explain` does, and for a batch the decision on each of its entries.

    Args:
        identifier: Names joined with dots; empty for the root. A batch has several, separated by
            commas; for ``batch_commit_tables``, each has its operation: ``OPERATION=ID``.

    Raises:
        InvalidInputError: (13) there is no such operation, or no such object can exist.
    """
    if operation not in (_CREATIONS, _COMMITS):
        names = parts_of(identifier) if identifier else []
        return explain(authorizer, namespace, principal, operation, names)
    entries = [
        explain(authorizer, namespace, principal, each, names)
        for each, names in _entries(operation, identifier)
    ]
    # The first denied entry decides on the whole request.
    decides = next((each for each in entries if each["decision"] == "deny"), entries[0])
    ids = [each["id"] for each in entries]
    return {**decides, "operation": operation, "id": ids, "entries": entries}


def _entries(batch: str, text: str) -> list[tuple[str, list[str]]]:
    """Return the operation and the names of each entry. Raises InvalidInput (13)."""
    found = []
    for entry in _ENTRY.findall(text) or [""]:
        name, names = "create_table_version", entry
        if batch == _COMMITS:
            name, _, names = entry.partition("=")
        if name not in BATCH_OPERATIONS:
            known = ", ".join(BATCH_OPERATIONS)
            raise invalid(
                f"'{entry}' is not an entry of {batch}: write OPERATION=ID, where OPERATION is one "
                f"of {known}"
            )
        found.append((BATCH_OPERATIONS[name], parts_of(names)))
    return found


def explain(
    authorizer: Authorizer,
    namespace: LanceNamespace,
    principal: Principal,
    operation: str,
    names: Sequence[str],
) -> dict[str, Any]:
    """Return a decision in a readable form. No catalog is called.

    Args:
        names: The identifier of the namespace or table.

    Returns:
        ``decision``: allow or deny; ``answer``: the response to a request; ``policies``: each
        policy that decided, with its effect and place if the authorizer knows them; ``problem``:
        why changed policies do not apply, or None.

    Raises:
        InvalidInputError: (13) there is no such operation, or no such object can exist.
    """
    known = {each.name for each in OPERATIONS} - {_CREATIONS, _COMMITS} | {
        SET_LOCATION,
        SET_NAMESPACE_LOCATION,
    }
    if operation not in known:
        raise invalid(f"Unknown operation '{operation}': use one of {', '.join(sorted(known))}")
    path = path_of(operation, names, namespace)
    decision = authorizer.check(principal, operation, path)
    is_allowed = decision.allowed and (decision.visible or operation not in CREATING)
    answer = "done" if is_allowed else "permission denied" if decision.visible else "not found"
    if not decision.visible and operation in CREATING:
        answer = "permission denied, or namespace not found: it may not see the new object"
    return {
        "principal": principal.name,
        "groups": sorted(principal.groups),
        "operation": operation,
        "id": list(path),
        "decision": "allow" if is_allowed else "deny",
        "answer": answer,
        "policies": [_describe(authorizer, each) for each in decision.reasons],
        "problem": getattr(authorizer, "problem", None),
    }


def _describe(authorizer: Authorizer, policy: str) -> dict[str, str]:
    read = getattr(authorizer, "policies", None)
    found = read().policies.get(policy) if read else None
    if found is None:
        return {"id": policy}
    return {"id": policy, "effect": found.content["effect"], "place": found.place}
