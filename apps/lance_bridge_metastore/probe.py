"""Checks whether a metastore that was just started responds, and whether it is ours."""

from __future__ import annotations

import socket
import ssl
from collections.abc import Mapping
from typing import Any

from hmsclient.genthrift.hive_metastore import ThriftHiveMetastore
from thrift.protocol import TBinaryProtocol
from thrift.Thrift import TException
from thrift.transport import THttpClient, TSocket, TTransport

from .configuration import INSTANCE_KEY, TLS_SWITCHES, is_enabled

_TIMEOUT_SECONDS = 5.0
_HTTP_PATH = "metastore.server.thrift.http.path"


def is_responding(port: int, instance: str, site: Mapping[str, str]) -> bool:
    """Return whether the metastore named ``instance`` responds on ``port``.

    It uses the transport that ``site`` sets. The probe cannot authenticate: if callers must (SASL,
    HTTP with a token, client certificates), an open port is enough.
    """
    try:
        with socket.create_connection(("127.0.0.1", port), _TIMEOUT_SECONDS) as connection:
            if _requires_login(site):
                return True
            return _read_instance(connection, port, site) == instance
    except (OSError, EOFError, TException):
        return False


def _requires_login(site: Mapping[str, str]) -> bool:
    authentication = (
        site.get("metastore.authentication") or site.get("hive.metastore.authentication") or "NONE"
    )
    return authentication.upper() not in ("NONE", "NOSASL") or is_enabled(
        site, "metastore.sasl.enabled", "hive.metastore.sasl.enabled"
    )


def _read_instance(connection: socket.socket, port: int, site: Mapping[str, str]) -> str:
    transport = _create_transport(connection, port, site)
    try:
        protocol = TBinaryProtocol.TBinaryProtocol(transport)
        value = ThriftHiveMetastore.Client(protocol).get_config_value(INSTANCE_KEY, "")
        return str(value)
    finally:
        transport.close()


def _create_transport(connection: socket.socket, port: int, site: Mapping[str, str]) -> Any:
    secure = is_enabled(site, *TLS_SWITCHES)
    if _uses_http(site):
        scheme = "https" if secure else "http"
        path = site.get(_HTTP_PATH) or site.get(f"hive.{_HTTP_PATH}") or "metastore"
        client = THttpClient.THttpClient(
            f"{scheme}://127.0.0.1:{port}/{path.lstrip('/')}", ssl_context=_unverified_tls()
        )
        client.setTimeout(int(_TIMEOUT_SECONDS * 1000))
        # Without a token, Hive requires this header, and trusts it.
        client.setCustomHeaders({"x-actor-username": "lance-bridge"})
        return client
    handle = TSocket.TSocket()
    # An open socket is handed over, because Thrift would log each refused connection as an error.
    handle.setHandle(_unverified_tls().wrap_socket(connection) if secure else connection)
    framed = is_enabled(
        site,
        "metastore.thrift.framed.transport.enabled",
        "hive.metastore.thrift.framed.transport.enabled",
    )
    return TTransport.TFramedTransport(handle) if framed else TTransport.TBufferedTransport(handle)


def _uses_http(site: Mapping[str, str]) -> bool:
    name = "metastore.server.thrift.transport.mode"
    return "http" in (site.get(name, "").lower(), site.get(f"hive.{name}", "").lower())


def _unverified_tls() -> ssl.SSLContext:
    """Return a context without checks: the value that the probe reads identifies our server."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    return context
