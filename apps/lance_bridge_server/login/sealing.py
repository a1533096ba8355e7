"""Encrypts cookies and form tokens, so that only servers with the key can read or create them."""

from __future__ import annotations

import base64
import binascii
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from joserfc import jwt
from joserfc.errors import JoseError
from joserfc.jwe import JWERegistry
from joserfc.jwk import OctKey

from lance_bridge.errors import invalid

KEY_BYTES = 32
_HEADER = {"alg": "dir", "enc": "A256GCM"}


class Seal:
    """Encrypts content with AES-256-GCM, as a JSON Web Token that expires.

    Args:
        keys: Keys of 32 bytes. The first one encrypts; all of them decrypt.
    """

    def __init__(self, keys: Sequence[bytes], clock: Callable[[], float] = time.time) -> None:
        self._keys = [OctKey.import_key(each) for each in keys]
        self._clock = clock
        self._registry = JWERegistry(algorithms=list(_HEADER.values()))

    def close(self, purpose: str, content: Mapping[str, Any], seconds: float) -> str:
        """Encrypt content. `open` accepts the result for the same purpose, for some seconds."""
        now = self.now()
        claims = {**content, "aud": purpose, "iat": now, "exp": now + int(seconds)}
        return jwt.encode(_HEADER, claims, self._keys[0], registry=self._registry)

    def open(self, purpose: str, text: str | None) -> dict[str, Any] | None:
        """Decrypt the result of `close`. Return None if it is invalid or has expired."""
        if not text:
            return None
        found = (self._claims(text, key) for key in self._keys)
        claims = next((each for each in found if each is not None), None)
        if claims is None or claims.get("aud") != purpose or claims["exp"] <= self.now():
            return None
        return claims

    def now(self) -> int:
        """Return the time, in seconds since 1970."""
        return int(self._clock())

    def _claims(self, text: str, key: OctKey) -> dict[str, Any] | None:
        try:
            return jwt.decode(text, key, registry=self._registry).claims
        except (JoseError, ValueError, TypeError):
            return None


def read_keys(file: Path) -> list[bytes]:
    """Return the keys in a file, which contains one in Base64 in each line.

    Raises:
        InvalidInputError: (13) it cannot be read, or a line is not a key.
    """
    try:
        lines = [each.strip() for each in file.read_text("ascii").splitlines() if each.strip()]
        keys = [base64.b64decode(each, validate=True) for each in lines]
    except OSError as error:
        raise invalid(f"{file} cannot be read: {error.strerror}") from error
    except (UnicodeDecodeError, binascii.Error):
        keys = []
    if not keys or any(len(each) != KEY_BYTES for each in keys):
        raise invalid(f"{file} must have {KEY_BYTES} random bytes in Base64 in each line")
    return keys
