"""Authentication and encryption: TLS contexts, SASL, and headers of the HTTP transport."""

from __future__ import annotations

import getpass
import ssl
from pathlib import Path
from typing import TYPE_CHECKING, Any

from thrift.transport.TTransport import TSaslClientTransport, TTransportException

from lance_bridge.errors import invalid

from ..endpoint import Endpoint
from ..tokens import DelegationToken, parse_token, read_token
from .sockets import DeadlineSocket

if TYPE_CHECKING:
    from ..config import HiveConfig

_ACTOR_HEADER = "x-actor-username"
_GSSAPI, _DIGEST = "GSSAPI", "DIGEST-MD5"
_MECHANISMS = {"plain": "PLAIN", "kerberos": _GSSAPI, "delegation-token": _DIGEST}
_DIGEST_SERVICE, _DIGEST_HOST = "null", "default"
"""The address in a digest: Hadoop names no protocol, which Java writes as null, and the realm."""
_PROTECTION = "quality of protection"
_NO_PROTECTION = (
    "the metastore requires that SASL encrypts or signs messages (hadoop.rpc.protection), which "
    "works with auth.mechanism=kerberos only: for delegation tokens it must also allow "
    "'authentication'; encrypt with tls.enabled"
)
_EXPIRED = " (is the delegation token expired or cancelled, or that of another metastore?)"


class SaslRefused(TTransportException):  # type: ignore[misc]  # thrift ships no types
    """The client or the server refused the handshake."""

    def __init__(self, message: str) -> None:
        super().__init__(TTransportException.NOT_OPEN, message)


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


def sasl_transport(sock: DeadlineSocket, endpoint: Endpoint, config: HiveConfig) -> Any:
    """Authenticate over ``sock`` and return the transport that frames later messages.

    Raises:
        SaslRefused: Either side refused; the message holds no secret.
        TTransportException: The connection failed in the middle.
        InvalidInputError: a package is missing; the message says how to install it.
    """
    mechanism = _MECHANISMS[config.auth_mechanism]
    refusals = _client_errors(mechanism)
    host, service = config.kerberos_host or endpoint.host, config.kerberos_service
    options: dict[str, str] = {}
    if mechanism == "PLAIN" and config.auth_password is not None:
        options = {
            "username": config.auth_username or "",
            "password": config.auth_password.get_secret_value(),
        }
    elif mechanism == _DIGEST:
        token = _delegation_token(config)
        options = {"username": token.sasl_username, "password": token.sasl_password}
        host, service = _DIGEST_HOST, _DIGEST_SERVICE
    try:
        transport = TSaslClientTransport(
            sock,
            host,
            service,
            mechanism,
            max_frame_size=config.max_message_size,
            **options,
        )
        transport.open()
    except refusals as error:
        reason = _sasl_reason(error)
        if mechanism == _DIGEST and _PROTECTION in reason:
            reason = _NO_PROTECTION
        raise SaslRefused(f"{mechanism} failed in the client: {reason}") from error
    except TTransportException as error:
        if error.type == TTransportException.NOT_OPEN:
            hint = _EXPIRED if mechanism == _DIGEST else ""
            raise SaslRefused(f"{mechanism} was refused: {error.message}{hint}") from error
        raise
    return transport


def _delegation_token(config: HiveConfig) -> DelegationToken:
    """Return the delegation token; its file is read now, because tokens in it are replaced."""
    if config.auth_token is not None:
        return parse_token(config.auth_token.get_secret_value())
    try:
        return read_token(Path(config.token_file or ""), config.auth_token_service)
    except ValueError as error:
        raise SaslRefused(f"There is no delegation token: {error}") from None


def _client_errors(mechanism: str) -> tuple[type[Exception], ...]:
    """Return the errors that the SASL client raises."""
    extra = "hive-kerberos" if mechanism == _GSSAPI else "hive-sasl"
    try:
        from puresasl import SASLError, SASLProtocolException  # noqa: PLC0415 - only needed with SASL

        if mechanism != _GSSAPI:
            return (SASLError, SASLProtocolException)
        import kerberos  # noqa: PLC0415 - only needed with Kerberos
    except ImportError as error:
        raise invalid(
            f"auth.mechanism needs the package {error.name}: "
            f"run pip install 'lance-bridge[{extra}]'"
        ) from error
    return (SASLError, SASLProtocolException, kerberos.KrbError)


def _sasl_reason(error: Exception) -> str:
    """Return the texts of an error, which Kerberos nests in tuples of texts and numbers."""

    def words(value: object) -> list[str]:
        if isinstance(value, tuple):
            return [word for item in value for word in words(item)]
        return [value] if isinstance(value, str) else []

    return "; ".join(words(error.args)) or type(error).__name__
