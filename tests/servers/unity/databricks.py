"""What only Databricks does: Delta tables through REST, others through SQL, tokens and OAuth."""

from __future__ import annotations

import base64
import binascii
import itertools
import time
from urllib.parse import parse_qs

from . import rules
from .catalog_api import PREFIX, CatalogApi, Credentials
from .dialects import ErrorKind, Level
from .http import Answer, ApiError, Request, Route
from .rules import cloud_location
from .state import State
from .warehouse import StatementApi, Warehouse

_HOST_ONLY = ("",)
WAREHOUSE_ID = "double-warehouse"
_OLD_PREFIX = "/api/2.0/unity-catalog"


class Authority:
    """Issues and checks tokens.

    ``lifetime`` (seconds) is that of tokens issued from now on. `revoke` ends all that were issued.
    """

    def __init__(self) -> None:
        self.tokens: set[str] = {"dapi-double"}
        """Personal tokens, which do not end."""
        self.clients: dict[str, str] = {"double-client": "double-secret"}
        self.lifetime = 3600.0
        self.issued = 0
        """How many tokens were issued."""
        self._ends: dict[str, float] = {}
        self._numbers = itertools.count(1)

    def routes(self) -> list[Route]:
        """Return the operations, none of which needs a token."""
        return [
            Route(method, path, handler, _HOST_ONLY, needs_token=False)
            for method, path, handler in (
                ("GET", "/.well-known/databricks-config", self.host_metadata),
                ("GET", "/oidc/.well-known/oauth-authorization-server", self.endpoints),
                ("POST", "/oidc/v1/token", self.token),
            )
        ]

    def host_metadata(self, request: Request) -> Answer:
        content = {"oidc_endpoint": f"http://{request.headers['host']}/oidc"}
        return Answer.of_json({**content, "workspace_id": "1", "cloud": "AWS"})

    def endpoints(self, request: Request) -> Answer:
        start = f"http://{request.headers['host']}/oidc/v1"
        content = {"authorization_endpoint": f"{start}/authorize"}
        return Answer.of_json({**content, "token_endpoint": f"{start}/token"})

    def token(self, request: Request) -> Answer:
        form = {key: values[0] for key, values in parse_qs(request.raw.decode()).items()}
        if form.get("grant_type") != "client_credentials":
            return _oauth_error("unsupported_grant_type", form.get("grant_type", ""))
        client, secret = _basic(request) or (
            form.get("client_id", ""),
            form.get("client_secret", ""),
        )
        if not client or self.clients.get(client) != secret:
            return _oauth_error("invalid_client", "Client authentication failed", 401)
        token = f"oauth-{next(self._numbers)}"
        self._ends[token] = time.monotonic() + self.lifetime
        self.issued += 1
        content = {"access_token": token, "token_type": "Bearer", "scope": form.get("scope", "")}
        return Answer.of_json({**content, "expires_in": int(self.lifetime)})

    def revoke(self) -> None:
        """End every token that was issued; personal ones stay."""
        self._ends = dict.fromkeys(self._ends, 0.0)

    def require(self, request: Request) -> None:
        """Raises ApiError where the request has no token that counts."""
        scheme, _, token = request.headers.get("authorization", "").partition(" ")
        if scheme != "Bearer" or not token:
            text = "Credential was not sent or was of an unsupported type for this API."
            raise ApiError(ErrorKind(401, "UNAUTHENTICATED"), text)
        if token in self.tokens:
            return
        if token not in self._ends:
            raise ApiError(ErrorKind(403, "403"), "Invalid access token.")
        if time.monotonic() >= self._ends[token]:
            raise ApiError(ErrorKind(401, "UNAUTHENTICATED"), "Token is expired.")


def _basic(request: Request) -> tuple[str, str] | None:
    scheme, _, encoded = request.headers.get("authorization", "").partition(" ")
    if scheme != "Basic":
        return None
    try:
        user, _, secret = base64.b64decode(encoded).decode().partition(":")
    except (binascii.Error, UnicodeDecodeError):
        return None
    return user, secret


def _oauth_error(code: str, text: str, status: int = 400) -> Answer:
    return Answer.of_json({"error": code, "error_description": text}, status)


class DatabricksApi(CatalogApi):
    """Unity Catalog of a Databricks workspace, with one SQL warehouse."""

    def __init__(self, state: State, credentials: Credentials) -> None:
        super().__init__(state)
        self._credentials = credentials
        self.authority = Authority()
        self.warehouse = Warehouse(self)
        self.statements = StatementApi(self.warehouse, WAREHOUSE_ID)

    def routes(self) -> list[Route]:
        return [
            *super().routes(),
            *self._credentials.routes((_OLD_PREFIX, PREFIX)),
            *self.statements.routes(),
            *self.authority.routes(),
        ]

    def create_catalog(self, request: Request) -> Answer:
        """A new catalog has two schemas, of which one cannot be dropped."""
        answer = super().create_catalog(request)
        catalog = self.catalog(request.fields["name"])
        for name in ("default", "information_schema"):
            place = {"catalog_name": catalog.name, "full_name": f"{catalog.name}.{name}"}
            self.put(catalog.children, self.make(Level.SCHEMA, {"name": name}, place), name)
        return answer

    def create_table(self, request: Request) -> Answer:
        """External Delta tables only."""
        body = request.fields
        if (body.get("table_type"), body.get("data_source_format")) != ("EXTERNAL", "DELTA"):
            text = "Only EXTERNAL tables in DELTA format can be created through this API."
            raise ApiError(self.dialect.invalid, text)
        parent = self.schema(str(body.get("catalog_name")), str(body.get("schema_name")))
        try:
            location = cloud_location(str(body.get("storage_location")))
        except ValueError as error:
            raise ApiError(self.dialect.invalid, str(error)) from error
        more = {
            "catalog_name": parent.info["catalog_name"],
            "schema_name": parent.name,
            "table_type": "EXTERNAL",
            "data_source_format": "DELTA",
            "columns": rules.require_columns(body, self.dialect),
            "storage_location": location,
        }
        entry = self.make(Level.TABLE, body, more)
        entry.info["full_name"] = f"{parent.info['full_name']}.{entry.name}"
        self.put(parent.children, entry, entry.info["full_name"])
        return Answer(200, entry.json())

    def delete_schema(self, request: Request) -> Answer:
        if request.parameters["full_name"].lower().endswith(".information_schema"):
            text = "Schema 'information_schema' is a system schema and cannot be deleted."
            raise ApiError(self.dialect.invalid, text)
        return super().delete_schema(request)
