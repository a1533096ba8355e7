"""TLS contexts, and the headers by which the HTTP transport authenticates callers."""

from __future__ import annotations

import getpass
import ssl
from typing import TYPE_CHECKING

from lance_bridge.errors import invalid

if TYPE_CHECKING:
    from ..config import HiveConfig

_ACTOR_HEADER = "x-actor-username"


def tls_context(config: HiveConfig) -> ssl.SSLContext | None:
    """Return the TLS context, or None without encryption.

    Raises:
        InvalidInputError: a file of ``tls.*`` cannot be read or is malformed.
    """
    if not (config.tls_enabled or any(e.scheme == "https" for e in config.endpoints)):
        return None
    try:
        context = ssl.create_default_context(cafile=config.tls_ca_file)
    except (OSError, ValueError) as error:
        raise invalid(f"tls.ca-file: cannot read certificates ({_reason(error)})") from error
    if not config.tls_verify:
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
    if config.tls_cert_file is not None:
        try:
            # An empty password: without it, OpenSSL would ask on the terminal.
            context.load_cert_chain(config.tls_cert_file, config.tls_key_file, password="")
        except (OSError, ValueError) as error:
            raise invalid(
                "tls.cert-file, tls.key-file: cannot read a certificate and its unencrypted key "
                f"({_reason(error)})"
            ) from error
    return context


def _reason(error: OSError | ValueError) -> str:
    reason = getattr(error, "reason", None) or getattr(error, "strerror", None)
    return str(reason or type(error).__name__)


def http_headers(config: HiveConfig) -> dict[str, str]:
    """Return the headers that identify the caller by the token, or else by the user's name."""
    if config.http_token is not None:
        return {"Authorization": f"Bearer {config.http_token.get_secret_value()}"}
    return {_ACTOR_HEADER: config.user[0] if config.user else _system_user()}


def _system_user() -> str:
    try:
        return getpass.getuser()
    except (KeyError, OSError):
        # Containers run under user ids without a name; Hive requires one.
        return "anonymous"
