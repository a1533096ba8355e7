"""A Lance namespace in a SQLite file: ``impl=sqlite``."""

from .catalog import SqliteCatalog
from .namespace import SqliteConfig, SqliteNamespace

__all__ = ["SqliteCatalog", "SqliteConfig", "SqliteNamespace"]
