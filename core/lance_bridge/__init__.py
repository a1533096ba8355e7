"""lance-bridge: a Lance namespace made out of the catalog that you already run."""

from .catalog import Capabilities, Catalog, NameRule, NamespaceRecord, TableRecord
from .config import CatalogConfig
from .namespace import LanceBridgeNamespace
from .registry import catalogs, connect, register_with_lance_namespace

__all__ = [
    "Capabilities",
    "Catalog",
    "CatalogConfig",
    "LanceBridgeNamespace",
    "NameRule",
    "NamespaceRecord",
    "TableRecord",
    "catalogs",
    "connect",
]

register_with_lance_namespace()
