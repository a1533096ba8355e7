"""API keys: find the principal of a key in ``x-api-key`` or ``Authorization: Bearer``."""

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
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from datetime import datetime, timedelta, timezone
from pathlib import Path

from lance_namespace.errors import (
    InvalidInputError,
    ServiceUnavailableError,
    UnauthenticatedError,
)
from pydantic import AwareDatetime, BaseModel, ConfigDict, Field, ValidationError
from starlette.requests import HTTPConnection

from lance_bridge.errors import invalid

from .authentication import Principal, tokens_of

logger = logging.getLogger(__name__)


class ApiKeys:
    """Finds principals by the keys of a file."""

    def __init__(self, file: ApiKeyFile) -> None:
        self._file = file

    def takes(self, token: str) -> bool:
        """Return whether a token has the form of an API key."""
        return token.startswith(PREFIX)

    async def authenticate(self, connection: HTTPConnection) -> Principal | None:
        """Return the principal of the API key in a request, or None if it has no key.

        Raises:
            UnauthenticatedError: (16) the key is unknown, expired or revoked.
            ServiceUnavailableError: (17) the file of keys cannot be read.
        """
        found = [self.find(token) for token in tokens_of(connection) if self.takes(token)]
        return principal_of(found[0]) if found else None

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
        return principal_of(entry) if entry is not None and entry.state() == "valid" else None


def principal_of(entry: KeyEntry) -> Principal:
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


# -- file ------------------------------------------------------------------------------------------


PREFIX = "lbk_"
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
        return f"{PREFIX}{identifier}_{secret}", entry

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
