"""Reads policies from files. Each is parsed separately, so that problems name its file and line."""

from __future__ import annotations

import json
import logging
import re
import threading
import time
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache, lru_cache
from pathlib import Path
from typing import Any, NamedTuple

import cedarpy

from lance_bridge.errors import invalid

from .authentication import Principal
from .permissions import (
    SERVER_RIGHTS,
    SET_LOCATION,
    SET_NAMESPACE_LOCATION,
    Decision,
    Names,
    is_table_operation,
)

# -- statements ------------------------------------------------------------------------------------


SUFFIX = ".cedar"

_TOKEN = re.compile(r'//[^\n]*|"(?:\\.|[^"\\])*"|;|[^\s;/"]+|[/"]', re.DOTALL)
_PREFIX = re.compile(r"^for policy `[^`]*`, ")


@dataclass(frozen=True)
class Policy:
    """One policy of a file."""

    id: str
    """Its ``@id`` annotation, or the file's name and line."""
    file: Path
    line: str
    """The line, with the column if that is not the first: ``3:10``."""
    content: Mapping[str, Any]
    """The policy in Cedar's JSON format."""

    @property
    def place(self) -> str:
        """The file and line, for messages."""
        return f"{self.file}, line {self.line}"


class PolicyError(Exception):
    """Policies cannot be used. The message has one line for each problem."""


def policy_files(path: Path) -> list[Path]:
    """Return the file, or the policy files in the directory, sorted by name.

    Raises:
        PolicyError: The directory has none, or cannot be read.
    """
    try:
        if not path.is_dir():
            return [path]
        found = sorted(each for each in path.iterdir() if each.suffix == SUFFIX)
    except OSError as error:
        raise PolicyError(f"{path} cannot be read: {error.strerror}") from error
    if not found:
        raise PolicyError(f"{path} has no file *{SUFFIX}")
    return found


def read_policies(path: Path, schema: cedarpy.Schema) -> list[Policy]:
    """Return the policies of a file or directory.

    Raises:
        PolicyError: A file cannot be read, or a policy is wrong. The message has all problems.
    """
    policies: dict[str, Policy] = {}
    problems: list[str] = []
    for file in policy_files(path):
        for line, text in _statements(_read(file)):
            found = _parse(file, line, text, schema)
            if isinstance(found, list):
                problems += found
            elif found.id in policies:
                there = policies[found.id].place
                problems.append(f"{found.place} (policy '{found.id}'): {there} has the same @id")
            else:
                policies[found.id] = found
    if problems:
        raise PolicyError("\n".join(problems))
    return list(policies.values())


def _read(file: Path) -> str:
    try:
        return file.read_text("utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise PolicyError(f"{file} cannot be read: {error}") from error


def _statements(text: str) -> Iterator[tuple[str, str]]:
    """Yield the position and text of each policy. Policies end with semicolons.

    The position is the line, with the column if that is not the first.
    """
    start: int | None = None
    for token in _TOKEN.finditer(text):
        if token[0].startswith("//"):
            continue
        if start is None:
            start = token.start()
        if token[0] == ";":
            yield _place(text, start), text[start : token.end()]
            start = None
    if start is not None:
        yield _place(text, start), text[start:]


def _place(text: str, position: int) -> str:
    line = text.count("\n", 0, position) + 1
    column = position - text.rfind("\n", 0, position)
    return str(line) if column == 1 else f"{line}:{column}"


def _parse(file: Path, line: str, text: str, schema: cedarpy.Schema) -> Policy | list[str]:
    """Return a policy, or its problems."""
    place = f"{file}, line {line}"
    try:
        parsed = json.loads(cedarpy.policies_to_json_str(text))
    except ValueError as error:
        return [f"{place}: {error}"]
    if parsed["templates"]:
        return [
            f"{place}: a policy with ?principal or ?resource is a template, and grants nothing by "
            "itself"
        ]
    (content,) = parsed["staticPolicies"].values()
    given = content.get("annotations", {}).get("id")
    result = cedarpy.validate_policies(text, schema)
    if not result:
        shown = f" (policy '{given}')" if given else ""
        return [f"{place}{shown}: {_PREFIX.sub('', each.error)}" for each in result.errors]
    return Policy(given or f"{file.name}:{line}", file, line, content)


# -- schema ----------------------------------------------------------------------------------------


_NAMESPACE_GROUPS = {
    "see": ("describe_namespace", "namespace_exists", "list_namespaces", "list_tables",
            "list_all_tables"),
    "create": ("create_namespace",),
    "manage": ("drop_namespace",),
    "operate": SERVER_RIGHTS,
}  # fmt: skip
_TABLE_GROUPS = {
    "see": ("describe_table", "table_exists"),
    "read": ("count_table_rows", "explain_table_query_plan", "analyze_table_query_plan",
             "get_table_stats", "list_table_versions", "describe_table_version",
             "list_table_indices", "describe_table_index_stats", "list_table_tags",
             "get_table_tag_version", "list_table_branches", "describe_transaction"),
    "write": ("insert_into_table", "merge_insert_into_table", "update_table", "delete_from_table",
              "create_table_version", "alter_transaction", "alter_table_backfill_columns",
              "refresh_materialized_view"),
    "alter": ("alter_table_add_columns", "alter_table_alter_columns", "alter_table_drop_columns",
              "update_table_schema_metadata", "update_field_metadata", "create_table_index",
              "create_table_scalar_index", "drop_table_index", "create_table_tag",
              "update_table_tag", "delete_table_tag", "create_table_branch", "delete_table_branch",
              "restore_table", "batch_delete_table_versions"),
    "create": ("create_table", "declare_table", "create_materialized_view"),
    "manage": ("register_table", "deregister_table", "drop_table", "rename_table"),
}  # fmt: skip

GROUPS = ("see", "read", "write", "alter", "create", "manage", "operate")
"""The groups of actions. ``read`` includes ``see``."""

_ENTITIES = """
entity Group;
entity User in [Group] { method: String } tags String;
entity Namespace in [Namespace] { name: String };
entity Table in [Namespace] { name: String };
action read, write, alter, create, manage, operate;
action see in [read];
"""


def schema_text() -> str:
    """Return the schema, in Cedar's own syntax."""
    lines = [_ENTITIES.strip()]
    for group, actions in _NAMESPACE_GROUPS.items():
        lines += [_action(each, group, "Namespace") for each in actions]
    for group, actions in _TABLE_GROUPS.items():
        lines += [_action(each, group, "Table") for each in actions]
    # A materialized view may read every table, which is authorized as a query on the root.
    lines.append(_action("query_table", "read", "Table, Namespace"))
    location = ", context: { location: String }"
    lines.append(_action(SET_LOCATION, "manage", "Table", location))
    lines.append(_action(SET_NAMESPACE_LOCATION, "manage", "Namespace", location))
    return "\n".join(lines) + "\n"


def _action(name: str, group: str, resources: str, context: str = "") -> str:
    applies = f"principal: [User], resource: [{resources}]{context}"
    return f"action {name} in [{group}] appliesTo {{ {applies} }};"


# -- entities --------------------------------------------------------------------------------------


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


# -- policies --------------------------------------------------------------------------------------


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


# -- authorizer ------------------------------------------------------------------------------------


_log = logging.getLogger(__name__)

_NAVIGATION = {"namespace_exists", "list_namespaces", "list_tables", "list_all_tables"}
"""Operations that are allowed on a namespace if an object below it is visible."""

_Signature = tuple[object, ...]


class CedarAuthorizer:
    """Decides by policies in files, which are read again when they change.

    A table is visible to principals that may do ``describe_table`` on it. A namespace is visible to
    principals that may do ``describe_namespace`` on it, or can see an object below it that a policy
    names; these may also list it, unless a policy forbids that. The root is visible to all.

    Args:
        path: A file, or a directory with files ``*.cedar``.
        check_seconds: The least number of seconds between two checks of the files for changes.

    Raises:
        InvalidInputError: (13) a policy is wrong. The message has its file, line and id.
    """

    def __init__(self, path: Path, check_seconds: float = 1.0) -> None:
        self._path = path
        self._check_seconds = check_seconds
        self._lock = threading.Lock()
        self._signature = _signature(path)
        self._next_check = time.monotonic() + check_seconds
        try:
            self._policies = PolicySet.read(path)
        except PolicyError as error:
            raise invalid(str(error)) from error
        self.problem: str | None = None
        """Why the current files cannot be used; if set, the previous policies apply."""

    def check(
        self, principal: Principal, operation: str, path: Names, location: str | None = None
    ) -> Decision:
        """Decide by the policies; see `lance_bridge_server.access.authorizer.Authorizer`."""
        policies = self.policies()
        target = object_entity(path, is_table=is_table_operation(operation))
        asked = [Question(operation, target, location), _visibility_question(target)]
        result, sees = _evaluate(policies, principal, asked)
        if result.is_allowed:
            return Decision(True, result.policies, visible=sees.is_allowed or not path)
        below = self._find_visible_below(policies, principal, target, sees)
        is_visible = sees.is_allowed or below is not None or not path
        if operation in _NAVIGATION and is_visible and not result.policies:
            return Decision(True, below.policies if below else sees.policies)
        return Decision(False, result.policies, visible=is_visible)

    def filter(
        self, principal: Principal, operation: str, paths: Sequence[Names]
    ) -> Sequence[Names]:
        """Return the visible paths; see `lance_bridge_server.access.authorizer.Authorizer`."""
        policies = self.policies()
        is_table = operation != "list_namespaces"
        targets = {path: object_entity(path, is_table=is_table) for path in paths}
        named = [] if is_table else _objects_below(policies, targets.values())
        asked = [_visibility_question(each) for each in (*targets.values(), *named)]
        found = _evaluate(policies, principal, asked)
        seen = {each.object for each, result in zip(asked, found, strict=True) if result.is_allowed}
        around = {parent for each in seen & set(named) for parent in _ancestors(each)}
        return [path for path, target in targets.items() if target in seen | around]

    def policies(self) -> PolicySet:
        """Return the policies that apply now."""
        if time.monotonic() >= self._next_check and self._lock.acquire(blocking=False):
            try:
                self._next_check = time.monotonic() + self._check_seconds
                self._reload_if_changed()
            finally:
                self._lock.release()
        return self._policies

    def _reload_if_changed(self) -> None:
        signature = _signature(self._path)
        if signature == self._signature:
            return
        self._signature = signature
        try:
            self._policies = PolicySet.read(self._path)
        except PolicyError as error:
            self.problem = str(error)
            _log.error(
                "The changed policies cannot be used; the previous ones stay in force: %s", error
            )
        else:
            self.problem = None
            _log.info("Reloaded %d policies", len(self._policies.policies))

    def _find_visible_below(
        self, policies: PolicySet, principal: Principal, target: Entity, sees: Result
    ) -> Result | None:
        """Return the result for a visible object below a namespace, or None if there is none."""
        if target.type == "Table" or sees.is_allowed:
            return None
        asked = [_visibility_question(each) for each in _objects_below(policies, [target])]
        found = _evaluate(policies, principal, asked) if asked else []
        return next((each for each in found if each.is_allowed), None)


def _visibility_question(target: Entity) -> Question:
    return Question(f"describe_{target.type.lower()}", target)


def _evaluate(
    policies: PolicySet, principal: Principal, questions: Sequence[Question]
) -> list[Result]:
    found = policies.evaluate(principal, questions)
    for each in found:
        if each.errors:
            _log.error("Denied: a policy could not be evaluated: %s", "; ".join(each.errors))
    return found


def _objects_below(policies: PolicySet, targets: Iterable[Entity]) -> list[Entity]:
    """Return the objects named in policies that are below any of some namespaces."""
    outer = set(targets)
    return sorted(each for each in policies.named_objects if outer.intersection(_ancestors(each)))


def _ancestors(entity: Entity) -> Iterator[Entity]:
    """Yield the namespaces that contain an object."""
    rest = entity.id
    while rest:
        rest = rest.rpartition(".")[0]
        yield Entity("Namespace", rest)


def _signature(path: Path) -> _Signature:
    """Return a value that changes with the files, without reading them."""
    try:
        files = policy_files(path)
        stats = [(each, each.stat()) for each in files]
    except (OSError, PolicyError) as error:
        return (str(error),)
    return tuple((each, s.st_mtime_ns, s.st_ctime_ns, s.st_size, s.st_ino) for each, s in stats)
