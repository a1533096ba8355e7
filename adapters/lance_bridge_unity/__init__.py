"""Unity Catalog as a Lance namespace: ``impl=unity``, the open-source server and Databricks."""

from __future__ import annotations

import importlib.util

from lance_bridge.catalog import Catalog
from lance_bridge.errors import unsupported
from lance_bridge.namespace import LanceBridgeNamespace

from .config import UnityConfig

__all__ = ["UnityConfig", "UnityNamespace"]


class UnityNamespace(LanceBridgeNamespace):
    """A Lance namespace on Unity Catalog; see ``specs/unity.md``."""

    impl = "unity"
    config_type = UnityConfig

    def _open(self, config: UnityConfig) -> Catalog:
        for package in ("requests", "databricks.sdk"):
            if not _is_installed(package):
                raise unsupported(
                    f"impl=unity needs the package '{package}': pip install 'lance-bridge[unity]'"
                )
        from .catalog import UnityCatalog  # noqa: PLC0415 - needs the packages checked above

        return UnityCatalog(config)


def _is_installed(package: str) -> bool:
    try:
        return importlib.util.find_spec(package) is not None
    except ModuleNotFoundError:  # a package inside one that is not there
        return False
