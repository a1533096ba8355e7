"""Storage credentials in responses: for whom, with which rights, and never cached."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Any

from lance_bridge.credentials import Caller

from .authorization.accesses import CREATING, Access
from .authorization.port import Authorizer
from .principals import Principal

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
