"""What tests of the vendors share: a namespace in memory whose tables are on S3, and grants."""

from __future__ import annotations

import random
import uuid
from collections.abc import Iterator
from dataclasses import replace
from typing import Any
from urllib.parse import quote

import lance_namespace as api
import pytest
from cel_expr_python import cel
from core.memory_catalog import CAPABILITIES, SERVERS, MemoryNamespace, MemoryServer, rule
from lance_namespace.errors import InvalidInputError
from servers.glue_server import ROLE, GlueServer

from lance_bridge.credentials import Grant
from lance_bridge.credentials.scope import StoragePrefix, storage_prefix
from lance_bridge.managed.batches import BatchRecord
from lance_bridge.storage import TableFiles, TableStorage

BUCKET = "vended"
DATABASE = "films"
TABLE = [DATABASE, "reels"]
WRITERS_FILES = (
    "data/1.lance",
    "_transactions/1.txn",
    "_transactions/1.staged.json",
    "_transactions/1.stream.json",
)
"""What a writer of a governed table makes and deletes: Lance's files, and the Spark source's."""
GRANT = Grant("s3", BUCKET, "lake/films.db/reels.lance", tuple(TABLE), write=True)
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
COUNTS = [500, pytest.param(10_000, marks=pytest.mark.slow)]
"""How many locations a test generates."""
_PIECES = [
    "*", "**", "?", "$", "${", "}", "${*}", "${?}", "${$}", "${aws:username}", "$${*}", "{*}", '"',
    "'", "\\", '\\"', '")||true||("', "a", "b", "t", "t.lance", "_versions", ".manifest", "%",
    "%2A", "+", " ", "~", "|", "^", "[a-z]", "<", "é", "ü", "\u202e", "😀", "\ufeff",
    "\uff10", "-", ".", "//", "../", "/", "/", "#", "&", "=", ",", ":", ";", "@", "`", "\u0301",
]  # fmt: skip


def grant(**changes: Any) -> Grant:
    """Return a grant to write one table, with changes."""
    return replace(GRANT, **changes)


def batch_files() -> tuple[str, ...]:
    """Return the paths, in its first table, of the files of a batch."""
    files = TableFiles(TableStorage({}), "s3://bucket/t")
    intent = BatchRecord(files, tuple(TABLE), str(uuid.UUID(int=16)))
    return intent._record_path, intent._outcome_path


def aws_properties(server: GlueServer) -> dict[str, str]:
    """Return the properties by which a catalog vends sessions of the server's role."""
    stored = {f"storage.{key}": value for key, value in server.storage_options.items()}
    return {
        **stored,
        "root": f"s3://{BUCKET}/lake",
        "credentials.vendor": "aws",
        "credentials.role_arn": ROLE,
        "credentials.sts_endpoint": server.endpoint,
    }


def memory_namespace(name: str, **properties: str) -> MemoryNamespace:
    """Return a namespace on a server in memory, which has one database. Same name, same server."""
    if name not in SERVERS:
        able = replace(
            CAPABILITIES, namespace_levels=(rule("database"),), no_rename="", no_alter=""
        )
        SERVERS[name] = MemoryServer(capabilities=able)
    namespace = MemoryNamespace(uri=name, **properties)
    namespace.create_namespace(api.CreateNamespaceRequest(id=[DATABASE], mode="ExistOk"))
    return namespace


# -- conditions ------------------------------------------------------------------------------------


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
        for each in boundary["accessBoundary"]["accessBoundaryRules"]:
            assert each["availableResource"] == f"//storage.googleapis.com/{self._bucket}"
            [role] = each["availablePermissions"]
            compiled = condition(each["availabilityCondition"]["expression"])
            self._rules.append((_PERMISSIONS[role], compiled))

    def allows(self, permission: str, key: str) -> bool:
        """Return whether a permission is allowed on an object."""
        return self._any(permission, f"{self._bucket}/objects/{key}")

    def lists(self, prefix: str | None) -> bool:
        """Return whether objects may be listed by a prefix."""
        return self._any("list", self._bucket, prefix)

    def _any(self, permission: str, resource: str, prefix: str | None = None) -> bool:
        return any(permission in p and holds(c, resource, prefix) for p, c in self._rules)


# -- hostile names ---------------------------------------------------------------------------------


def locations(count: int, scheme: str, seed: int = 16) -> Iterator[tuple[str, StoragePrefix]]:
    """Yield random locations below ``<scheme>://bucket/lake`` that a catalog's entry can have."""
    random_source = random.Random(seed)
    found = 0
    while found < count:
        name = "".join(random_source.choices(_PIECES, k=random_source.randint(1, 6)))
        spelled = quote(name, safe="/") if random_source.random() < 0.5 else name
        location = f"{scheme}://bucket/lake/{spelled}"
        try:
            place = storage_prefix(location)
        except InvalidInputError:
            continue
        found += 1
        yield location, place


def own_keys(prefix: str) -> list[str]:
    """Return keys of a table's own objects."""
    return [f"{prefix}/data/1.lance", f"{prefix}/_versions/1.manifest-x", f"{prefix}/a*b?c${{d}}"]


def other_keys(prefix: str, seed: int) -> Iterator[str]:
    """Yield keys of objects outside a table that a careless pattern would match."""
    random_source = random.Random(seed)
    parts = prefix.split("/")
    yield prefix
    yield f"{prefix}2/data/1.lance"
    yield f"{prefix}/../other/1.lance".replace("/../", "-/")
    yield "/".join([*parts[:-1], "other.lance/data/1.lance"])
    for old, new in (("*", "xy"), ("?", "x"), ("${", "x"), ("${*}", "*"), ("$", ""), ("\\", "")):
        yield f"{prefix.replace(old, new)}/data/1.lance"
    at = random_source.randrange(len(prefix))
    yield f"{prefix[:at]}z{prefix[at + 1 :]}/data/1.lance"
    yield f"{prefix.swapcase()}/data/1.lance"


def is_own(prefix: str, key: str) -> bool:
    """Return whether an object is in a table."""
    return key.startswith(f"{prefix}/")
