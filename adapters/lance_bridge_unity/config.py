"""The properties of ``impl=unity``."""

from __future__ import annotations

import os
import re
from typing import ClassVar, Literal
from urllib.parse import urlsplit

from lance_namespace.errors import UnauthenticatedError
from pydantic import Field, SecretStr, field_validator, model_validator

from lance_bridge.catalog import Capabilities
from lance_bridge.config import (
    CallerIdentity,
    CatalogConfig,
    Seconds,
    SecondsOrZero,
    require_visible_ascii,
)
from lance_bridge.storage_options import authentication

from .mapping import capabilities

HOST_VARIABLE = "DATABRICKS_HOST"
PROFILE_VARIABLE = "DATABRICKS_CONFIG_PROFILE"
_ADDRESS = re.compile(
    r"https?://(?:[A-Za-z0-9._-]+|\[[0-9A-Fa-f:.]+\])(?::[0-9]{1,5})?(?:/[A-Za-z0-9._~/-]*)?"
)
_DATABRICKS_HOST = re.compile(
    r"(?:.+\.)?(?:databricks\.com|azuredatabricks\.net|databricks\.azure\.(?:us|cn)"
    r"|databricks\.us)",
    re.I,
)


def _check_address(url: str) -> None:
    """Raise ValueError unless it is the base URL of a server, without a user and a query."""
    if not _ADDRESS.fullmatch(url):
        raise ValueError("must be https://host or http://host, with a port and a path if any")
    if urlsplit(url).port == 0:  # raises ValueError above 65535
        raise ValueError("must not have the port 0")


def _caller(_name: str, _groups: frozenset[str], token: str | None) -> dict[str, str]:
    if token is None:
        raise UnauthenticatedError(
            "This catalog takes the caller's own token: authenticate with a bearer token"
        )
    return {"token": token}


class UnityConfig(CatalogConfig):
    """The properties of ``impl=unity``; see the descriptions of the fields."""

    caller_identity: ClassVar = CallerIdentity(_caller, ("auth_token", "client_id", "profile"))

    host: str | None = Field(
        default=None,
        description="The address of the server: `http://host:8080`, or the workspace's "
        "`https://….cloud.databricks.com`. By default `endpoint`, then the environment variable "
        "`DATABRICKS_HOST`, then the host of `profile`.",
        examples=["https://dbc-a1b2.cloud.databricks.com"],
    )
    endpoint: str | None = Field(
        default=None,
        description="Another name for `host`.",
        examples=["http://localhost:8080"],
    )
    api_path: str = Field(
        default="/api/2.1/unity-catalog",
        pattern=r"^(/[A-Za-z0-9._~-]+)+$",
        description="The path of the API under `host`.",
        examples=["/api/2.0/unity-catalog"],
    )
    server: Literal["auto", "open-source", "databricks"] = Field(
        default="auto",
        description="The type of the server. `auto` means `databricks` for hosts in Databricks' "
        "domains, with a `warehouse_id`, and with a profile instead of an address; otherwise "
        "`open-source`.",
    )
    catalog: str | None = Field(
        default=None,
        description="The only catalog to use. Identifiers are then `[schema, table]` instead of "
        "`[catalog, schema, table]`.",
        examples=["main"],
    )
    token: SecretStr | None = Field(
        default=None,
        description="A personal access token, or the bearer token of an open-source server. "
        "Without it no token is sent to such a server, and Databricks' SDK uses its unified "
        "authentication.",
    )
    auth_token: SecretStr | None = Field(default=None, description="Another name for `token`.")
    profile: str | None = Field(
        default=None,
        min_length=1,
        description="The profile of `~/.databrickscfg` that contains host and credentials.",
        examples=["workspace"],
    )
    client_id: str | None = Field(
        default=None,
        min_length=1,
        description="The service principal for OAuth, machine to machine.",
        examples=["6f1d8a52-service-principal"],
    )
    client_secret: SecretStr | None = Field(
        default=None, description="The OAuth secret of `client_id`."
    )
    warehouse_id: str | None = Field(
        default=None,
        pattern=r"^[A-Za-z0-9_-]+$",
        description="The SQL warehouse of Databricks that creates, alters and renames tables.",
        examples=["a1b2c3d4e5f60708"],
    )
    statement_timeout: Seconds = Field(
        default=300.0,
        description="Time limit for a SQL statement, including the start of the warehouse. It "
        "is then cancelled.",
    )
    connect_timeout: Seconds = Field(
        default=10.0, description="Time limit for opening a connection."
    )
    read_timeout: Seconds = Field(
        default=60.0,
        description="Time limit for a response, from the end of the request to the last byte.",
    )
    max_retries: int = Field(
        default=3,
        ge=0,
        le=100,
        description="The maximum number of retries of a request, if repeating it is safe.",
    )
    retry_timeout: SecondsOrZero = Field(
        default=20.0,
        description="How long a request is retried; `0` disables retries.",
    )
    vend: Literal["auto", "true", "false"] = Field(
        default="auto",
        alias="credentials.vend",
        description="Whether the catalog vends temporary credentials to a table's storage. `auto` "
        "requests them if no `storage.*` option has credentials, and continues without them if the "
        "server has none; with `true` that is an error.",
    )

    @property
    def address(self) -> str | None:
        """The server's base URL without a trailing slash; None if only a profile has it."""
        given = self.host or self.endpoint or os.environ.get(HOST_VARIABLE)
        if not given:
            return None
        url = given if "://" in given else f"https://{given}"
        return url.rstrip("/").removesuffix(self.api_path).rstrip("/")

    @property
    def is_databricks(self) -> bool:
        """Whether the server is Databricks, or else the open-source one."""
        if self.server != "auto":
            return self.server == "databricks"
        if self.warehouse_id or self.address is None:
            return True
        return bool(_DATABRICKS_HOST.fullmatch(urlsplit(self.address).hostname or ""))

    @property
    def bearer(self) -> SecretStr | None:
        """The token in the properties."""
        return self.token or self.auth_token

    @property
    def uses_sdk(self) -> bool:
        """Whether Databricks' SDK finds the host and credentials."""
        return self.is_databricks or bool(self.profile or self.client_id)

    @property
    def vends(self) -> bool:
        """Whether the catalog is asked for credentials at all."""
        if self.vend == "auto":
            return not authentication(self.storage)
        return self.vend == "true"

    @property
    def capabilities(self) -> Capabilities:
        """What the server can do."""
        return capabilities(
            databricks=self.is_databricks,
            pinned=self.catalog is not None,
            has_warehouse=self.warehouse_id is not None,
        )

    @field_validator("host", "endpoint")
    @classmethod
    def _host_is_an_address(cls, host: str | None) -> str | None:
        if host is not None and "://" not in host:
            raise ValueError("has no scheme: begin it with https:// or http://")
        if host is not None:
            _check_address(host)
        return host

    _secret_fits_a_header = field_validator("token", "auth_token", "client_secret")(
        require_visible_ascii
    )

    @model_validator(mode="after")
    def _fields_fit_together(self) -> UnityConfig:
        problem = self._address_problem() or self._credentials_problem() or self._catalog_problem()
        if problem:
            raise ValueError(problem)
        return self

    def _address_problem(self) -> str:
        if self.host and self.endpoint and self.host != self.endpoint:
            return "host and endpoint differ: leave one of them out"
        if self.address and not (self.host or self.endpoint):
            try:
                _check_address(self.address)
            except ValueError as error:
                return f"${HOST_VARIABLE} {error}"
        if self.address is None and not (self.profile or os.environ.get(PROFILE_VARIABLE)):
            return f"property 'host' is required (or endpoint, profile, or ${HOST_VARIABLE})"
        if self.server == "open-source" and self.warehouse_id:
            return "warehouse_id needs Databricks: it contradicts server=open-source"
        return ""

    def _credentials_problem(self) -> str:
        if self.token and self.auth_token and self.token != self.auth_token:
            return "token and auth_token differ: leave one of them out"
        if (self.client_id is None) != (self.client_secret is None):
            return "client_id and client_secret need each other"
        if self.bearer and (self.client_id or self.profile):
            return "token cannot be combined with client_id or profile: leave one of them out"
        return ""

    def _catalog_problem(self) -> str:
        if self.catalog is None:
            return ""
        rule = self.capabilities.table_rule
        if rule.pattern.fullmatch(self.catalog) and len(self.catalog) <= rule.max_length:
            return ""
        return f"catalog must consist of {rule.allowed}, {rule.max_length} of them at most"
