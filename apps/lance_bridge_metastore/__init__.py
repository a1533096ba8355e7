"""A real Hive Metastore, started from Python: no Docker, no Maven, no downloads by hand.

Names are imported when first used: ``lance-bridge --help`` needs none of them.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from lance_bridge.jvm import Java, JavaNotFoundError, cache_directory, find_java

    from .releases import (
        RELEASES,
        ArtifactsUnavailableError,
        EmbeddedError,
        MetastoreStartError,
        Release,
        jars_of,
        release,
    )
    from .server import Metastore

_MODULES = ("releases", "server")

__all__ = [
    "RELEASES",
    "ArtifactsUnavailableError",
    "EmbeddedError",
    "Java",
    "JavaNotFoundError",
    "Metastore",
    "MetastoreStartError",
    "Release",
    "cache_directory",
    "find_java",
    "jars_of",
    "release",
]


def __getattr__(name: str) -> Any:
    for module in _MODULES if name in __all__ else ():
        found = getattr(import_module(f"{__name__}.{module}"), name, None)
        if found is not None:
            return found
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
