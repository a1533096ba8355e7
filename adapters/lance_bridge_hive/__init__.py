"""The Hive Metastore as a Lance namespace: ``impl=hive``.

Its names are imported when they are first used: the command ``metastore`` is listed without them.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .config import HiveConfig
    from .namespace import HiveNamespace

__all__ = ["HiveConfig", "HiveNamespace"]

_MODULES = {"HiveConfig": "config", "HiveNamespace": "namespace"}


def __getattr__(name: str) -> Any:
    """Import a public name when it is first used (PEP 562)."""
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(import_module(f".{_MODULES[name]}", __name__), name)
    globals()[name] = value
    return value
