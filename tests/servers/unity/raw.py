"""Raw requests to a Unity server, for tests: no names are checked, nothing is repeated."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import requests

_TIMEOUT = 10.0
API = "/api/2.1/unity-catalog"


class Raw:
    """Sends requests below the path of the API, and keeps its connections."""

    def __init__(self, url: str, token: str | None = None) -> None:
        self._url = url
        self._session = requests.Session()
        self._session.trust_env = False
        if token is not None:
            self._session.headers["Authorization"] = f"Bearer {token}"

    @classmethod
    def with_schema(cls, url: str) -> Raw:
        """Return a client of a server in which it has created a schema."""
        raw = cls(url)
        raw.create_schema()
        return raw

    def send(
        self, method: str, path: str, body: Any = None, *, start: str = API, **query: str
    ) -> requests.Response:
        """Return the reply; ``body`` is sent as JSON."""
        url = f"{self._url}{start}{path}"
        return self._session.request(method, url, params=query, json=body, timeout=_TIMEOUT)

    def get(self, path: str, **query: str) -> Any:
        """Return the JSON of a reply that must be a success."""
        return self._good(self.send("GET", path, **query))

    def post(self, path: str, body: Mapping[str, Any], *, start: str = API) -> Any:
        """Return the JSON of a reply that must be a success."""
        return self._good(self.send("POST", path, body, start=start))

    def error(self, method: str, path: str, body: Any = None, **query: str) -> tuple[int, str]:
        """Return status and ``error_code`` of a reply that must be an error."""
        reply = self.send(method, path, body, **query)
        assert reply.status_code >= 400, reply.text
        return reply.status_code, str(reply.json()["error_code"])

    def create_schema(self, catalog: str = "c", schema: str = "s") -> None:
        """Make a catalog with a schema."""
        self.post("/catalogs", {"name": catalog})
        self.post("/schemas", {"name": schema, "catalog_name": catalog})

    def close(self) -> None:
        """Close the connections."""
        self._session.close()

    @staticmethod
    def _good(reply: requests.Response) -> Any:
        assert reply.status_code < 300, reply.text
        return json.loads(reply.content) if reply.content else None


def table(name: str = "t", **more: Any) -> dict[str, Any]:
    """Return a request for an external Lance table ``c.s.NAME``."""
    return {
        "name": name,
        "catalog_name": "c",
        "schema_name": "s",
        "table_type": "EXTERNAL",
        "data_source_format": "TEXT",
        "columns": [],
        "storage_location": f"s3://bucket/{name}",
        "properties": {"table_type": "lance"},
        **more,
    }


def column(name: str = "id", **more: Any) -> dict[str, Any]:
    """Return a column of a request, with its type as a whole Spark StructField."""
    field = {"name": name, "type": "long", "nullable": True, "metadata": {}}
    return {
        "name": name,
        "type_text": "BIGINT",
        "type_name": "LONG",
        "type_json": json.dumps(field),
        "position": 0,
        "nullable": True,
        **more,
    }
