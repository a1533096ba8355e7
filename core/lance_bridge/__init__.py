"""lance-bridge: use Hive, Glue or Unity Catalog as the catalog for your Lance tables.

The names in ``__all__`` are public, and so are these modules: `lance_bridge.catalog` (what an
adapter implements), `lance_bridge.config` (the properties that it takes), `lance_bridge.errors`
(functions that make the errors it raises), `lance_bridge.extras` (packages that only one extra
installs), `lance_bridge.forks` (what a forked child must replace), `lance_bridge.jvm` (a Java, for
Spark and metastores) and `lance_bridge.testing` (the conformance kit). Applications also use
``namespace.tables``, the names that `lance_bridge.dataset` and `lance_bridge.storage` export, and
`lance_bridge.arrow_values` and `lance_bridge.values`, which make JSON and text of a table's values.

Names are imported on first use, so that ``lance-bridge --help`` loads no slow modules.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from _lance_bridge_names import catalogs, defer_rest_client, install

if TYPE_CHECKING:
    from . import errors
    from .catalog import (
        GUARD,
        LANCE,
        RESERVED_PREFIX,
        TABLE_TYPE,
        Capabilities,
        Catalog,
        CatalogColumn,
        Column,
        NameRule,
        NamespaceRecord,
        NamespaceWords,
        TableCredentials,
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
    "CatalogColumn",
    "CatalogConfig",
    "Column",
    "LanceBridgeNamespace",
    "NameRule",
    "NamespaceRecord",
    "NamespaceWords",
    "OutcomeUnknownError",
    "TableCredentials",
    "TableRecord",
    "catalogs",
    "connect",
    "errors",
    "select_tables",
]

_MODULES = ("catalog", "config", "errors", "extras")
_ELSEWHERE = {
    "CatalogConfig": "config",
    "LanceBridgeNamespace": "namespace",
    "OutcomeUnknownError": "errors",
    "connect": "registry",
}
"""Modules of public names; the others are in `lance_bridge.catalog`."""

defer_rest_client()
install()  # if no .pth file has done it, as with `pip install --target`


def __getattr__(name: str) -> Any:
    """Import a public name when it is first used (PEP 562)."""
    if name in _MODULES:
        return import_module(f".{name}", __name__)
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(import_module(f".{_ELSEWHERE.get(name, 'catalog')}", __name__), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__, *_MODULES})
