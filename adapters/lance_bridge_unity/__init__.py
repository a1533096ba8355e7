"""Unity Catalog as a Lance namespace: ``impl=unity``, the open-source server and Databricks."""

from __future__ import annotations

from lance_bridge import extras
from lance_bridge.catalog import Catalog
from lance_bridge.namespace import LanceBridgeNamespace

from .config import UnityConfig

__all__ = ["UnityConfig", "UnityNamespace"]


class UnityNamespace(LanceBridgeNamespace):
    """A Lance namespace on Unity Catalog; see ``specs/unity.md``."""

    impl = "unity"
    config_type = UnityConfig

    def open_catalog(self, config: UnityConfig) -> Catalog:
        extras.require(self.impl, "requests", "databricks.sdk")
        from .catalog import UnityCatalog  # noqa: PLC0415 - needs the packages checked above

        return UnityCatalog(config)
