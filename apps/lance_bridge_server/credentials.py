"""Storage credentials in answers: for whom, with which rights, and kept by no cache."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Any

from lance_bridge.credentials import Caller

from .authorization.accesses import CREATING, Access
from .authorization.port import Authorizer
from .principals import Principal

_READING = {"query_table"}
_WRITING = {"insert_into_table", "delete_from_table"}
"""Who can write a table's files can delete its rows."""


def caller_of(authorizer: Authorizer, principal: Principal, accesses: Sequence[Access]) -> Caller:
    """Return in whose name, and with which rights, credentials for a request's tables are made.

    Credentials that write also read: who gets them may do both to all of the tables.
    """

    def allows(write: bool) -> bool:
        needed = _READING | _WRITING if write else _READING
        return all(_may(authorizer, principal, needed, each) for each in accesses)

    return Caller(principal.name, allows)


def hide_storage_options(
    authorizer: Authorizer, principal: Principal, accesses: Sequence[Access], result: Any
) -> Any:
    """Return an answer without storage options that its principal has no use for.

    Those of a description are for reading the table, and those of a table that was created for
    writing it. Credentials among them follow `caller_of`; those of other namespaces follow this.
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
    """Return the header that keeps an answer out of caches, if it has storage options."""
    if not isinstance(content, dict):
        return {}
    answers = [content, *(each.get("declare_table") or {} for each in content.get("results", ()))]
    has_options = any("storage_options" in each for each in answers if isinstance(each, dict))
    return {"Cache-Control": "no-store"} if has_options else {}
