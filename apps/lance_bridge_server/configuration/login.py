"""The settings of signing in to the catalog page."""

from __future__ import annotations

import os
from typing import Annotated
from urllib.parse import urlsplit

from pydantic import AfterValidator, Field, model_validator

from lance_bridge.errors import invalid

from ..authentication.provider import is_protected
from ..limits import Rate
from ..login import ProviderClient
from ..login.sealing import read_keys
from .shared import FilePath, Settings

_PARTS_OF_ADDRESS = ("", "/")


def _check_address(address: str) -> str:
    parts = urlsplit(address)
    if not is_protected(address) or parts.path not in _PARTS_OF_ADDRESS or parts.query:
        raise ValueError("must be https:// and a host, such as https://lake.example.com")
    return f"{parts.scheme}://{parts.netloc}"


class LoginSettings(Settings):
    """How users sign in to the catalog page."""

    address: Annotated[str, AfterValidator(_check_address)] | None = None
    """The server's address in browsers, such as ``https://lake.example.com``. By default it is
    taken from each request."""
    key_file: FilePath | None = None
    """A file with keys that encrypt the cookies of sessions: 32 random bytes in Base64 in each
    line. By default the server creates a key when it starts."""
    seconds: int = Field(default=43_200, ge=60, le=2_592_000)
    """How long a session lasts."""
    idle_seconds: int = Field(default=3_600, ge=60, le=2_592_000)
    """How long a session lasts without a request."""
    failures: Rate = "30/minute"
    """How many attempts to sign in may fail from one address, across all worker processes."""

    def read_keys(self) -> list[bytes]:
        """Return the keys in the file; none if it is not set. Raises InvalidInput (13)."""
        return read_keys(self.key_file) if self.key_file else []


class ProviderLoginSettings(Settings):
    """This server's client registration at an identity provider."""

    client_id: str = Field(min_length=1)
    client_secret_file: FilePath | None = None
    """A file with the client's secret; public clients have none."""
    client_secret_env: str | None = Field(default=None, pattern=r"^[A-Za-z_][A-Za-z0-9_]*$")
    """An environment variable with the secret, instead of a file."""
    scopes: list[str] = Field(default=["openid", "profile"])
    label: str = Field(default="", max_length=60)
    """The label of the button; by default the issuer's host."""

    @model_validator(mode="after")
    def _is_consistent(self) -> ProviderLoginSettings:
        if self.client_secret_file is not None and self.client_secret_env is not None:
            raise ValueError("client_secret_file and client_secret_env exclude each other")
        if "openid" not in self.scopes:
            raise ValueError("scopes must have openid")
        return self

    def make(self) -> ProviderClient:
        """Return the client. Raises InvalidInput (13) if its secret cannot be read."""
        return ProviderClient(self.client_id, self._secret(), tuple(self.scopes), self.label)

    def _secret(self) -> str | None:
        if self.client_secret_env is not None:
            found = os.environ.get(self.client_secret_env, "").strip()
            if not found:
                raise invalid(f"login.client_secret_env: ${self.client_secret_env} is not set")
            return found
        if self.client_secret_file is None:
            return None
        try:
            return self.client_secret_file.read_text("utf-8").strip()
        except (OSError, UnicodeDecodeError) as error:
            reason = error.strerror if isinstance(error, OSError) else "it is not text"
            raise invalid(f"{self.client_secret_file} cannot be read: {reason}") from error
