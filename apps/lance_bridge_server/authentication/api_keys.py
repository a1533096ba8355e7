"""API keys: find the principal of a key in ``x-api-key`` or ``Authorization: Bearer``."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager

from lance_namespace.errors import (
    InvalidInputError,
    ServiceUnavailableError,
    UnauthenticatedError,
)
from starlette.requests import HTTPConnection

from ..principals import Principal
from .key_file import PREFIX, ApiKeyFile, KeyEntry
from .tokens import tokens_of

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
