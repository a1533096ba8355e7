"""What no plan, journal or report may hold: settings and texts that tell a secret."""

from __future__ import annotations

import re
from typing import Annotated

from pydantic import AfterValidator

_WORDS = (
    r"secret|passw|passphrase|token|credential|signature|authorization|access.?key|account.?key|"
    r"private.?key|api.?key|encryption.*key|\bsas\b"
)
_KEY = re.compile(_WORDS, re.IGNORECASE)
IN_URL = re.compile(r"(?<=//)[^/@\s]*:[^/@\s]*@")
"""The user and the password of a URL."""
ASSIGNED = re.compile(rf"((?:{_WORDS}|\bsig)[\w.-]*\s*=\s*)[^\s&;,/'\")]+", re.IGNORECASE)
"""A secret that follows its name, as in ``jdbc:…?password=x`` and ``-Dkey.password=x``."""
_BEARER = re.compile(r"\bBearer\s", re.IGNORECASE)


def is_secret(key: str) -> bool:
    """Return whether a setting or option of this name holds a secret."""
    return _KEY.search(key) is not None


def tells_secret(text: str) -> bool:
    """Return whether a text has a secret in it, as far as that can be seen."""
    return any(pattern.search(text) for pattern in (IN_URL, ASSIGNED, _BEARER))


def _without_password(text: str) -> str:
    if IN_URL.search(text):
        raise ValueError("no plan keeps a password: give it to the session or the catalog")
    return text


PlainLocation = Annotated[str, AfterValidator(_without_password)]
"""A path or URI in the options of a kind: one without a user and password."""
