"""Authentication and encryption: TLS contexts, SASL, and headers of the HTTP transport."""

from __future__ import annotations

import getpass
import ssl
from typing import TYPE_CHECKING, Any

from thrift.transport.TTransport import TSaslClientTransport, TTransportException

from lance_bridge.errors import invalid

from ..endpoint import Endpoint
from .sockets import DeadlineSocket

if TYPE_CHECKING:
    from ..config import HiveConfig

_ACTOR_HEADER = "x-actor-username"


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
    mechanism = "PLAIN" if config.auth_mechanism == "plain" else "GSSAPI"
    refusals = _client_errors(mechanism)
    host = config.kerberos_host or endpoint.host
    options: dict[str, str] = {}
    if mechanism == "PLAIN" and config.auth_password is not None:
        options = {
            "username": config.auth_username or "",
            "password": config.auth_password.get_secret_value(),
        }
    try:
        transport = TSaslClientTransport(
            sock,
            host,
            config.kerberos_service,
            mechanism,
            max_frame_size=config.max_message_size,
            **options,
        )
        transport.open()
    except refusals as error:
        raise SaslRefused(f"{mechanism} failed in the client: {_sasl_reason(error)}") from error
    except TTransportException as error:
        if error.type == TTransportException.NOT_OPEN:
            raise SaslRefused(f"{mechanism} was refused: {error.message}") from error
        raise
    return transport


def _client_errors(mechanism: str) -> tuple[type[Exception], ...]:
    """Return the errors that the SASL client raises."""
    extra = "hive-sasl" if mechanism == "PLAIN" else "hive-kerberos"
    try:
        from puresasl import SASLError  # noqa: PLC0415 - only needed with SASL

        if mechanism == "PLAIN":
            return (SASLError,)
        import kerberos  # noqa: PLC0415 - only needed with Kerberos
    except ImportError as error:
        raise invalid(
            f"auth.mechanism needs the package {error.name}: "
            f"run pip install 'lance-bridge[{extra}]'"
        ) from error
    return (SASLError, kerberos.KrbError)


def _sasl_reason(error: Exception) -> str:
    """Return the texts of an error, which Kerberos nests in tuples of texts and numbers."""

    def words(value: object) -> list[str]:
        if isinstance(value, tuple):
            return [word for item in value for word in words(item)]
        return [value] if isinstance(value, str) else []

    return "; ".join(words(error.args)) or type(error).__name__
