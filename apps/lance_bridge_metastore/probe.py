"""Asks a metastore that has just been started whether it answers, and whether it is ours."""

from __future__ import annotations

import socket
import ssl
from collections.abc import Mapping
from typing import Any

from hmsclient.genthrift.hive_metastore import ThriftHiveMetastore
from thrift.protocol import TBinaryProtocol
from thrift.Thrift import TException
from thrift.transport import THttpClient, TSocket, TTransport

from .configuration import INSTANCE_KEY, TLS_SWITCHES, enabled

_TIMEOUT_SECONDS = 5.0
_HTTP_PATH = "metastore.server.thrift.http.path"


def answers(port: int, instance: str, site: Mapping[str, str]) -> bool:
    """Say whether the metastore named ``instance`` answers on ``port``.

    Speaks the transport that ``site`` sets. Where callers must log in (SASL, HTTP with a token,
    client certificates), the probe cannot, and a port that takes connections is the answer.
    """
    try:
        with socket.create_connection(("127.0.0.1", port), _TIMEOUT_SECONDS) as connection:
            if _asks_who_calls(site):
                return True
            return _instance_at(connection, port, site) == instance
    except (OSError, EOFError, TException):
        return False


def _asks_who_calls(site: Mapping[str, str]) -> bool:
    authentication = (
        site.get("metastore.authentication") or site.get("hive.metastore.authentication") or "NONE"
    )
    return authentication.upper() not in ("NONE", "NOSASL") or enabled(
        site, "metastore.sasl.enabled", "hive.metastore.sasl.enabled"
    )


def _instance_at(connection: socket.socket, port: int, site: Mapping[str, str]) -> str:
    transport = _transport(connection, port, site)
    try:
        protocol = TBinaryProtocol.TBinaryProtocol(transport)
        answer = ThriftHiveMetastore.Client(protocol).get_config_value(INSTANCE_KEY, "")
        return str(answer)
    finally:
        transport.close()


def _transport(connection: socket.socket, port: int, site: Mapping[str, str]) -> Any:
    secure = enabled(site, *TLS_SWITCHES)
    if _speaks_http(site):
        scheme = "https" if secure else "http"
        path = site.get(_HTTP_PATH) or site.get(f"hive.{_HTTP_PATH}") or "metastore"
        client = THttpClient.THttpClient(
            f"{scheme}://127.0.0.1:{port}/{path.lstrip('/')}", ssl_context=_unverified()
        )
        client.setTimeout(int(_TIMEOUT_SECONDS * 1000))
        # Without a token, Hive believes this header, and refuses calls that lack it.
        client.setCustomHeaders({"x-actor-username": "lance-bridge"})
        return client
    handle = TSocket.TSocket()
    # An open socket is handed over, because Thrift would log each refused connection as an error.
    handle.setHandle(_unverified().wrap_socket(connection) if secure else connection)
    framed = enabled(
        site,
        "metastore.thrift.framed.transport.enabled",
        "hive.metastore.thrift.framed.transport.enabled",
    )
    return TTransport.TFramedTransport(handle) if framed else TTransport.TBufferedTransport(handle)


def _speaks_http(site: Mapping[str, str]) -> bool:
    name = "metastore.server.thrift.transport.mode"
    return "http" in (site.get(name, "").lower(), site.get(f"hive.{name}", "").lower())


def _unverified() -> ssl.SSLContext:
    """The probe asks for a value that only our own server knows: that is its proof of identity."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    return context
