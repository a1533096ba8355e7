"""The hive-site.xml of one embedded metastore."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from xml.sax.saxutils import escape

from .releases import Release

TLS_SWITCHES = ("metastore.use.SSL", "hive.metastore.use.SSL")
INSTANCE_KEY = "hive.metastore.lance.bridge.instance"
"""The setting that identifies our server by a value that is new for each start."""


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
        site |= _standalone_settings()
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
    given = {_without_prefix(name) for name in settings}
    defaults = {name: value for name, value in site.items() if _without_prefix(name) not in given}
    return defaults | dict(settings)


def _without_prefix(name: str) -> str:
    """Return a setting's name without ``hive.``: most settings have both names."""
    return name.removeprefix("hive.")


def _standalone_settings() -> dict[str, str]:
    """Return the settings that a metastore without the rest of Hive needs, from 3.1 on."""
    return {
        # The defaults of these two are classes that only the rest of Hive contains.
        "metastore.expression.proxy": (
            "org.apache.hadoop.hive.metastore.DefaultPartitionExpressionProxy"
        ),
        "metastore.task.threads.always": (
            "org.apache.hadoop.hive.metastore.events.EventCleanerTask"
        ),
    }


def to_xml(site: Mapping[str, str]) -> str:
    """Return settings as the text of a hive-site.xml."""
    properties = "\n".join(
        f"<property><name>{escape(name)}</name><value>{escape(value)}</value></property>"
        for name, value in site.items()
    )
    head = '<?xml version="1.0" encoding="UTF-8"?>'
    return f"{head}\n<configuration>\n{properties}\n</configuration>\n"


def is_enabled(site: Mapping[str, str], *names: str) -> bool:
    """Return whether a switch is on, by any of its names in different releases."""
    return any(site.get(name, "").strip().lower() == "true" for name in names)
