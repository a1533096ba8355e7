"""What tests of the Glue adapter share."""

from __future__ import annotations

from typing import Any, Protocol

from servers.glue_server import GlueServer

from lance_bridge.config import load
from lance_bridge.testing.calls import Calls
from lance_bridge_glue import GlueConfig
from lance_bridge_glue.catalog import GlueCatalog

BUDGETS = {"max_retries": "1", "client.connect-timeout": "2", "client.read-timeout": "2"}
"""Limits that let a dead server be noticed within seconds."""
BUCKET = "glue-tests"
DATA_FILE = "data/1f6a43f4-5d0b-4a5e-9d0c-6c1f0a9b7e21.lance"
"""A file in a table's location that is Lance's by its name."""


class Connect(Protocol):
    """Makes namespaces behind the proxy, with small budgets."""

    def __call__(self, **properties: str) -> Calls: ...


def catalog_at(endpoint: str, server: GlueServer, **properties: str) -> GlueCatalog:
    """Return a catalog for the server behind an endpoint; an empty property is left out."""
    given = {**server.properties, **BUDGETS, "endpoint": endpoint, **properties}
    return GlueCatalog(load(GlueConfig, "glue", {k: v for k, v in given.items() if v}))


def raw_table(server: GlueServer, database: str, name: str, **fields: Any) -> dict[str, Any]:
    """Make an entry as others do, and return it as Glue then has it."""
    server.glue.create_table(DatabaseName=database, TableInput={"Name": name, **fields})
    return raw(server, database, name)


def raw(server: GlueServer, database: str, name: str) -> dict[str, Any]:
    """Return an entry as Glue has it."""
    found: dict[str, Any] = server.glue.get_table(DatabaseName=database, Name=name)["Table"]
    return found


def declare(calls: Calls, database: str, name: str = "t") -> None:
    """Declare a table at ``s3://BUCKET/DATABASE/NAME``."""
    place = f"s3://{BUCKET}/{database}/{name}"
    calls.declare_table([database, name], location=place)
