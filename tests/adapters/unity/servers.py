"""What tests of the Unity adapter share."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from servers.http_proxy import Answer
from servers.unity import UnityServer
from servers.unity.dialects import Dialect

from lance_bridge.catalog import TableRecord
from lance_bridge_unity.catalog import UnityCatalog

Connect = Callable[..., UnityCatalog]
"""Makes catalogs with these properties."""
API = "/api/2.1/unity-catalog"
ID = "lance_bridge.id"
TABLE = ("c", "s", "t")


def record(name: str = "t", own: str = "1", root: str = "file:///data", **more: str) -> TableRecord:
    """Return a Lance table in the schema ``c.s``, with this id."""
    return TableRecord(
        (*TABLE[:2], name), f"{root}/{name}", {"table_type": "lance", ID: own, **more}
    )


@contextmanager
def server_with_schema(dialect: Dialect) -> Iterator[UnityServer]:
    """Run a server that has a catalog ``c`` and a schema ``c.s``."""
    with UnityServer(dialect) as running:
        running.add_catalog("c")
        running.add_schema("c", "s")
        yield running


def failed(code: str, message: str) -> Answer:
    """Return the reply to a statement that failed."""
    status = {"state": "FAILED", "error": {"error_code": code, "message": message}}
    return Answer.of_json(200, {"statement_id": "1", "status": status})
