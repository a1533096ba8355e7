"""API keys: principals by a key in ``x-api-key`` or ``Authorization: Bearer``."""

from __future__ import annotations

import logging

from lance_namespace.errors import (
    InvalidInputError,
    ServiceUnavailableError,
    UnauthenticatedError,
)
from starlette.requests import HTTPConnection

from ..principals import Principal
from .key_file import PREFIX, ApiKeyFile
from .tokens import tokens_of

logger = logging.getLogger(__name__)


class ApiKeys:
    """Finds principals by the keys of a file."""

    def __init__(self, file: ApiKeyFile) -> None:
        self._file = file

    def takes(self, token: str) -> bool:
        """Return whether a token is an API key by its form."""
        return token.startswith(PREFIX)

    async def authenticate(self, connection: HTTPConnection) -> Principal | None:
        """Return who has the key of a request, or None if it has no key.

        Raises:
            UnauthenticatedError: (16) the key is unknown, expired or revoked.
            ServiceUnavailableError: (17) the file of keys cannot be read.
        """
        found = [self._find(token) for token in tokens_of(connection) if self.takes(token)]
        return found[0] if found else None

    def _find(self, key: str) -> Principal:
        try:
            entry = self._file.find(key)
        except InvalidInputError as error:
            # The path of the file is the server's own affair.
            logger.error("%s", error)
            raise ServiceUnavailableError("The API keys of this server cannot be read") from error
        if entry is None:
            raise UnauthenticatedError("The API key is unknown, expired or revoked")
        return Principal(entry.name, frozenset(entry.groups), "api_key")
