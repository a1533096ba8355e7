"""The Hive Metastore as a Lance namespace: ``impl=hive``."""

from __future__ import annotations

from lance_bridge import extras
from lance_bridge.catalog import Catalog
from lance_bridge.namespace import LanceBridgeNamespace

from .config import HiveConfig

__all__ = ["HiveConfig", "HiveNamespace"]


class HiveNamespace(LanceBridgeNamespace):
    """A Lance namespace on a Hive Metastore 2.3 to 4.2; see ``specs/hive.md``."""

    impl = "hive"
    config_type = HiveConfig

    def open_catalog(self, config: HiveConfig) -> Catalog:
        extras.require(self.impl, "hmsclient", "pymetastore", "thrift")
        from .catalog import HiveCatalog  # noqa: PLC0415 - needs the packages checked above

        return HiveCatalog(config)
