"""Explain an authorizer's decision on a principal's operation, for ``serve --explain``."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

from lance_namespace import LanceNamespace

from lance_bridge.errors import invalid
from lance_bridge.names import parts_of

from ..operations import OPERATIONS
from .authentication import Principal
from .authorizer import Authorizer
from .permissions import BATCH_OPERATIONS, CREATING, SET_LOCATION, SET_NAMESPACE_LOCATION, path_of

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
