"""The properties of ``impl=hive``, and the endpoints in ``uri``."""

from __future__ import annotations

import os
import re
from dataclasses import dataclass
from typing import ClassVar, Literal
from urllib.parse import SplitResult, urlsplit

from lance_namespace.errors import PermissionDeniedError
from pydantic import Field, SecretStr, field_validator, model_validator

from lance_bridge.config import (
    CallerIdentity,
    CatalogConfig,
    Seconds,
    SecondsOrZero,
    require_visible_ascii,
)

from .tokens import parse_token

TOKEN_FILE_VARIABLE = "HADOOP_TOKEN_FILE_LOCATION"
"""The variable of the environment with which Hadoop's schedulers name the file of tokens."""


_USER = re.compile(r"[^\s:,]+(?: [^\s:,]+)*")


def _caller(name: str, groups: frozenset[str], _token: str | None) -> dict[str, str]:
    if not _USER.fullmatch(name):
        raise PermissionDeniedError(f"The catalog does not accept the user name '{name}'")
    known = sorted(each for each in groups if _USER.fullmatch(each))
    return {"ugi": f"{name}:{','.join(known)}" if known else name}


class HiveConfig(CatalogConfig):
    """The properties of ``impl=hive``; see the descriptions of the fields."""

    caller_identity: ClassVar = CallerIdentity(_caller, ("auth.mechanism", "http.token"))

    uri: str = Field(
        description="The address of the metastore: `thrift://host:9083`, or `http(s)://host:port/"
        "metastore` for the HTTP transport of Hive 4. Several, separated by commas, are tried in "
        "turn, starting with the one that responded last.",
        examples=["thrift://metastore:9083"],
    )
    pool_size: int = Field(
        default=8,
        ge=1,
        le=1024,
        alias="client.pool-size",
        description="The maximum number of open connections, which are opened when needed. "
        "Further threads wait for a free one.",
    )
    connect_timeout: Seconds = Field(
        default=10.0,
        alias="client.connect-timeout",
        description="Time limit for opening a connection, including encryption and authentication.",
    )
    timeout: Seconds = Field(
        default=60.0,
        alias="client.timeout",
        description="Time limit for a call, from the first byte sent to the last received, "
        "and for waiting for a free connection.",
    )
    retry_timeout: SecondsOrZero = Field(
        default=20.0,
        alias="client.retry-timeout",
        description="How long a failed call is retried, if repeating it is safe; `0` disables "
        "retries.",
    )
    idle_timeout: Seconds = Field(
        default=240.0,
        alias="client.idle-timeout",
        description="A connection that was idle for longer is replaced: firewalls and load "
        "balancers drop idle connections silently.",
    )
    max_message_size: int = Field(
        default=104_857_600,
        ge=65_536,
        le=0x3FFFFFFF,
        alias="client.max-message-size",
        description="The maximum size of a reply, in bytes.",
    )
    framed: bool = Field(
        default=False,
        alias="client.framed",
        description="Whether the metastore uses the framed transport "
        "(`hive.metastore.thrift.framed.transport.enabled`).",
    )
    catalog_levels: bool = Field(
        default=False,
        description="Whether identifiers start with a Hive catalog: `[catalog, database, table]`. "
        "Requires Hive 3.1 or later.",
    )
    ugi: str | None = Field(
        default=None,
        description="The user of the calls, if the metastore does not authenticate: `user` or "
        "`user:group1,group2`. Over HTTP only the user is sent, by default the user of the "
        "operating system.",
        examples=["alice:analysts"],
    )
    auth_mechanism: Literal["none", "plain", "kerberos", "delegation-token"] = Field(
        default="none",
        alias="auth.mechanism",
        description="How to authenticate over SASL: `plain` sends `auth.username` and "
        "`auth.password`, `kerberos` uses the tickets of the process (`pip install "
        "'lance-bridge[hive-kerberos]'`), and `delegation-token` a token that the metastore has "
        "given to someone with a ticket (DIGEST-MD5).",
    )
    auth_username: str | None = Field(
        default=None,
        alias="auth.username",
        description="The user for `auth.mechanism=plain`.",
        examples=["alice"],
    )
    auth_password: SecretStr | None = Field(
        default=None, alias="auth.password", description="The password for `auth.mechanism=plain`."
    )
    auth_token: SecretStr | None = Field(
        default=None,
        alias="auth.token",
        description="The delegation token for `auth.mechanism=delegation-token`, as the "
        "metastore's `get_delegation_token` returns it.",
    )
    auth_token_file: str | None = Field(
        default=None,
        min_length=1,
        alias="auth.token-file",
        description="A file of Hadoop's tokens, which is read for each new connection, in place of "
        "`auth.token`. By default, the one that `HADOOP_TOKEN_FILE_LOCATION` names.",
        examples=["/run/secrets/hadoop.token"],
    )
    auth_token_service: str = Field(
        default="",
        alias="auth.token-service",
        description="The service of the token in the file, if the client that got it set one "
        "(`hive.metastore.token.signature`).",
        examples=["metastore"],
    )
    kerberos_service: str = Field(
        default="hive",
        min_length=1,
        alias="auth.kerberos.service-name",
        description="The first part of the metastore's principal (`hive` of `hive/host@REALM`).",
        examples=["hive-metastore"],
    )
    kerberos_host: str | None = Field(
        default=None,
        min_length=1,
        alias="auth.kerberos.host",
        description="The host part of the metastore's principal, if it differs from the host in "
        "`uri`.",
        examples=["metastore.example.com"],
    )
    tls_enabled: bool = Field(
        default=False,
        alias="tls.enabled",
        description="Whether `thrift://` connections are encrypted; `https://` always are.",
    )
    tls_ca_file: str | None = Field(
        default=None,
        alias="tls.ca-file",
        description="PEM file of the certificate authorities to trust. By default, those of "
        "the system.",
        examples=["/etc/ssl/ca.pem"],
    )
    tls_cert_file: str | None = Field(
        default=None,
        alias="tls.cert-file",
        description="PEM file of the client's certificate, if the metastore requires one.",
        examples=["/etc/ssl/client.pem"],
    )
    tls_key_file: str | None = Field(
        default=None,
        alias="tls.key-file",
        description="PEM file of the client's private key, unencrypted, if it is not in "
        "`tls.cert-file`.",
        examples=["/etc/ssl/client.key"],
    )
    tls_verify: bool = Field(
        default=True,
        alias="tls.verify",
        description="Whether the metastore's certificate and host name are verified. If not, "
        "an attacker can read and change the traffic.",
    )
    http_token: SecretStr | None = Field(
        default=None,
        alias="http.token",
        description="The bearer token (JWT) sent over the HTTP transport.",
    )

    @property
    def token_file(self) -> str | None:
        """The file of Hadoop's tokens."""
        return self.auth_token_file or os.environ.get(TOKEN_FILE_VARIABLE) or None

    @property
    def endpoints(self) -> tuple[Endpoint, ...]:
        """The endpoints in ``uri``, in their order."""
        return parse_endpoints(self.uri)

    @property
    def user(self) -> tuple[str, list[str]] | None:
        """The user and groups that ``ugi`` names."""
        return _user_and_groups(self.ugi)

    @property
    def is_http(self) -> bool:
        """True if Thrift messages are sent as HTTP requests."""
        return self.endpoints[0].is_http

    @field_validator("uri")
    @classmethod
    def _uri_is_well_formed(cls, uri: str) -> str:
        parse_endpoints(uri)
        return uri

    @field_validator("ugi")
    @classmethod
    def _ugi_names_a_user(cls, ugi: str | None) -> str | None:
        _user_and_groups(ugi)
        return ugi

    _token_fits_a_header = field_validator("http_token")(require_visible_ascii)

    @model_validator(mode="after")
    def _fields_fit_together(self) -> HiveConfig:
        for problem in (
            self._sasl_problem(),
            self._token_problem(),
            self._transport_problem(),
            self._http_problem() if self.is_http else "",
        ):
            if problem:
                raise ValueError(problem)
        return self

    def _sasl_problem(self) -> str:
        plain = self.auth_mechanism == "plain"
        if plain and not (self.auth_username and self.auth_password is not None):
            return "auth.mechanism=plain needs auth.username and auth.password"
        if not plain and (self.auth_username or self.auth_password is not None):
            return "auth.username and auth.password need auth.mechanism=plain"
        if self.kerberos_host and self.auth_mechanism != "kerberos":
            return "auth.kerberos.host needs auth.mechanism=kerberos"
        if self.auth_mechanism != "none" and self.framed:
            return "client.framed cannot be combined with auth.mechanism: Hive frames SASL itself"
        if self.auth_mechanism != "none" and self.ugi is not None:
            return "ugi has no effect with auth.mechanism: remove one of them"
        return ""

    def _token_problem(self) -> str:
        named = {
            "auth.token": self.auth_token is not None,
            "auth.token-file": self.auth_token_file is not None,
            "auth.token-service": bool(self.auth_token_service),
        }
        if self.auth_mechanism != "delegation-token":
            key = next((key for key, is_set in named.items() if is_set), None)
            return f"{key} needs auth.mechanism=delegation-token" if key else ""
        if named["auth.token"] and (named["auth.token-file"] or named["auth.token-service"]):
            return "auth.token cannot be combined with auth.token-file and auth.token-service"
        if not named["auth.token"] and self.token_file is None:
            return (
                "auth.mechanism=delegation-token needs auth.token, auth.token-file, or "
                f"${TOKEN_FILE_VARIABLE}"
            )
        try:
            if self.auth_token is not None:
                parse_token(self.auth_token.get_secret_value())
        except ValueError as error:
            return f"auth.token: {error}"
        return ""

    def _transport_problem(self) -> str:
        encrypted = self.tls_enabled or any(e.scheme == "https" for e in self.endpoints)
        given = {
            "tls.ca-file": self.tls_ca_file is not None,
            "tls.cert-file": self.tls_cert_file is not None,
            "tls.key-file": self.tls_key_file is not None,
            "tls.verify": not self.tls_verify,
        }
        if not encrypted and any(given.values()):
            key = next(key for key, present in given.items() if present)
            return f"{key} needs tls.enabled=true, or an https:// uri"
        if self.tls_key_file is not None and self.tls_cert_file is None:
            return "tls.key-file needs tls.cert-file"
        if self.http_token is not None and not self.is_http:
            return "http.token needs an http(s):// uri"
        return ""

    def _http_problem(self) -> str:
        if self.auth_mechanism != "none":
            return "auth.mechanism cannot be combined with an http(s):// uri: use http.token"
        if self.framed:
            return "client.framed cannot be combined with an http(s):// uri"
        if self.tls_enabled and any(e.scheme == "http" for e in self.endpoints):
            return "tls.enabled=true contradicts an http:// uri: write https://"
        return ""


def _user_and_groups(ugi: str | None) -> tuple[str, list[str]] | None:
    if ugi is None:
        return None
    user, colon, rest = ugi.partition(":")
    groups = [group.strip() for group in rest.split(",")] if colon else []
    if not user.strip() or not all(groups) or not ugi.isprintable():
        raise ValueError("write user, or user:group1,group2")
    return user.strip(), groups


# -- endpoints -------------------------------------------------------------------------------------

Scheme = Literal["thrift", "http", "https"]

_DEFAULT_PORTS: dict[Scheme, int] = {"thrift": 9083, "http": 9083, "https": 9083}
_HTTP_PATH = "/metastore"
_EXAMPLE = "write thrift://host:9083, or http(s)://host:port/metastore"


@dataclass(frozen=True)
class Endpoint:
    """The address of a metastore."""

    scheme: Scheme
    host: str
    port: int
    path: str = ""
    """The HTTP path; empty for ``thrift``."""

    def __str__(self) -> str:
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{self.scheme}://{host}:{self.port}{self.path}"

    @property
    def is_http(self) -> bool:
        """True if Thrift messages are sent as HTTP requests."""
        return self.scheme != "thrift"


def parse_endpoints(text: str) -> tuple[Endpoint, ...]:
    """Return the endpoints of a comma-separated list of URIs, in their order, each once.

    Raises:
        ValueError: A URI is malformed, or the schemes are mixed. The message says what to write
            and repeats nothing of what may be a secret: user information, query, fragment.
    """
    _refuse_secrets(text)
    parts = [part.strip() for part in text.split(",")]
    if not all(parts):
        raise ValueError(f"an empty URI between commas: {_EXAMPLE}")
    endpoints = tuple(dict.fromkeys(_parse(part) for part in parts))
    if len({endpoint.is_http for endpoint in endpoints}) > 1:
        raise ValueError("thrift:// and http(s):// cannot be mixed in one list")
    return endpoints


def _refuse_secrets(text: str) -> None:
    # Before the list is split: a comma may be part of a password.
    if "@" in text:
        raise ValueError(
            "a URI must not carry a user or password: write auth.username and auth.password, or "
            "http.token"
        )
    if "?" in text or "#" in text:
        raise ValueError(f"a URI must not have a query or fragment: {_EXAMPLE}")


def _parse(text: str) -> Endpoint:
    if "://" not in text:
        raise ValueError(f"'{text}' has no scheme: write thrift://{text}")
    try:
        split = urlsplit(text)
        port = split.port
    except ValueError:
        # A password instead of the port is malformed too: neither message nor cause may show it.
        raise ValueError(f"a URI is malformed, perhaps its port: {_EXAMPLE}") from None
    if split.scheme not in _DEFAULT_PORTS:
        raise ValueError(f"'{text}' has the unknown scheme '{split.scheme}': {_EXAMPLE}")
    scheme = split.scheme
    if not split.hostname or any(c.isspace() for c in text) or port == 0:
        raise ValueError(f"'{text}' names no host or no valid port: {_EXAMPLE}")
    return Endpoint(scheme, split.hostname, port or _DEFAULT_PORTS[scheme], _path(split))


def _path(split: SplitResult) -> str:
    if split.scheme == "thrift":
        if split.path not in ("", "/"):
            raise ValueError(f"'{split.geturl()}' must not have a path: {_EXAMPLE}")
        return ""
    return split.path if split.path not in ("", "/") else _HTTP_PATH
