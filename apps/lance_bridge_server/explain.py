"""What an authorizer decides on a principal's operation, and why, for ``serve --explain``."""

from __future__ import annotations

from typing import Any

from lance_namespace import LanceNamespace

from lance_bridge.errors import invalid

from .accesses import CREATING, SET_LOCATION, SET_NAMESPACE_LOCATION, path_of
from .authorization import Authorizer
from .operations import OPERATIONS
from .principals import Principal

_BATCHES = {"batch_create_table_versions", "batch_commit_tables"}


def explain(
    authorizer: Authorizer,
    namespace: LanceNamespace,
    principal: Principal,
    operation: str,
    names: list[str],
) -> dict[str, Any]:
    """Return a decision for people to read. No catalog is called.

    Args:
        names: The identifier of the namespace or table.

    Returns:
        ``decision``: allow or deny; ``answer``: what a request gets; ``policies``: each policy that
        decided, with its effect and place if the authorizer knows them; ``problem``: why changed
        policies do not apply, or None.

    Raises:
        InvalidInputError: (13) there is no such operation, or no such object can exist.
    """
    known = {each.name for each in OPERATIONS} - _BATCHES | {SET_LOCATION, SET_NAMESPACE_LOCATION}
    if operation not in known:
        raise invalid(f"There is no operation '{operation}': known are {', '.join(sorted(known))}")
    path = path_of(operation, names, namespace)
    decision = authorizer.check(principal, operation, path)
    is_allowed = decision.allowed and (decision.visible or operation not in CREATING)
    answer = "done" if is_allowed else "permission denied" if decision.visible else "not found"
    if not decision.visible and operation in CREATING:
        answer = "permission denied, or namespace not found: it may not see what it creates"
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
