"""Cedar entities: principals, and the objects of a namespace with their parents.

The id of an object is its names joined with dots; the id of the root is empty. In a name, dots,
percent signs and unprintable characters are percent-encoded, so that no two objects share an id.
The ids of principals and groups are their names.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, NamedTuple

from ..principals import Principal

_EMPTY_NAME = "%"


class Entity(NamedTuple):
    """The unique id of an entity."""

    type: str
    id: str

    def to_json(self) -> dict[str, str]:
        """Return the id in Cedar's JSON format."""
        return {"type": self.type, "id": self.id}


def object_entity(path: Sequence[str], *, is_table: bool) -> Entity:
    """Return the entity of a table or namespace. The root is always a namespace."""
    return Entity(
        "Table" if is_table and path else "Namespace", ".".join(_encode(name) for name in path)
    )


def _encode(name: str) -> str:
    return "".join(_encode_character(each) for each in name) or _EMPTY_NAME


def _encode_character(character: str) -> str:
    if character.isprintable() and character not in ".%":
        return character
    encoded = character.encode("utf-8", "surrogatepass")
    return "".join(f"%{byte:02X}" for byte in encoded)


def _parent(entity: Entity) -> Entity | None:
    if not entity.id:
        return None
    return Entity("Namespace", entity.id.rpartition(".")[0])


def entities_json(principal: Principal, objects: Iterable[Entity]) -> str:
    """Return Cedar's JSON of a principal with its groups and of objects with their namespaces.

    Raises:
        UnicodeEncodeError: A name of the principal or of a group is not text.
    """
    found = [_principal(principal)]
    found += [_object(each) for each in _with_parents(objects)]
    return json.dumps(found)


def principal_entity(principal: Principal) -> Entity:
    """Return the entity of a principal."""
    return Entity("User", principal.name)


def _principal(principal: Principal) -> dict[str, Any]:
    tags = {key: value for key, value in principal.claims.items() if isinstance(value, str)}
    for text in (principal.name, *principal.groups, *tags, *tags.values()):
        text.encode()
    return {
        "uid": principal_entity(principal).to_json(),
        "attrs": {"method": principal.method},
        "tags": tags,
        "parents": [Entity("Group", each).to_json() for each in sorted(principal.groups)],
    }


def _with_parents(objects: Iterable[Entity]) -> Iterator[Entity]:
    seen: set[Entity] = set()
    for each in objects:
        current: Entity | None = each
        while current is not None and current not in seen:
            seen.add(current)
            yield current
            current = _parent(current)


def _object(entity: Entity) -> dict[str, Any]:
    parent = _parent(entity)
    return {
        "uid": entity.to_json(),
        "attrs": {"name": entity.id.rpartition(".")[2]},
        "parents": [parent.to_json()] if parent else [],
    }
