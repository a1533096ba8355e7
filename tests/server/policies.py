"""Policies in files, and gateways that decide by them for the principal in a header."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import httpx
import lance_namespace as api
from core.memory_catalog import CAPABILITIES, SERVERS, MemoryNamespace, MemoryServer, rule
from server.serving import serving_namespace
from starlette.requests import HTTPConnection

from lance_bridge_server.access.authentication import Principal
from lance_bridge_server.access.policies import CedarAuthorizer


class NamedByHeader:
    """Takes the principal, and its groups, from headers."""

    async def authenticate(self, connection: HTTPConnection) -> Principal | None:
        name = connection.headers.get("x-user")
        groups = connection.headers.get("x-groups", "").split(",")
        if not name:
            return None
        return Principal(name, frozenset(groups) - {""}, "proxy")


def cedar(directory: Path, text: str, check_seconds: float = 1.0) -> CedarAuthorizer:
    """Return an authorizer for policies, which it writes to a file."""
    file = directory / "policies.cedar"
    file.write_text(text)
    return CedarAuthorizer(file, check_seconds)


def memory_namespace(directory: Path, **capabilities: Any) -> MemoryNamespace:
    """Return a namespace whose databases and tables are in memory."""
    able = {"namespace_levels": (rule("database"),), "no_rename": "", "no_alter": ""}
    SERVERS[str(directory)] = MemoryServer(
        capabilities=replace(CAPABILITIES, **{**able, **capabilities})
    )
    return MemoryNamespace(uri=str(directory), root=str(directory / "root"))


def declare(namespace: Any, *tables: str) -> None:
    """Declare tables, given as ``database.table``, and create their databases."""
    for each in tables:
        database, name = each.split(".")
        namespace.create_namespace(api.CreateNamespaceRequest(id=[database], mode="ExistOk"))
        namespace.declare_table(api.DeclareTableRequest(id=[database, name]))


@contextmanager
def clients(namespace: Any, authorizer: Any, **options: Any) -> Iterator[Any]:
    """Serve a namespace; yield a function that returns the HTTP client of a principal."""
    with (
        serving_namespace(
            namespace, authenticator=NamedByHeader(), authorizer=authorizer, **options
        ) as url,
        httpx.Client(base_url=url, timeout=60) as shared,
    ):

        def client_of(name: str, groups: str = "") -> Any:
            headers = {"x-user": name, "x-groups": groups}

            def send(method: str, path: str, **more: Any) -> httpx.Response:
                more["headers"] = {**headers, **more.pop("headers", {})}
                return shared.request(method, path, **more)

            return send

        yield client_of
