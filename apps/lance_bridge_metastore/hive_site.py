"""The hive-site.xml of one embedded metastore, and a call that checks that the server responds."""

from __future__ import annotations

import socket
import ssl
from collections.abc import Mapping
from pathlib import Path
from typing import Any
from xml.sax.saxutils import escape

from .releases import Release

TLS_SWITCH = "metastore.use.SSL"
INSTANCE_KEY = "hive.metastore.lance.bridge.instance"
"""The setting that identifies our server by a value that is new for each start."""
_HIVE = "org.apache.hadoop.hive.metastore"
_STANDALONE = {
    # The defaults of these two are classes that only the rest of Hive contains.
    "metastore.expression.proxy": f"{_HIVE}.DefaultPartitionExpressionProxy",
    "metastore.task.threads.always": f"{_HIVE}.events.EventCleanerTask",
}
"""What a metastore without the rest of Hive needs, from 3.1 on."""


def hive_site(
    release: Release,
    directory: Path,
    warehouse: str,
    instance: str,
    settings: Mapping[str, str],
) -> dict[str, str]:
    """Return the settings of a metastore that keeps its state in ``directory``.

    ``settings`` override the others. ``instance`` is the value of :data:`INSTANCE_KEY`.
    """
    site = {
        "javax.jdo.option.ConnectionURL": f"jdbc:derby:{directory / 'metastore_db'};create=true",
        "javax.jdo.option.ConnectionDriverName": "org.apache.derby.jdbc.EmbeddedDriver",
        "hive.metastore.warehouse.dir": warehouse,
        "hive.metastore.schema.verification": "false",
        # Hive's own script for Derby makes parameter values a CLOB, which filters cannot compare.
        "datanucleus.schema.autoCreateAll": "true",
        # The default of 10 attempts, 2 s apart, makes each error of the database a 20 s stall.
        "hive.hmshandler.retry.attempts": "1",
        "hive.hmshandler.retry.interval": "100ms",
        "hive.async.log.enabled": "false",
        INSTANCE_KEY: instance,
    }
    if release.from_pyspark:
        # The default, BoneCP, is not among PySpark's jars: drop_database would end the connection.
        site["datanucleus.connectionPoolingType"] = "none"
    else:
        site |= _STANDALONE
    if release.version == "3.1":
        # Only this creates the tables for locks, which Hive's own schema tool would create.
        site["hive.in.tez.test"] = "true"
    if not release.is_hive_4:
        # Makes it use the class of `artifacts.loopback_classes`.
        site["hive.metastore.server.tcp.keepalive"] = "true"
    else:
        site["metastore.thrift.bind.host"] = "127.0.0.1"
        # Hive 4 refuses external tables inside the managed warehouse, and puts databases here.
        site["metastore.warehouse.external.dir"] = warehouse
        site["hive.metastore.warehouse.dir"] = f"file://{directory / 'managed'}"
    # Most settings have two names, with and without "hive.".
    given = {name.removeprefix("hive.") for name in settings}
    defaults = {k: value for k, value in site.items() if k.removeprefix("hive.") not in given}
    return defaults | dict(settings)


def to_xml(site: Mapping[str, str]) -> str:
    """Return settings as the text of a hive-site.xml."""
    properties = "\n".join(
        f"<property><name>{escape(name)}</name><value>{escape(value)}</value></property>"
        for name, value in site.items()
    )
    head = '<?xml version="1.0" encoding="UTF-8"?>'
    return f"{head}\n<configuration>\n{properties}\n</configuration>\n"


def is_enabled(site: Mapping[str, str], name: str) -> bool:
    """Return whether a switch is on, by its name with or without ``hive.``."""
    return "true" in _values(site, name)


def _values(site: Mapping[str, str], name: str) -> list[str]:
    return [site.get(each, "").strip().lower() for each in (name, f"hive.{name}")]


# -- probe -----------------------------------------------------------------------------------------


_TIMEOUT_SECONDS = 5.0
_HTTP_PATH = "metastore.server.thrift.http.path"


def is_responding(port: int, instance: str, site: Mapping[str, str]) -> bool:
    """Return whether the metastore named ``instance`` responds on ``port``.

    It uses the transport that ``site`` sets. The probe cannot authenticate: if callers must (SASL,
    HTTP with a token, client certificates), an open port is enough.
    """
    from thrift.Thrift import TException  # noqa: PLC0415 - an optional package

    try:
        with socket.create_connection(("127.0.0.1", port), _TIMEOUT_SECONDS) as connection:
            if _requires_login(site):
                return True
            return _read_instance(connection, port, site) == instance
    except (OSError, EOFError, TException):
        return False


def _requires_login(site: Mapping[str, str]) -> bool:
    authentication = next(filter(None, _values(site, "metastore.authentication")), "none")
    return authentication not in ("none", "nosasl") or is_enabled(site, "metastore.sasl.enabled")


def _read_instance(connection: socket.socket, port: int, site: Mapping[str, str]) -> str:
    from hmsclient.genthrift.hive_metastore import ThriftHiveMetastore  # noqa: PLC0415 - the same
    from thrift.protocol import TBinaryProtocol  # noqa: PLC0415 - the same

    transport = _create_transport(connection, port, site)
    try:
        protocol = TBinaryProtocol.TBinaryProtocol(transport)
        value = ThriftHiveMetastore.Client(protocol).get_config_value(INSTANCE_KEY, "")
        return str(value)
    finally:
        transport.close()


def _create_transport(connection: socket.socket, port: int, site: Mapping[str, str]) -> Any:
    from thrift.transport import THttpClient, TSocket, TTransport  # noqa: PLC0415 - the same

    secure = is_enabled(site, TLS_SWITCH)
    if "http" in _values(site, "metastore.server.thrift.transport.mode"):
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
    framed = is_enabled(site, "metastore.thrift.framed.transport.enabled")
    return TTransport.TFramedTransport(handle) if framed else TTransport.TBufferedTransport(handle)


def _unverified_tls() -> ssl.SSLContext:
    """Return a context without checks: the value that the probe reads identifies our server."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    return context
