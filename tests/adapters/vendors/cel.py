"""What a credential access boundary allows, by Google's own implementation of CEL.

What it cannot show: how Google's storage applies a boundary. Which permissions a role has, and on
which resource each is checked, is from Google's "IAM roles for Cloud Storage" and "Credential
Access Boundaries"; `test_rights` compares it with their examples.
"""

from __future__ import annotations

from typing import Any

from cel_expr_python import cel

_PERMISSIONS = {
    "inRole:roles/storage.objectViewer": {"get", "list"},
    "inRole:roles/storage.objectUser": {"create", "delete", "get", "list", "update"},
}
_LIST_PREFIX = "storage.googleapis.com/objectListPrefix"
_TEXTS = cel.Type.Map(cel.Type.STRING, cel.Type.STRING)
_GET_ATTRIBUTE = cel.Overload(
    "getAttribute",
    return_type=cel.Type.STRING,
    parameters=[_TEXTS, cel.Type.STRING, cel.Type.STRING],
    is_member=True,
    impl=lambda attributes, name, default: attributes.get(name, default),
)
_ENVIRONMENT = cel.NewEnv(
    variables={"resource": _TEXTS, "api": _TEXTS},
    functions=[cel.FunctionDecl("getAttribute", [_GET_ATTRIBUTE])],
)


def condition(expression: str) -> Any:
    """Return a condition, which `holds` evaluates. Raises where it is not CEL."""
    return _ENVIRONMENT.compile(expression)


def holds(compiled: Any, resource: str, list_prefix: str | None = None) -> bool:
    """Return whether a condition holds for a resource, and the prefix of a listing."""
    attributes = {} if list_prefix is None else {_LIST_PREFIX: list_prefix}
    found = compiled.eval(data={"resource": {"name": resource}, "api": attributes})
    return found.value() is True


class Boundary:
    """A boundary for objects of one bucket."""

    def __init__(self, boundary: dict[str, Any], bucket: str) -> None:
        self._bucket = f"projects/_/buckets/{bucket}"
        self._rules: list[tuple[set[str], Any]] = []
        for rule in boundary["accessBoundary"]["accessBoundaryRules"]:
            assert rule["availableResource"] == f"//storage.googleapis.com/{self._bucket}"
            [role] = rule["availablePermissions"]
            compiled = condition(rule["availabilityCondition"]["expression"])
            self._rules.append((_PERMISSIONS[role], compiled))

    def allows(self, permission: str, key: str) -> bool:
        """Return whether a permission is allowed on an object."""
        return self._any(permission, f"{self._bucket}/objects/{key}")

    def lists(self, prefix: str | None) -> bool:
        """Return whether objects may be listed by a prefix."""
        return self._any("list", self._bucket, prefix)

    def _any(self, permission: str, resource: str, prefix: str | None = None) -> bool:
        return any(permission in p and holds(c, resource, prefix) for p, c in self._rules)
