"""A real Hive Metastore, started from Python: no Docker, no Maven, no downloads by hand."""

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
