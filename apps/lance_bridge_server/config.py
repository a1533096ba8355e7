"""The configuration of a server: its settings, and the file and options that they are read from."""

from __future__ import annotations

import difflib
import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from ipaddress import IPv4Network, IPv6Network, ip_address
from pathlib import Path
from typing import Annotated, Any, Literal, get_args, get_type_hints
from urllib.parse import urlsplit

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    ValidationError,
    model_validator,
)

from lance_bridge.config import Seconds
from lance_bridge.config_file import read_mapping
from lance_bridge.errors import invalid
from lance_bridge.storage_options import may_be_credential

from .access.audit import AuditLog, Rotation, open_audit_log
from .access.authentication import (
    ApiKeyFile,
    ApiKeys,
    ClientCertificates,
    GroupsField,
    NameField,
    TrustedProxy,
)
from .access.authorizer import Authorizer, make_authorizer
from .access.login import ProviderClient, ProviderLogin, read_keys
from .access.oidc import (
    DEFAULT_ALGORITHMS,
    Algorithm,
    KeyLifetimes,
    OidcTokens,
    ProviderKeys,
    is_protected,
)
from .access.origins import CorsSettings, host_name
from .gateway.breakers import ReadinessSettings
from .gateway.limits import Limits, Rate
from .lancedb import DatabasePaths
from .queries.pool import QuerySettings

# -- settings --------------------------------------------------------------------------------------


# -- types -----------------------------------------------------------------------------------------


FilePath = Annotated[Path, AfterValidator(Path.expanduser)]


class Settings(BaseModel):
    """Immutable settings. Messages about them repeat no values."""

    model_config = ConfigDict(
        extra="forbid", frozen=True, hide_input_in_errors=True, validate_default=True
    )


# -- sign-in ---------------------------------------------------------------------------------------


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


# -- authentication --------------------------------------------------------------------------------


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


# -- server ----------------------------------------------------------------------------------------


DEFAULT_HOST, DEFAULT_PORT = "127.0.0.1", 2333


class Listener(Settings):
    """An address to listen at: a host and port, or a unix socket."""

    host: str = Field(default=DEFAULT_HOST, min_length=1)
    port: int = Field(default=DEFAULT_PORT, ge=0, le=65_535)
    """0 selects a free port."""
    socket: FilePath | None = None
    mode: str = Field(default="0600", pattern=r"^0?[0-7]{3}$")
    """The permissions of the unix socket, as ``chmod`` takes them."""

    @model_validator(mode="after")
    def _is_one_address(self) -> Listener:
        if self.socket is not None and {"host", "port"} & self.model_fields_set:
            raise ValueError("a listener has a host and port, or a socket, not both")
        return self

    @property
    def is_local(self) -> bool:
        """Whether only this machine can reach it."""
        if self.socket is not None or self.host == "localhost":
            return True
        try:
            return ip_address(self.host).is_loopback
        except ValueError:
            return False


class TlsSettings(Settings):
    """Certificates, as PEM files."""

    certificate: FilePath
    """The server's certificate, followed by the intermediate certificates."""
    key: FilePath
    key_password_file: FilePath | None = None
    client_ca: FilePath | None = None
    """The authorities of clients' certificates."""
    client_certificates: Literal["optional", "required"] = "optional"
    """Whether TLS refuses clients without a certificate. Needs `client_ca`."""

    @model_validator(mode="after")
    def _has_client_ca(self) -> TlsSettings:
        if self.client_certificates == "required" and self.client_ca is None:
            raise ValueError("client_certificates: required needs client_ca")
        return self


class AuthorizationSettings(Settings):
    """The authorizer."""

    method: str = "none"
    """``none``: every principal may do everything that the catalogs allow this server. ``cedar``:
    what policies allow. Otherwise the name of another package's authorizer."""
    policies: FilePath | None = None
    """For ``cedar``: a file of policies, or a directory with files ``*.cedar``."""
    check_seconds: Seconds = 1.0
    """For ``cedar``: the least number of seconds between two checks of the files for changes."""
    options: dict[str, Any] = Field(default={}, repr=False)
    """For another package's authorizer."""

    @model_validator(mode="after")
    def _is_of_its_method(self) -> AuthorizationSettings:
        if (self.method == "cedar") != (self.policies is not None):
            raise ValueError("policies are for method: cedar, which needs them")
        if self.options and self.method in ("none", "cedar"):
            raise ValueError("options are for authorizers of other packages")
        return self

    def make(self) -> Authorizer:
        """Return the authorizer.

        Raises:
            InvalidInputError: (13) it is unknown, or a policy is wrong.
            UnsupportedOperationError: (0) it cannot be loaded.
        """
        if self.method != "cedar":
            return make_authorizer(self.method, self.options)
        options = {"policies": self.policies, "check_seconds": self.check_seconds}
        return make_authorizer(self.method, options)


class AuditSettings(Settings):
    """The audit log."""

    to: Literal["none", "stdout", "logger"] | FilePath = "none"
    """A file, standard output, or the logger ``lance_bridge.audit``."""
    rotation: Rotation = "size"
    """When a new file replaces the current one: by ``size``, before it exceeds `max_bytes`;
    ``daily``, at midnight UTC; or by an ``external`` program."""
    max_bytes: int = Field(default=100 << 20, gt=0)
    backups: int = Field(default=10, ge=1)
    """How many replaced files are kept."""
    refuse_changes: bool = False
    """Whether changes are refused if their lines cannot be written."""

    def make(self) -> AuditLog | None:
        """Return the log, or None. Raises InvalidInput (13) if the file cannot be opened."""
        if self.to == "none":
            return None
        return open_audit_log(
            self.to,
            rotation=self.rotation,
            max_bytes=self.max_bytes,
            backups=self.backups,
            refuse_changes=self.refuse_changes,
        )


class CallerIdentitySettings(Settings):
    """Catalogs that are called as the principal instead of as this server."""

    catalogs: list[str] = Field(default=[])
    """Names of Hive, Glue and Unity catalogs."""
    max_callers: int = Field(default=100, ge=1, le=10_000)
    """For how many callers each catalog keeps connections."""


class LogSettings(Settings):
    """The log that the server writes to standard error."""

    format: Literal["text", "json"] = "text"
    level: Literal["debug", "info", "warning", "error"] = "info"


def catalogs_by_name(catalogs: Any) -> Any:
    """Return catalogs as a mapping. A list contains names from the user's configuration file."""
    return {str(each): {} for each in catalogs} if isinstance(catalogs, list) else catalogs


def _check_public(option: str) -> str:
    if may_be_credential(option):
        raise ValueError(f"'{option[:60]}' may be a credential")
    return option


OptionName = Annotated[str, Field(pattern=r"^[a-z0-9_]+$"), AfterValidator(_check_public)]
PUBLIC_STORAGE_OPTIONS = (
    "account_name", "allow_http", "default_region", "endpoint", "endpoint_url", "region",
    "request_payer", "s3_express", "skip_signature", "use_fabric_endpoint",
    "virtual_hosted_style_request",
)  # fmt: skip
CatalogName = Annotated[str, Field(pattern=r"^[A-Za-z0-9_][A-Za-z0-9_-]{0,127}$")]


class ServerSettings(Settings):
    """The configuration of a server."""

    catalogs: Annotated[
        dict[CatalogName, dict[str, Any]], BeforeValidator(catalogs_by_name), Field(min_length=1)
    ] = Field(repr=False)
    """The catalogs by name, each with ``impl`` and its properties. One without ``impl`` comes from
    the user's configuration file, and these properties are added to those in that file."""
    root: str | None = None
    """The catalog that is the root namespace itself. By default the catalogs are its children."""
    listeners: list[Listener] = Field(default=[Listener()], min_length=1)
    tls: TlsSettings | None = None
    authentication: list[Method] = Field(default=[])
    """Methods of authentication, in order."""
    allow_anonymous: bool = False
    """Whether requests without credentials are served."""
    authorization: AuthorizationSettings = AuthorizationSettings()
    audit: AuditSettings = AuditSettings()
    caller_identity: CallerIdentitySettings = CallerIdentitySettings()
    public_storage_options: list[OptionName] = Field(default=list(PUBLIC_STORAGE_OPTIONS))
    """Options of `storage.*` that responses may contain, with or without the prefix of the store.
    Other options are never sent to clients, except credentials that a catalog vends for a table."""
    limits: Limits = Limits()
    queries: QuerySettings = QuerySettings()
    databases: DatabasePaths = DatabasePaths()
    cors: CorsSettings | None = None
    """Which web pages may make requests; none by default."""
    readiness: ReadinessSettings = ReadinessSettings()
    anonymous_metrics: bool = False
    """Whether `/metrics` is served without credentials."""
    ui: bool = True
    """Whether the catalog page is served, at `/ui`."""
    login: LoginSettings = LoginSettings()
    """How users sign in to it."""
    workers: int = Field(default=1, ge=1, le=256)
    """The number of processes."""
    stop_seconds: int = Field(default=30, ge=0, le=3600)
    """How long requests may continue after the signal to stop."""
    drain_seconds: float = Field(default=1.0, ge=0, le=3600, allow_inf_nan=False)
    """How long new connections are still accepted after that, while any are open."""
    log: LogSettings = LogSettings()

    @model_validator(mode="after")
    def _is_consistent(self) -> ServerSettings:
        for check in (
            self._check_root,
            self._check_tls,
            self._check_addresses,
            self._check_audit,
        ):
            check()
        return self

    def hosts(self) -> frozenset[str] | None:
        """Return the host names served besides localhost and IP addresses; None for all."""
        if self.authentication or self.allow_anonymous:
            return None
        names = [each.host.lower() for each in self.listeners if each.socket is None]
        if self.login.address is not None:
            names.append(host_name(urlsplit(self.login.address).netloc))
        return frozenset(names)

    def _check_root(self) -> None:
        if self.root is not None and list(self.catalogs) != [self.root]:
            known = ", ".join(self.catalogs)
            raise ValueError(
                f"root: '{self.root}' must be the one catalog, but the catalogs are {known}: "
                "without root, the catalogs are the children of the root namespace"
            )

    def _check_tls(self) -> None:
        if self.tls is not None and any(each.socket is not None for each in self.listeners):
            raise ValueError("tls does not apply to a unix socket")
        wants = any(each.method == "client_certificates" for each in self.authentication)
        if wants and (self.tls is None or self.tls.client_ca is None):
            raise ValueError("authentication by client_certificates needs tls.client_ca")

    def _check_audit(self) -> None:
        is_file = isinstance(self.audit.to, Path)
        if is_file and self.workers > 1 and self.audit.rotation != "external":
            raise ValueError(
                "audit: several workers cannot rotate one file: set rotation: external, and have "
                "another program do it"
            )

    def _check_addresses(self) -> None:
        if self.authentication or self.allow_anonymous:
            return
        for each in self.listeners:
            if not each.is_local:
                raise ValueError(
                    f"{each.host} can be reached from other machines, and requests are not "
                    "authenticated: configure authentication, or allow this with allow_anonymous "
                    "(--allow-anonymous)"
                )


# -- configuration files ---------------------------------------------------------------------------


CONFIG_VARIABLE = "LANCE_BRIDGE_SERVER_CONFIG"
_ARGUMENTS = "the options of the command"


@dataclass(frozen=True)
class SettingsSource:
    """Reads the configuration; worker processes and reloads read it again.

    Args:
        file: The configuration file.
        overrides: Top-level keys that replace those of the file.
        catalogs: Catalogs that are added to those of the file: name to ``impl`` and properties,
            which override those of the file and of the environment.
    """

    file: Path | None = None
    overrides: Mapping[str, Any] = field(default_factory=dict)
    catalogs: Mapping[str, Mapping[str, str]] = field(default_factory=dict, repr=False)
    content: Mapping[str, Any] | None = field(default=None, repr=False)
    """The file's content when the source was pinned; None reads the file each time."""

    @classmethod
    def of_environment(cls) -> SettingsSource:
        """Return the file that ``LANCE_BRIDGE_SERVER_CONFIG`` names.

        Raises:
            InvalidInputError: (13) the variable is not set.
        """
        named = os.environ.get(CONFIG_VARIABLE)
        if not named:
            raise invalid(f"${CONFIG_VARIABLE} must name the configuration file of the server")
        return cls(Path(named))

    def pinned(self) -> SettingsSource:
        """Return a source that keeps the file's current content, even if the file changes.

        Raises:
            InvalidInputError: (13) the file cannot be read.
        """
        return replace(self, content=read_mapping(self.file) if self.file else {})

    def unpinned(self) -> SettingsSource:
        """Return a source that reads the file each time."""
        return replace(self, content=None)

    def read(self) -> ServerSettings:
        """Return the settings.

        Raises:
            InvalidInputError: (13) the file cannot be read, or a setting is unknown or wrong. The
                message contains the path of its key, and no value of a catalog's property.
        """
        origin = str(self.file) if self.file else _ARGUMENTS
        pinned = self if self.content is not None else self.pinned()
        content = {**(pinned.content or {}), **self.overrides}
        if self.catalogs:
            content["catalogs"] = self._add_catalogs(content.get("catalogs", {}))
        try:
            return ServerSettings.model_validate(content)
        except ValidationError as error:
            raise invalid(f"{origin}: {explain(ServerSettings, error)}") from None

    def _add_catalogs(self, catalogs: Any) -> Any:
        """Return the catalogs of the file and the added ones, without the added properties.

        The environment overrides the file and is overridden by the added properties, which
        `catalogs.connect_catalogs` takes separately.
        """
        catalogs = catalogs_by_name(catalogs)
        if not isinstance(catalogs, dict):
            return catalogs
        return {**{name: {} for name in self.catalogs}, **catalogs}


# -- messages --------------------------------------------------------------------------------------


_UNKNOWN = ("extra_forbidden", "unexpected_keyword_argument")
_MISSING = ("missing", "union_tag_not_found")


def explain(settings: type[BaseModel], error: ValidationError) -> str:
    """Return the problems of settings, each with the path of its key."""
    problems = (
        _problem(settings, each) for each in error.errors(include_url=False, include_input=False)
    )
    return "; ".join(dict.fromkeys(problems))


def _problem(settings: type[BaseModel], item: Any) -> str:
    path, known = _resolve(settings, item["loc"])
    text = str(item["msg"]).removeprefix("Value error, ")
    if item["type"] in _UNKNOWN:
        key = str(item["loc"][-1])
        near = difflib.get_close_matches(key, known, n=1)
        hint = f"did you mean '{near[0]}'?" if near else f"known keys are {', '.join(known)}"
        return f"there is no key '{path}': {hint}"
    if item["type"] in _MISSING:
        tag = ".method" if item["type"] == "union_tag_not_found" else ""
        return f"'{path}{tag}' is required"
    if item["type"] == "union_tag_invalid":
        return f"'{path}.method' must be one of {item['ctx']['expected_tags']}"
    return f"'{path}': {text}" if path else text


def _resolve(settings: type[BaseModel], location: Sequence[int | str]) -> tuple[str, list[str]]:
    """Return the path of a key as in the file, and the known keys at its level.

    In a list of several models, a location also contains the method's name, which is no key.
    """
    path, models = "", [settings]
    known: list[str] = []
    for part in location:
        if isinstance(part, int):
            path += f"[{part}]"
            continue
        tagged = [each for each in models if _tag(each) == part]
        if tagged and len(models) > 1:
            models = tagged
            continue
        known = [key for each in models for key in _keys(each)]
        annotations = [_annotation(each, part) for each in models]
        models = [model for each in annotations for model in _models(each)] or models
        path += f".{part}" if path else part
    return path.removesuffix(".[key]"), known


def _keys(model: Any) -> list[str]:
    return list(getattr(model, "model_fields", None) or model.__dataclass_fields__)


def _annotation(model: Any, key: str) -> Any:
    """Return the type of a key in a model or dataclass, or None if the key is unknown."""
    if issubclass(model, BaseModel):
        field = model.model_fields.get(key)
        return field.annotation if field else None
    return get_type_hints(model).get(key)


def _tag(model: Any) -> Any:
    field = getattr(model, "model_fields", {}).get("method")
    return next(iter(get_args(field.annotation)), None) if field else None


def _models(annotation: Any) -> Iterator[Any]:
    """Yield the models and dataclasses in a type."""
    if isinstance(annotation, type) and (
        issubclass(annotation, BaseModel) or hasattr(annotation, "__dataclass_fields__")
    ):
        yield annotation
    for each in get_args(annotation):
        yield from _models(each)
