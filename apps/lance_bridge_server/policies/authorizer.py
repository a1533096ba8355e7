"""The authorizer that decides by Cedar policies."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

from lance_bridge.errors import invalid

from ..authorization.accesses import Names, is_table_operation
from ..authorization.port import Decision
from ..principals import Principal
from .entities import Entity, object_entity
from .policy_set import PolicySet, Question, Result
from .statements import PolicyError, policy_files

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
        """Decide by the policies; see `lance_bridge_server.authorization.port.Authorizer`."""
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
        """Return the visible paths; see `lance_bridge_server.authorization.port.Authorizer`."""
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
