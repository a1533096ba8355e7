"""A gateway with everything that the catalog page shows, to which users sign in."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import lance
import lance_namespace as api
import pyarrow as pa
from core.memory_catalog import SERVERS
from server.identity_provider import AUDIENCE, identity_provider
from server.policies import cedar, declare, memory_namespace
from server.serving import serving
from server.ui.conftest import POLICIES, DeadNamespace
from server.ui.demo_tables import create_articles

from lance_bridge.catalog import TableRecord
from lance_bridge_federated import FederatedNamespace
from lance_bridge_server.app import create_app
from lance_bridge_server.audit import open_audit_log
from lance_bridge_server.authentication.key_file import ApiKeyFile
from lance_bridge_server.configuration.settings import ServerSettings
from lance_bridge_server.gateway import Gateway
from lance_bridge_server.limits import Limits
from lance_bridge_server.process.factory import authenticator_from_settings, login_from_settings

HOSTILE = "<script>alert(1)</script>\"'><img src=x onerror=alert(2)>"
CLIENT = "catalog-page"


class SlowNamespace(DeadNamespace):
    """A catalog that answers when it is let go."""

    def __init__(self) -> None:
        self.may_answer = threading.Event()

    def _fail(self, request: Any) -> Any:
        self.may_answer.wait(60)
        return super()._fail(request)


@dataclass
class SignedInPages:
    """The gateway, and who may sign in."""

    url: str
    keys: dict[str, str]
    """API keys by the names of their principals."""


@contextmanager
def signed_in_pages(
    directory: Path, *, has_slow_catalog: bool = False, operation_seconds: float = 60.0
) -> Iterator[SignedInPages]:
    """Serve the catalogs, with API keys and an identity provider.

    Args:
        operation_seconds: How long the gateway waits for a catalog.
    """
    with ExitStack() as stack:
        provider = stack.enter_context(identity_provider("keycloak"))
        provider.add_client(CLIENT)
        file = ApiKeyFile(directory / "keys.json")
        keys = {name: file.add(name)[0] for name in ("ann", "bob")}
        login = {"client_id": CLIENT, "label": "the company account"}
        known = ServerSettings.model_validate(
            {
                "catalogs": {"prod": {}},
                "authentication": [
                    {"method": "api_keys", "file": str(file.path)},
                    {
                        "method": "oidc",
                        "issuer": provider.issuer,
                        "audiences": [AUDIENCE],
                        "login": login,
                    },
                ],
            }
        )
        catalogs = _catalogs(directory)
        slow = SlowNamespace()
        stack.callback(slow.may_answer.set)
        served = {**catalogs, "slow": slow} if has_slow_catalog else catalogs
        gateway = Gateway(
            FederatedNamespace(served),
            authenticator=authenticator_from_settings(known),
            login=login_from_settings(known),
            authorizer=cedar(directory, POLICIES),
            audit=open_audit_log(directory / "audit.log"),
            catalogs=catalogs,
            limits=Limits(operation_seconds=operation_seconds),
        )
        url = stack.enter_context(serving(create_app(gateway)))
        yield SignedInPages(url, keys)


def _catalogs(directory: Path) -> dict[str, Any]:
    prod, many = (memory_namespace(directory / name) for name in ("prod", "many"))
    create_articles(prod)
    declare(prod, "sales.secret", "sales.orders", "hr.pay")
    properties = {HOSTILE: HOSTILE}
    prod.create_namespace(api.CreateNamespaceRequest(id=["hostile"], properties=properties))
    rows = pa.table({HOSTILE: [HOSTILE], "nested": [{HOSTILE: [HOSTILE]}]})
    lance.write_dataset(rows, namespace_client=prod, table_id=["hostile", "t"])
    server = SERVERS[str(directory / "prod")]
    for path, names, owner in (
        (("sales", "invoices"), ("number", "customer"), {"team": "finance"}),
        (("hostile", "other"), (HOSTILE, "id"), properties),
    ):
        fields = [{"name": name, "type": "string"} for name in names]
        schema = {"spark.sql.sources.schema": json.dumps({"fields": fields})}
        server.tables[path] = TableRecord(
            path, f"s3://lake/{path[1]}", {**schema, **owner}, "EXTERNAL_TABLE"
        )
    declare(many, *(f"db.t{i:03}" for i in range(130)))
    return {"prod": prod, "many": many, "dead": DeadNamespace()}
