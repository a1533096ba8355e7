"""A gateway with everything that the catalog page shows, to which users sign in."""

from __future__ import annotations

import json
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
from server.policies import cedar
from server.serving import serving
from server.ui.conftest import POLICIES, make_catalogs

from lance_bridge.catalog import TableRecord
from lance_bridge_federated import FederatedNamespace
from lance_bridge_server.app import create_app
from lance_bridge_server.audit import open_audit_log
from lance_bridge_server.authentication.key_file import ApiKeyFile
from lance_bridge_server.configuration.settings import ServerSettings
from lance_bridge_server.gateway import Gateway
from lance_bridge_server.process.factory import authenticator_from_settings, login_from_settings

HOSTILE = "<script>alert(1)</script>\"'><img src=x onerror=alert(2)>"
CLIENT = "catalog-page"


@dataclass
class SignedInPages:
    """The gateway, and the API key of who may do everything."""

    url: str
    key: str


@contextmanager
def signed_in_pages(directory: Path) -> Iterator[SignedInPages]:
    """Serve the catalogs, with API keys and an identity provider."""
    with ExitStack() as stack:
        provider = stack.enter_context(identity_provider("keycloak"))
        provider.add_client(CLIENT)
        file = ApiKeyFile(directory / "keys.json")
        key, _ = file.add("ann")
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
        gateway = Gateway(
            FederatedNamespace(catalogs),
            authenticator=authenticator_from_settings(known),
            login=login_from_settings(known),
            authorizer=cedar(directory, POLICIES),
            audit=open_audit_log(directory / "audit.log"),
            catalogs=catalogs,
        )
        url = stack.enter_context(serving(create_app(gateway)))
        yield SignedInPages(url, key)


def _catalogs(directory: Path) -> dict[str, Any]:
    catalogs = make_catalogs(directory)
    prod = catalogs["prod"]
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
    return catalogs
