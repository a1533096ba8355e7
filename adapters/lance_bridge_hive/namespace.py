"""The namespace of ``impl=hive``."""

from __future__ import annotations

from lance_bridge import extras
from lance_bridge.catalog import Catalog
from lance_bridge.namespace import LanceBridgeNamespace

from .config import HiveConfig


class HiveNamespace(LanceBridgeNamespace):
    """A Lance namespace on a Hive Metastore 2.3 to 4.2; see ``specs/hive.md``."""

    __module__ = "lance_bridge_hive"  # its public class path, in messages, settings and pickles

    impl = "hive"
    config_type = HiveConfig

    def open_catalog(self, config: HiveConfig) -> Catalog:
        extras.require(self.impl, "hmsclient", "pymetastore", "thrift")
        from .catalog import HiveCatalog  # noqa: PLC0415 - needs the packages checked above

        return HiveCatalog(config)
