"""Sockets and TLS of a server."""

from __future__ import annotations

import os
import socket
import ssl
import stat
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from lance_namespace.errors import ServiceUnavailableError

from lance_bridge.errors import invalid

from ..configuration.settings import Listener, TlsSettings


def open_sockets(listeners: Sequence[Listener]) -> list[socket.socket]:
    """Return listening sockets, which worker processes share.

    Raises:
        ServiceUnavailableError: (17) an address is in use, or may not be used.
    """
    opened: list[socket.socket] = []
    try:
        for each in listeners:
            opened.append(_open_unix(each) if each.socket else _open_tcp(each))
    except OSError as error:
        for each_socket in opened:
            each_socket.close()
        where = each.socket or authority(each.host, each.port)
        reason = error.strerror or str(error)
        raise ServiceUnavailableError(f"Cannot listen at {where}: {reason}") from error
    return opened


def _open_tcp(listener: Listener) -> socket.socket:
    family, _, _, _, address = socket.getaddrinfo(
        listener.host, listener.port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
    )[0]
    return socket.create_server(address[:2], family=family, backlog=2048)


def _open_unix(listener: Listener) -> socket.socket:
    path = listener.socket
    assert path is not None
    _remove_stale(path)
    opened = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    # No client may connect before the permissions are set.
    mask = os.umask(0o177)
    try:
        opened.bind(str(path))
    finally:
        os.umask(mask)
    path.chmod(int(listener.mode, 8))
    opened.listen(2048)
    return opened


def _remove_stale(path: Path) -> None:
    """Remove the socket of a server that has ended. Keep that of a running server."""
    if not path.exists() or not stat.S_ISSOCK(path.stat().st_mode):
        return
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as probe:
        try:
            probe.connect(str(path))
        except ConnectionRefusedError:
            path.unlink()


def addresses_of(sockets: Sequence[socket.socket], tls: TlsSettings | None) -> list[str]:
    """Return the URLs of sockets for clients."""
    return [_address_of(each, "https" if tls else "http") for each in sockets]


def _address_of(opened: socket.socket, scheme: str) -> str:
    if opened.family == socket.AF_UNIX:
        return f"unix:{opened.getsockname()}"
    host, port = opened.getsockname()[:2]
    return f"{scheme}://{authority(host, port)}"


def authority(host: str, port: int) -> str:
    """Return a host and a port as in a URL, with brackets around an IPv6 address."""
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


class ServedTls:
    """TLS of a server, whose files can be replaced while it listens.

    It can be pickled. A worker process that loads it has its own context.
    """

    def __init__(self, settings: TlsSettings) -> None:
        self._settings = settings
        self._context: _RenewableContext | None = None

    def open(self, *_: object) -> ssl.SSLContext:
        """Return the context to listen with: uvicorn's context factory. Raises as `tls_context`."""
        context = _RenewableContext(ssl.PROTOCOL_TLS_SERVER)
        context.current = tls_context(self._settings)
        self._context = context
        return context

    def renew(self, settings: TlsSettings, context: ssl.SSLContext) -> None:
        """Use the context of new settings for new connections."""
        self._settings = settings
        if self._context is not None:
            self._context.current = context

    def __reduce__(self) -> tuple[type[ServedTls], tuple[TlsSettings]]:
        return ServedTls, (self._settings,)


class _RenewableContext(ssl.SSLContext):
    """Creates each connection with another context, which can be replaced.

    A context cannot drop certificate authorities, and loading a key that does not match leaves it
    without a certificate.
    """

    current: ssl.SSLContext

    def wrap_bio(self, *arguments: Any, **options: Any) -> ssl.SSLObject:
        return self.current.wrap_bio(*arguments, **options)


def tls_context(settings: TlsSettings) -> ssl.SSLContext:
    """Return the TLS context of a server.

    Raises:
        InvalidInputError: (13) a file cannot be read, or does not match the others.
    """
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    password = _password(settings.key_password_file)
    try:
        # A function, because OpenSSL would ask at the terminal for a missing password.
        context.load_cert_chain(settings.certificate, settings.key, lambda: password)
    except (OSError, ValueError) as error:
        raise _problem("certificate and tls.key", error) from error
    if settings.client_ca is not None:
        is_required = settings.client_certificates == "required"
        context.verify_mode = ssl.CERT_REQUIRED if is_required else ssl.CERT_OPTIONAL
        try:
            context.load_verify_locations(settings.client_ca)
        except (OSError, ValueError) as error:
            raise _problem("client_ca", error) from error
    return context


def _password(path: Path | None) -> str:
    if path is None:
        return ""
    try:
        return path.read_text(encoding="utf-8").rstrip("\n")
    except (OSError, UnicodeDecodeError) as error:
        raise _problem("key_password_file", error) from error


def _problem(key: str, error: OSError | ValueError) -> Exception:
    if isinstance(error, ssl.SSLError):
        reason = error.reason or "not in PEM"
    else:
        reason = getattr(error, "strerror", None) or type(error).__name__
    return invalid(f"tls.{key} cannot be used: {reason}")
