"""The settings of authentication methods, which create their authenticators."""

from __future__ import annotations

from ipaddress import IPv4Network, IPv6Network
from typing import Annotated, Literal

from pydantic import AfterValidator, Field

from lance_bridge.config import Seconds
from lance_bridge.errors import invalid

from ..authentication.api_keys import ApiKeys
from ..authentication.certificates import ClientCertificates, GroupsField, NameField
from ..authentication.key_file import ApiKeyFile
from ..authentication.oidc import DEFAULT_ALGORITHMS, Algorithm, OidcTokens
from ..authentication.provider import KeyLifetimes, ProviderKeys, is_protected
from ..authentication.proxy import TrustedProxy
from ..login import ProviderLogin
from .login import ProviderLoginSettings
from .shared import FilePath, Settings

_HEADER = r"^[A-Za-z0-9-]+$"


def _check_url(url: str) -> str:
    if not is_protected(url):
        raise ValueError("must begin with https://, or with http:// and an address of this machine")
    return url


Url = Annotated[str, AfterValidator(_check_url)]


class ApiKeySettings(Settings):
    """Keys that ``lance-bridge keys`` creates."""

    method: Literal["api_keys"]
    file: FilePath

    def make(self) -> ApiKeys:
        """Return the authenticator. Raises InvalidInput (13) if the file cannot be read."""
        file = ApiKeyFile(self.file)
        file.entries()
        return ApiKeys(file)


class OidcSettings(Settings):
    """Bearer tokens of an OpenID Connect provider."""

    method: Literal["oidc"]
    issuer: Url
    """Exactly as in its tokens."""
    audiences: list[str] = Field(min_length=1)
    """The audiences of which a token must have one."""
    discovery: Url | None = None
    """The address of the discovery document, if it is not below the issuer."""
    algorithms: list[Algorithm] = Field(default=list(DEFAULT_ALGORITHMS), min_length=1)
    name_claim: str = "sub"
    groups_claim: str | None = "groups"
    """Dots select fields of objects, as in ``realm_access.roles``."""
    claims: dict[str, str] = Field(default={})
    """Values that other claims must have."""
    leeway: int = Field(default=60, ge=0, le=600)
    """The allowed clock skew, in seconds."""
    refresh: Seconds = 3600.0
    """The age of keys, in seconds, after which they are fetched again."""
    cooldown: Seconds = 30.0
    """The least number of seconds between two attempts to fetch keys."""
    keep: Seconds = 86_400.0
    """How many seconds keys are used while the provider does not respond."""
    timeout: Seconds = 5.0
    ca_file: FilePath | None = None
    """PEM certificates of the authorities that verify the provider's TLS certificate."""
    login: ProviderLoginSettings | None = None
    """How users sign in to the catalog page at this provider; if unset, they cannot."""

    def make(self) -> OidcTokens:
        """Return the authenticator; no call is made. Raises InvalidInput (13): a bad ca_file."""
        return self._tokens(self._keys(), self.audiences)

    def make_login(self) -> ProviderLogin | None:
        """Return the provider's login, or None. Raises InvalidInput (13) as `login.make`."""
        if self.login is None:
            return None
        client, keys = self.login.make(), self._keys()
        return ProviderLogin(client, keys, self._tokens(keys, [client.client_id]))

    def _keys(self) -> ProviderKeys:
        lifetimes = KeyLifetimes(self.refresh, self.cooldown, self.keep, self.timeout)
        try:
            return ProviderKeys(self.issuer, self.discovery, lifetimes, self.ca_file)
        except OSError as error:  # also of TLS
            reason = error.strerror or type(error).__name__
            raise invalid(f"ca_file {self.ca_file} cannot be used: {reason}") from error

    def _tokens(self, keys: ProviderKeys, audiences: list[str]) -> OidcTokens:
        return OidcTokens(
            keys,
            audiences,
            algorithms=self.algorithms,
            name_claim=self.name_claim,
            groups_claim=self.groups_claim,
            claims=self.claims,
            leeway=self.leeway,
        )


class CertificateSettings(Settings):
    """Certificates of clients, which TLS verifies."""

    method: Literal["client_certificates"]
    name: NameField = "common_name"
    groups: GroupsField | None = None

    def make(self) -> ClientCertificates:
        """Return the authenticator."""
        return ClientCertificates(self.name, self.groups)


class ProxySettings(Settings):
    """A proxy that has authenticated the user."""

    method: Literal["proxy"]
    networks: list[IPv4Network | IPv6Network | Literal["unix"]] = Field(min_length=1)
    """The addresses of proxies, such as ``10.1.2.0/24``; ``unix`` for unix sockets."""
    header: str = Field(default="x-forwarded-user", pattern=_HEADER)
    groups_header: str | None = Field(default=None, pattern=_HEADER)
    """None by default: a proxy that sets only the name may pass on this header from the client."""

    def make(self) -> TrustedProxy:
        """Return the authenticator."""
        networks = [each for each in self.networks if each != "unix"]
        return TrustedProxy(
            self.header, self.groups_header, networks, unix_socket="unix" in self.networks
        )


Method = Annotated[
    ApiKeySettings | OidcSettings | CertificateSettings | ProxySettings,
    Field(discriminator="method"),
]
