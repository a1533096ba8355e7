"""Principals, and the authenticators that find them in requests: API keys, certificates, proxies.

Those of an OpenID Connect provider are in `oidc`.
"""

from __future__ import annotations

import fcntl
import hashlib
import hmac
import json
import logging
import os
import re
import secrets
import stat
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import datetime, timedelta, timezone
from ipaddress import IPv4Network, IPv6Network, ip_address
from pathlib import Path
from typing import Any, Literal, Protocol, runtime_checkable

from lance_namespace.errors import (
    InvalidInputError,
    ServiceUnavailableError,
    UnauthenticatedError,
)
from pydantic import AwareDatetime, BaseModel, ConfigDict, Field, ValidationError
from starlette.requests import HTTPConnection

from lance_bridge.errors import invalid


@dataclass(frozen=True)
class Principal:
    """The caller of a request, as authentication found it."""

    name: str
    groups: frozenset[str] = frozenset()
    method: str = "anonymous"
    """How it was authenticated: api_key, oidc, certificate, proxy or anonymous."""
    claims: Mapping[str, Any] = field(default_factory=dict, compare=False, repr=False)
    """The claims of its token; empty for other methods."""
    token: str | None = field(default=None, compare=False, repr=False)
    """Its bearer token, for catalogs that accept it. A secret."""


ANONYMOUS = Principal("anonymous")
_MAX_NAME = 256


def check_principal_name(name: object) -> str:
    """Return a name from a token, a certificate or a proxy, if it is valid.

    Raises:
        UnauthenticatedError: (16) it is not a string, is empty, is longer than 256 characters, or
            has control characters. Names are used in logs and policies.
    """
    if not isinstance(name, str) or not 0 < len(name) <= _MAX_NAME or not name.isprintable():
        raise UnauthenticatedError("The credentials are valid, but the user name in them is not")
    return name


class Authenticator(Protocol):
    """Finds the principal of a request."""

    async def authenticate(self, connection: HTTPConnection) -> Principal | None:
        """Return the principal, or None if a request has no credentials for this method.

        Raises:
            UnauthenticatedError: (16) the credentials are not valid.
            ServiceUnavailableError: (17) the service that checks them does not respond.
        """


class Anonymous:
    """Treats every request as anonymous, for servers that only this machine can reach."""

    async def authenticate(self, connection: HTTPConnection) -> Principal:  # noqa: ARG002
        return ANONYMOUS


# -- methods ---------------------------------------------------------------------------------------


API_KEY_HEADER = "x-api-key"
_AUTHORIZATION = "authorization"
_BEARER = "bearer"


def tokens_of(connection: HTTPConnection) -> list[str]:
    """Return the distinct tokens of a request: ``Authorization: Bearer`` and ``x-api-key``.

    Some clients can send only one of the two headers, so each may carry any type of token.
    """
    found = []
    for value in connection.headers.getlist(_AUTHORIZATION):
        scheme, _, token = value.partition(" ")
        if scheme.lower() == _BEARER:
            found.append(token.strip())
    found += [value.strip() for value in connection.headers.getlist(API_KEY_HEADER)]
    return list(dict.fromkeys(token for token in found if token))


@runtime_checkable
class TokenAuthenticator(Authenticator, Protocol):
    """An authenticator of tokens, which `tokens_of` finds in a request."""

    def takes(self, token: str) -> bool:
        """Return whether this authenticator is responsible for a token, going by its form."""


class AuthenticatorChain:
    """Runs several methods, and returns the first principal that one of them finds.

    Every credential in a request must be valid, even if an earlier method has found a principal or
    anonymous requests are allowed: an invalid key never gets another principal's rights.

    Args:
        methods: The methods, in order.
        allow_anonymous: Whether requests without credentials are anonymous instead of refused.
    """

    def __init__(self, methods: Sequence[Authenticator], *, allow_anonymous: bool = False) -> None:
        self._methods = tuple(methods)
        self._of_tokens = [each for each in methods if isinstance(each, TokenAuthenticator)]
        self._allow_anonymous = allow_anonymous

    async def authenticate(self, connection: HTTPConnection) -> Principal | None:
        """Return the principal, or None if there are no credentials and anonymous is not allowed.

        Raises:
            UnauthenticatedError: (16) a credential is invalid.
            ServiceUnavailableError: (17) the service that checks it does not respond.
        """
        self._refuse_unknown_tokens(connection)
        found = [await each.authenticate(connection) for each in self._methods]
        principal = next((each for each in found if each is not None), None)
        if principal is None and self._allow_anonymous:
            return ANONYMOUS
        return principal

    def _refuse_unknown_tokens(self, connection: HTTPConnection) -> None:
        """Refuse tokens of an unknown form, unless no method reads tokens.

        LanceDB's clients always send an API key, even to servers that use other methods only.
        """
        for token in tokens_of(connection) if self._of_tokens else ():
            if not any(each.takes(token) for each in self._of_tokens):
                raise UnauthenticatedError(
                    "This server does not accept API keys or tokens of this form"
                )


STATE_KEY = "peer_certificate"
"""The key of the certificate in a connection's state, as `ssl.SSLSocket.getpeercert` returns it."""

NameField = Literal["common_name", "dns", "uri", "email"]
GroupsField = Literal["organizational_unit", "organization"]
_ALTERNATIVES = {"dns": "DNS", "uri": "URI", "email": "email"}
_ATTRIBUTES = {
    "common_name": "commonName",
    "organizational_unit": "organizationalUnitName",
    "organization": "organizationName",
}


class ClientCertificates:
    """Takes the name of the principal from a field of its certificate.

    TLS has verified the certificate.

    Args:
        name: The field with the name: the subject's common name, or the first alternative name of
            a type.
        groups: The attributes of the subject that are groups.
    """

    def __init__(self, name: NameField, groups: GroupsField | None = None) -> None:
        self._name = name
        self._groups = groups

    async def authenticate(self, connection: HTTPConnection) -> Principal | None:
        """Return the principal of a connection's certificate, or None if it has none.

        Raises:
            UnauthenticatedError: (16) the certificate lacks the field with the name.
        """
        certificate = connection.scope.get("state", {}).get(STATE_KEY)
        if not certificate:
            return None
        name = next(_values(certificate, self._name), None)
        if name is None:
            raise UnauthenticatedError(f"The client certificate has no {self._name}")
        groups = _values(certificate, self._groups) if self._groups else ()
        return Principal(check_principal_name(name), frozenset(groups), "certificate")


def _values(certificate: dict[str, Any], field: str) -> Iterator[str]:
    if field in _ALTERNATIVES:
        names = certificate.get("subjectAltName", ())
        yield from (value for name_type, value in names if name_type == _ALTERNATIVES[field])
        return
    for part in certificate.get("subject", ()):
        yield from (value for attribute, value in part if attribute == _ATTRIBUTES[field])


Network = IPv4Network | IPv6Network


class TrustedProxy:
    """Takes the principal from a header, if the request comes from a trusted address.

    The header is ignored from any other address.

    Args:
        header: The header with the name of the principal.
        groups_header: The header with the groups, separated by commas.
        networks: The networks of trusted proxies.
        unix_socket: Whether requests by a unix socket are trusted.
    """

    def __init__(
        self,
        header: str,
        groups_header: str | None,
        networks: Sequence[Network],
        *,
        unix_socket: bool = False,
    ) -> None:
        self._header = header
        self._groups_header = groups_header
        self._networks = tuple(networks)
        self._unix_socket = unix_socket

    async def authenticate(self, connection: HTTPConnection) -> Principal | None:
        """Return the principal that a trusted proxy names, or None.

        Raises:
            UnauthenticatedError: (16) the name is malformed, or there are several.
        """
        names = connection.headers.getlist(self._header)
        if not names or not self._is_trusted(connection):
            return None
        if len(names) > 1:
            # A proxy that adds its header and leaves the client's is configured wrongly.
            raise UnauthenticatedError(f"The request has the header {self._header} several times")
        return Principal(check_principal_name(names[0].strip()), self._groups(connection), "proxy")

    def _groups(self, connection: HTTPConnection) -> frozenset[str]:
        given = connection.headers.getlist(self._groups_header) if self._groups_header else []
        if len(given) > 1:
            raise UnauthenticatedError(
                f"The request has the header {self._groups_header} several times"
            )
        return frozenset(name for each in given for name in map(str.strip, each.split(",")) if name)

    def _is_trusted(self, connection: HTTPConnection) -> bool:
        client = connection.client
        if client is None or not client.host:
            return self._unix_socket
        address = ip_address(client.host.partition("%")[0])
        mapped = getattr(address, "ipv4_mapped", None)
        return any((mapped or address) in network for network in self._networks)


# -- API keys --------------------------------------------------------------------------------------


logger = logging.getLogger(__name__)


class ApiKeys:
    """Finds principals by the keys of a file."""

    def __init__(self, file: ApiKeyFile) -> None:
        self._file = file

    def takes(self, token: str) -> bool:
        """Return whether a token has the form of an API key."""
        return token.startswith(_KEY_PREFIX)

    async def authenticate(self, connection: HTTPConnection) -> Principal | None:
        """Return the principal of the API key in a request, or None if it has no key.

        Raises:
            UnauthenticatedError: (16) the key is unknown, expired or revoked.
            ServiceUnavailableError: (17) the file of keys cannot be read.
        """
        found = [self.find(token) for token in tokens_of(connection) if self.takes(token)]
        return principal_of_key(found[0]) if found else None

    def find(self, key: str) -> KeyEntry:
        """Return the entry of a key. Raises as `authenticate` does."""
        with _translate_errors():
            entry = self._file.find(key)
        if entry is None:
            raise UnauthenticatedError("The API key is unknown, expired or revoked")
        return entry

    def find_by_id(self, identifier: str) -> Principal | None:
        """Return the principal of a key's identifier, or None if it is unknown, expired or revoked.

        Raises:
            ServiceUnavailableError: (17) the file of keys cannot be read.
        """
        with _translate_errors():
            entry = self._file.entries().get(identifier)
        return principal_of_key(entry) if entry is not None and entry.state() == "valid" else None


def principal_of_key(entry: KeyEntry) -> Principal:
    """Return the principal of an entry."""
    return Principal(entry.name, frozenset(entry.groups), "api_key")


@contextmanager
def _translate_errors() -> Iterator[None]:
    """Raise ServiceUnavailable (17) if the file of keys cannot be read."""
    try:
        yield
    except InvalidInputError as error:
        # Clients must not see the path of the file.
        logger.error("%s", error)
        raise ServiceUnavailableError("The API keys of this server cannot be read") from error


# -- the file of API keys --------------------------------------------------------------------------


_KEY_PREFIX = "lbk_"
_KEY = re.compile(r"lbk_([0-9a-f]{16})_([A-Za-z0-9_-]{43})")
_NAME = re.compile(r"\A[\w.@+/:-]{1,200}\Z")


class KeyEntry(BaseModel):
    """The entry of one key. It does not contain the key itself."""

    model_config = ConfigDict(extra="forbid", frozen=True, hide_input_in_errors=True)

    id: str
    name: str = Field(pattern=_NAME)
    """The name of the principal. Several keys can share a name, for key rotation."""
    groups: tuple[str, ...] = ()
    created: AwareDatetime
    expires: AwareDatetime | None = None
    revoked: AwareDatetime | None = None
    salt: str = Field(repr=False)
    hash: str = Field(repr=False)

    def state(self) -> str:
        """Return ``valid``, ``expired`` or ``revoked``."""
        if self.revoked is not None:
            return "revoked"
        is_over = self.expires is not None and self.expires <= _now()
        return "expired" if is_over else "valid"

    def has_secret(self, secret: str) -> bool:
        """Compare a secret with the hash, in constant time."""
        return hmac.compare_digest(self.hash, _hash(self.salt, secret))


class _Content(BaseModel):
    model_config = ConfigDict(extra="forbid", hide_input_in_errors=True)

    keys: list[KeyEntry] = []


_NO_ENTRY = KeyEntry(id="", name="none", created=datetime.now(timezone.utc), salt="00", hash="")


class ApiKeyFile:
    """A file of API keys, which is read again after a change."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._version: tuple[int, int, int] | None = None
        self._entries: dict[str, KeyEntry] = {}

    def find(self, key: str) -> KeyEntry | None:
        """Return the entry of a key, or None if the key is not valid.

        Raises:
            InvalidInputError: (13) the file cannot be read, or is malformed.
        """
        match = _KEY.fullmatch(key)
        entries = self.entries()
        entry = entries.get(match[1], _NO_ENTRY) if match else _NO_ENTRY
        # Also for an unknown identifier, so that the response time does not reveal it.
        is_right = entry.has_secret(match[2] if match else "")
        return entry if is_right and entry.state() == "valid" else None

    def entries(self) -> dict[str, KeyEntry]:
        """Return all entries, by their identifiers. Raises as `find` does."""
        try:
            found = self.path.stat()
            version = (found.st_mtime_ns, found.st_ino, found.st_size)
            if version != self._version:
                self._entries = self._read(found.st_mode)
                self._version = version
        except OSError as error:
            raise invalid(f"{self.path} cannot be read: {error.strerror}") from error
        return self._entries

    def _read(self, mode: int) -> dict[str, KeyEntry]:
        if mode & (stat.S_IWGRP | stat.S_IWOTH):
            raise invalid(f"{self.path} can be written by others: chmod 600 {self.path}")
        try:
            content = _Content.model_validate_json(self.path.read_bytes())
        except ValidationError:
            raise invalid(f"{self.path} is not a file of API keys, or is damaged") from None
        return {each.id: each for each in content.keys}

    def add(
        self, name: str, groups: Sequence[str] = (), lifetime: timedelta | None = None
    ) -> tuple[str, KeyEntry]:
        """Create a key, and write its entry. A missing file is created.

        Returns:
            The key, which is not stored and cannot be shown again, and its entry.

        Raises:
            InvalidInputError: (13) the name or a group is malformed, or the file cannot be changed.
        """
        for each in (name, *groups):
            if not _NAME.fullmatch(each):
                raise invalid(
                    f"'{each[:60]}' is not a valid name: use letters, digits and . _ @ + / : -"
                )
        identifier, secret, salt = secrets.token_hex(8), secrets.token_urlsafe(32), _salt()
        now = _now()
        entry = KeyEntry(
            id=identifier,
            name=name,
            groups=tuple(groups),
            created=now,
            expires=None if lifetime is None else now + lifetime,
            salt=salt,
            hash=_hash(salt, secret),
        )
        with self._locked() as entries:
            self._write([*entries.values(), entry])
        return f"{_KEY_PREFIX}{identifier}_{secret}", entry

    def revoke(self, identifier: str) -> KeyEntry:
        """Revoke a key.

        Raises:
            InvalidInputError: (13) there is no such key, or the file cannot be changed.
        """
        with self._locked() as entries:
            if identifier not in entries:
                raise invalid(f"{self.path} has no key with the identifier '{identifier[:60]}'")
            entry = entries[identifier]
            if entry.revoked is None:
                entry = entry.model_copy(update={"revoked": _now()})
                self._write([*{**entries, identifier: entry}.values()])
        return entry

    @contextmanager
    def _locked(self) -> Iterator[dict[str, KeyEntry]]:
        """Yield the entries, and lock the file against changes by other processes."""
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            directory = os.open(self.path.parent, os.O_RDONLY)
        except OSError as error:
            raise invalid(f"{self.path} cannot be changed: {error.strerror}") from error
        try:
            fcntl.flock(directory, fcntl.LOCK_EX)
            yield dict(self.entries()) if self.path.exists() else {}
        finally:
            os.close(directory)

    def _write(self, entries: Sequence[KeyEntry]) -> None:
        """Replace the file atomically, and keep its owner and mode. A new file has mode 0600.

        The user who changes it may differ from the user that the server runs as.
        """
        path = self.path.resolve()
        text = json.dumps(_Content(keys=list(entries)).model_dump(mode="json"), indent=2)
        temporary = None
        try:
            handle, temporary = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
            with os.fdopen(handle, "w", encoding="utf-8") as file:
                file.write(text + "\n")
                file.flush()
                if path.exists():
                    _copy_access(path.stat(), file.fileno())
                os.fsync(file.fileno())
            Path(temporary).replace(path)
        except OSError as error:
            raise invalid(f"{self.path} cannot be changed: {error.strerror}") from error
        finally:
            if temporary is not None:
                Path(temporary).unlink(missing_ok=True)


def _copy_access(found: os.stat_result, file: int) -> None:
    """Set the owner, group and mode of an open file. The mode is last: chown may clear its bits."""
    own = os.fstat(file)
    if (own.st_uid, own.st_gid) != (found.st_uid, found.st_gid):
        os.fchown(file, found.st_uid, found.st_gid)
    os.fchmod(file, stat.S_IMODE(found.st_mode))


def _salt() -> str:
    return secrets.token_hex(16)


def _hash(salt: str, secret: str) -> str:
    return hmac.new(bytes.fromhex(salt), secret.encode(), hashlib.sha256).hexdigest()


def _now() -> datetime:
    return datetime.now(timezone.utc).replace(microsecond=0)
