"""An immutable set of policies, and its evaluation."""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache, lru_cache
from pathlib import Path
from typing import Any

import cedarpy

from ..principals import Principal
from .entities import Entity, entities_json, principal_entity
from .schema import schema_text
from .statements import Policy, read_policies

_CACHED_PRINCIPALS = 1024


@cache
def schema() -> cedarpy.Schema:
    """Return the parsed schema."""
    return cedarpy.Schema.from_str(schema_text())


@dataclass(frozen=True)
class Question:
    """Whether a principal may do an action on an object."""

    action: str
    object: Entity
    location: str | None = None


@dataclass(frozen=True)
class Result:
    """The decision of policies on a question."""

    is_allowed: bool
    policies: tuple[str, ...]
    """The ids of the policies that decided: the ``forbid`` policies if any applies."""
    errors: tuple[str, ...] = ()


class PolicySet:
    """Parsed policies. Safe to share between threads."""

    def __init__(self, policies: Iterable[Policy]) -> None:
        self.policies: Mapping[str, Policy] = {each.id: each for each in policies}
        self._parsed_for = lru_cache(_CACHED_PRINCIPALS)(self._parse_for)
        permits = [each for each in self.policies.values() if each.content["effect"] == "permit"]
        self.named_objects = frozenset(
            found for each in permits for found in _objects_in(each.content)
        )
        """The namespaces and tables that ``permit`` policies name."""

    @classmethod
    def read(cls, path: Path) -> PolicySet:
        """Return the policies of a file or directory. Raises PolicyError."""
        return cls(read_policies(path, schema()))

    def evaluate(self, principal: Principal, questions: Sequence[Question]) -> list[Result]:
        """Evaluate the questions together, and return the result of each.

        An error in the evaluation denies, because the policy may be one that forbids.
        """
        try:
            entities = entities_json(principal, [each.object for each in questions])
        except UnicodeEncodeError:
            problem = "the name of the principal or of a group is not text"
            return [Result(False, (), (problem,)) for _ in questions]
        requests = [_request(principal, each) for each in questions]
        parsed = self._parsed_for(principal.name, principal.groups)
        found = cedarpy.is_authorized_batch(requests, parsed, entities, schema())
        return [_result(each) for each in found]

    def _parse_for(self, name: str, groups: frozenset[str]) -> cedarpy.PolicySet:
        """Return the policies whose scope includes a principal: Cedar evaluates all it gets."""
        entities = {Entity("User", name), *(Entity("Group", each) for each in groups)}
        content = {
            "templates": {},
            "staticPolicies": {
                key: each.content
                for key, each in self.policies.items()
                if _may_be_for(each.content["principal"], entities)
            },
            "templateLinks": [],
        }
        return cedarpy.PolicySet.from_json_str(json.dumps(content))


def _may_be_for(scope: Any, entities: Collection[Entity]) -> bool:
    """Return whether the scope of a policy includes one of some entities, or any principal."""
    entity = scope.get("entity")
    return entity is None or Entity(entity["type"], entity["id"]) in entities


def _request(principal: Principal, question: Question) -> dict[str, Any]:
    context = {} if question.location is None else {"location": question.location}
    return {
        "principal": principal_entity(principal).to_json(),
        "action": {"type": "Action", "id": question.action},
        "resource": question.object.to_json(),
        "context": context,
    }


def _result(found: cedarpy.AuthzResult) -> Result:
    errors = tuple(found.diagnostics.errors)
    reasons = tuple(sorted(found.diagnostics.reasons))
    return Result(found.allowed and not errors, reasons, errors)


def _objects_in(content: Any) -> Iterator[Entity]:
    """Yield the namespaces and tables in a policy's JSON."""
    if isinstance(content, Mapping):
        if content.keys() == {"type", "id"} and content["type"] in ("Namespace", "Table"):
            yield Entity(content["type"], content["id"])
        for each in content.values():
            yield from _objects_in(each)
    elif isinstance(content, list):
        for each in content:
            yield from _objects_in(each)
