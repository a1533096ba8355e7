"""lance-bridge: a Lance namespace made out of the catalog that you already run.

The names in ``__all__`` are public, and so are these modules: `lance_bridge.catalog` (what an
adapter implements), `lance_bridge.config` (the properties that it takes), `lance_bridge.errors`
(functions that make the errors it raises), `lance_bridge.extras` (packages that only one extra
installs) and `lance_bridge.testing` (the conformance kit).
"""

from _lance_bridge_names import catalogs, install

from . import errors
from .catalog import (
    GUARD,
    LANCE,
    RESERVED_PREFIX,
    TABLE_TYPE,
    Capabilities,
    Catalog,
    Column,
    NameRule,
    NamespaceRecord,
    NamespaceWords,
    TableRecord,
    select_tables,
)
from .config import CatalogConfig
from .errors import OutcomeUnknownError
from .namespace import LanceBridgeNamespace
from .registry import connect

__all__ = [
    "GUARD",
    "LANCE",
    "RESERVED_PREFIX",
    "TABLE_TYPE",
    "Capabilities",
    "Catalog",
    "CatalogConfig",
    "Column",
    "LanceBridgeNamespace",
    "NameRule",
    "NamespaceRecord",
    "NamespaceWords",
    "OutcomeUnknownError",
    "TableRecord",
    "catalogs",
    "connect",
    "errors",
    "select_tables",
]

install()  # where no .pth file has done it, as with `pip install --target`
