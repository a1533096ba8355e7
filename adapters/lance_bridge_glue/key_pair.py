"""The key pair of the properties, which is read again when a service refuses it.

botocore signs each attempt at a request with the credentials as they are then, so a request that
was refused is signed with the new key pair if botocore sends it again.
"""

from __future__ import annotations

import threading
from collections.abc import Mapping, MutableMapping
from typing import Any

from botocore.credentials import CredentialProvider, Credentials, ReadOnlyCredentials

from lance_bridge.secrets import Renewal, SecretRenewal

from .config import GlueConfig
from .errors import ADVICE, UNAUTHENTICATED

_RENEWAL = "lance-bridge-renewal"
"""The key in the context of a request for what its renewal was."""


class _Signer(threading.local):
    """The configuration with the key pair that this thread signed with last."""

    config: GlueConfig | None = None


_signer = _Signer()


class _KeyPair(Credentials):  # type: ignore[misc]  # botocore has no types
    """Credentials that change with the properties."""

    def __init__(self, renewal: SecretRenewal[GlueConfig]) -> None:
        super().__init__(*_values(renewal.config), method="lance-bridge")
        self._renewal = renewal

    def get_frozen_credentials(self) -> ReadOnlyCredentials:
        """Return the key pair of now; botocore calls this for each signature."""
        _signer.config = self._renewal.config
        return ReadOnlyCredentials(*_values(_signer.config))


class KeyPairProvider(CredentialProvider):  # type: ignore[misc]  # botocore has no types
    """Provides the key pair of the properties."""

    METHOD = "lance-bridge"
    CANONICAL_NAME = "lance-bridge-key-pair"

    def __init__(self, renewal: SecretRenewal[GlueConfig]) -> None:
        super().__init__()
        self._renewal = renewal

    def load(self) -> Credentials:
        """Return the key pair."""
        return _KeyPair(self._renewal)


def _values(config: GlueConfig) -> tuple[str, str, str | None]:
    secret, token = config.secret_access_key, config.session_token
    return (
        config.access_key_id or "",
        secret.get_secret_value() if secret is not None else "",
        token.get_secret_value() if token is not None else None,
    )


def renew_refused(renewal: SecretRenewal[GlueConfig]) -> Renewal:
    """Read the key pair again that this thread signed its last request with."""
    return renewal.renew(_signer.config or renewal.config)


def retry_refused(
    renewal: SecretRenewal[GlueConfig],
    request_dict: Mapping[str, Any],
    response: tuple[Any, MutableMapping[str, Any]] | None = None,
    **_: object,
) -> float | None:
    """Return 0 seconds to wait if botocore shall send a refused request again, else None.

    botocore calls this after each attempt. A request whose signature is refused was not executed,
    so that changes may be repeated, too.
    """
    if response is None or response[1].get("Error", {}).get("Code") not in UNAUTHENTICATED:
        return None
    context = request_dict["context"]
    known: Renewal | None = context.get(_RENEWAL)
    made = context[_RENEWAL] = known or renew_refused(renewal)
    if known is None and made.changed:
        return 0.0
    response[1][ADVICE] = made.advice
    return None
