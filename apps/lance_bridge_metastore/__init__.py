"""A real Hive Metastore, started from Python: no Docker, no Maven, no downloads by hand.

A name is imported when it is first used: ``lance-bridge --help`` needs none of them.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .artifacts import cache_directory, jars_of
    from .errors import (
        ArtifactsUnavailableError,
        EmbeddedError,
        JavaNotFoundError,
        MetastoreStartError,
    )
    from .java import Java, find_java
    from .releases import RELEASES, Release, release
    from .server import Metastore

_MODULES = {
    "RELEASES": "releases",
    "ArtifactsUnavailableError": "errors",
    "EmbeddedError": "errors",
    "Java": "java",
    "JavaNotFoundError": "errors",
    "Metastore": "server",
    "MetastoreStartError": "errors",
    "Release": "releases",
    "cache_directory": "artifacts",
    "find_java": "java",
    "jars_of": "artifacts",
    "release": "releases",
}

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
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_MODULES[name]}"), name)
